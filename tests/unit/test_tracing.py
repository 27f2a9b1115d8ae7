"""A trace in MLflow: the tree of the steps, their times and costs; no text if it is confidential."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ops.config import Evaluation, Prompting, RoundLimits, Worker
from ops.core.errors import WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message, Response
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.release.store import connected, experiment
from ops.release.tracing import TraceSample, TreeWithTags, attach, of_execution, store_traces
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.play import Question, play
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import Trace, WorkflowTrace

WORKERS = [Worker(name=name, model="local/none") for name in ("algebraist", "librarian", "down")]
WORKFLOW = Workflow(
    (Step(0, "CANARY one"), Step(1, "CANARY two"), Step(1, "idle"), Step(0, "CANARY three", (0, 1)))
)
QUESTION = "CANARY question?"


class Tool:
    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        await asyncio.sleep(0.02)
        if worker.name == "down":
            raise WorkerUnreachable("CANARY error")
        return Response("CANARY answer", 100, 20, 0.25, 0.5, "stop", retries=1)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("traced"))


@pytest.fixture
def store(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with connected(workspace):
        yield workspace


def run(workflow: Workflow = WORKFLOW) -> WorkflowTrace:
    return asyncio.run(execute(workflow, QUESTION, Team(WORKERS, Tool()), scheduler=Scheduler()))


def stored(run: WorkflowTrace | Trace, **tags: str):
    """Return the execution's trace as stored by MLflow."""
    whole = run if isinstance(run, Trace) else Trace.of(run)
    return stored_tree(TreeWithTags(of_execution(whole, "workflow"), tags))


def stored_tree(tree: TreeWithTags):
    import mlflow

    uri = mlflow.get_tracking_uri()
    home = experiment(mlflow.MlflowClient(), Workspace(Path(uri.removeprefix("sqlite:///")).parents[2]))
    [trace_id] = store_traces(uri, home, [tree])
    trace = mlflow.get_trace(trace_id)
    assert trace is not None
    return trace


def test_the_steps_are_spans_with_their_times_tokens_and_usd(store: Workspace) -> None:
    trace = run()
    shown = stored(trace, benchmark="math500")
    root, *_ = [span for span in shown.data.spans if span.parent_id is None]
    steps = sorted((s for s in shown.data.spans if s.parent_id == root.span_id), key=lambda s: s.name)
    assert [span.name for span in steps] == [
        "1 · algebraist", "2 · librarian", "3 · librarian (pruned)", "4 · algebraist",
    ]  # fmt: skip
    assert [span.span_type for span in steps] == ["CHAT_MODEL", "CHAT_MODEL", "TASK", "CHAT_MODEL"]
    first, second, _, last = steps
    assert first.start_time_ns < second.end_time_ns and second.start_time_ns < first.end_time_ns  # concurrently
    assert last.start_time_ns >= max(first.end_time_ns, second.end_time_ns)
    took = trace.steps[3].ended_s - trace.steps[3].started_s
    assert (last.end_time_ns - last.start_time_ns) / 1e9 == pytest.approx(took, abs=1e-5)
    assert last.inputs["messages"][0]["content"] == f"{QUESTION}\n\nSubtask: CANARY one"
    assert last.outputs["choices"][0]["message"]["content"] == "CANARY answer"
    attributes = last.attributes
    assert (attributes["step"], attributes["ordinal"], attributes["sees"]) == (4, 0, [0, 1])
    assert attributes["key"] == trace.steps[3].key
    assert shown.info.token_usage == {"input_tokens": 300, "output_tokens": 60, "total_tokens": 360}
    assert shown.info.cost["total_cost"] == pytest.approx(0.75)
    assert (shown.info.tags["benchmark"], shown.info.tags["mlflow.traceName"]) == ("math500", "workflow")
    totals = root.attributes
    assert (totals["calls"], totals["retries"], totals["pruned"], totals["edges"]) == (3, 3, 1, ["1 → 4", "2 → 4"])


def test_a_failure_is_an_error_and_says_which_step(store: Workspace) -> None:
    shown = stored(run(Workflow((Step(2, "a"), Step(0, "b", "all")))))
    assert shown.info.state == "ERROR"
    by_name = {span.name: span for span in shown.data.spans}
    assert by_name["1 · down"].attributes["error"] == "CANARY error"
    assert "2 · algebraist (not run)" in by_name


def test_without_texts_the_store_has_no_word_of_it(store: Workspace) -> None:
    failed = run(Workflow((Step(2, "CANARY a"), Step(0, "CANARY b", "all"))))
    for trace in (run(), failed):
        shown = stored_tree(TreeWithTags(of_execution(Trace.of(trace), "workflow", texts=False), {}))
        assert "CANARY" not in shown.to_json()
        assert len(shown.data.spans) == 1 + len(trace.steps)


def test_rounds_are_spans_of_their_own(store: Workspace) -> None:
    texts = iter([WORKFLOW.render(), Workflow.single(1, "Again.").render(), Workflow(()).render()])

    async def write(_: list[list[Message]]) -> list[str]:
        return [next(texts)]

    problem = Problem("p", "math500", "math", "test", QUESTION, "42", "math")
    prompting = Prompting(style="compact", few_shots="none", access="fine_grained")
    question = Question(problem, Team(WORKERS, Tool(), prompting))
    [rounds] = asyncio.run(play([question], write, RoundLimits(rounds=3)))
    spans = {span.span_id: span for span in stored(rounds).data.spans}
    parents = {span.name: spans[span.parent_id].name for span in spans.values() if span.parent_id}
    assert parents["round 1"] == parents["round 2"] == "workflow"
    assert parents["4 · algebraist"] == "round 1"
    assert parents["1 · librarian"] == "round 2"
    root = next(span for span in spans.values() if span.parent_id is None)
    assert (root.attributes["stop"], root.attributes["rounds"], root.attributes["calls"]) == ("kept", 3, 4)


def test_below_an_open_span_no_second_trace_is_made(store: Workspace) -> None:
    import mlflow

    with mlflow.start_span("request") as request:
        attach(of_execution(Trace.of(run()), "workflow"), request)
    mlflow.flush_trace_async_logging()
    trace = mlflow.get_trace(request.trace_id)
    assert trace is not None
    assert {span.name for span in trace.data.spans} >= {"request", "workflow", "4 · algebraist"}


def sampled() -> TraceSample:
    """Return the first two executions of each of two benchmarks; a text without a workflow executes nothing."""
    problems = [
        Problem(f"{name}{number}", name, "math", "test", f"CANARY {name}{number}?", "42", "math")
        for name in ("math500", "gpqa_diamond")
        for number in range(4)
    ]
    prompting = Prompting(style="compact", few_shots="none")
    texts = ["nothing", *[Workflow.single(0).render()] * 7]
    sample = TraceSample(2)
    completions = {(problem.key, 0): text for problem, text in zip(problems, texts, strict=True)}
    team = Team(WORKERS, Tool(), prompting)
    asyncio.run(evaluate(completions, problems, team, Evaluation(), on_played=sample.take))
    return sample


def test_an_evaluation_exports_the_stated_number_of_traces_per_benchmark(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sample = sampled()
    ids = sample.export(workspace, "conductor")
    with connected(workspace):
        traces = [mlflow.get_trace(trace_id) for trace_id in ids]
        assert mlflow.get_experiment(traces[0].info.experiment_id).name == "podium"
    tags = [(trace.info.tags["benchmark"], trace.info.tags["problem"], trace.info.tags["outcome"]) for trace in traces]
    assert tags == [
        ("math500", "math500/math5001", "wrong"),
        ("math500", "math500/math5002", "wrong"),
        ("gpqa_diamond", "gpqa_diamond/gpqa_diamond0", "wrong"),
        ("gpqa_diamond", "gpqa_diamond/gpqa_diamond1", "wrong"),
    ]
    assert ["CANARY" in trace.to_json() for trace in traces] == [True, True, False, False]


class Refusing(BaseHTTPRequestHandler):
    """An MLflow server that has no place to store a trace."""

    def do_GET(self) -> None:
        self.send_error(500)

    def do_POST(self) -> None:
        self.send_error(500)


def test_traces_that_mlflow_does_not_take_are_one_warning_and_no_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        assert sampled().export(workspace, "conductor") == []
        server.shutdown()
    [said] = [each.getMessage() for each in caplog.records if each.name == "ops.release.tracing"]
    assert said.startswith("MLflow took no traces of conductor (") and said.endswith("; the scores are complete")


def test_nothing_kept_touches_no_store(tmp_path: Path) -> None:
    assert TraceSample(0).export(Workspace(tmp_path), "conductor") == []
    assert list(tmp_path.iterdir()) == []
