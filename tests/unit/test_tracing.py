"""Traces in MLflow: the tree of an execution's steps; of a served request, which is stored or counted as dropped.

Each shows times and costs, and no text where it is confidential.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import questions_key
from ops.config import Evaluation, Pool, Prompting, RoundLimits, Setup, Worker, load_recipe
from ops.core.errors import WorkerUnreachable
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.release import trace_writer
from ops.release.evaluation_runs import TraceSample
from ops.release.mlflow_store import connect, get_or_create_experiment
from ops.release.trace_writer import TraceWriter, store_batches
from ops.release.tracing import (
    TaggedTrace,
    attach_to_span,
    build_execution_tree,
    build_request_trace,
    store_traces,
)
from ops.results.outcome_rows import OutcomeRow
from ops.serving.answer import Answer
from ops.serving.http.routes import RequestRecord
from ops.workflow.answer_rounds import Question, answer_questions
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace, WorkflowTrace
from tests.releases import checkout, shared_store
from tests.serving.script import POOL, SIX_BY_SEVEN, Scripted, ask, engine_of
from tests.team.servers import until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)
WORKERS = [Worker(name=name, model="local/none") for name in ("algebraist", "librarian", "down")]
WORKFLOW = Workflow((Step(0, "CANARY one"), Step(1, "CANARY two"), Step(1, "idle"), Step(0, "CANARY three", (0, 1))))
QUESTION = "CANARY question?"


class Tool:
    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        await asyncio.sleep(0.02)
        if worker.name == "down":
            raise WorkerUnreachable("CANARY error")
        return Response("CANARY answer", Usage(100, 20), 0.25, 0.5, "stop", retries=1)


class Store:
    """A workspace's own MLflow store."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        with connect(workspace) as client:
            self.home = get_or_create_experiment(client, workspace)

    def holds(self, *trees: TaggedTrace) -> list[Any]:
        """Store these; the traces that MLflow has of them."""
        with connect(self.workspace) as client:
            return [client.get_trace(each) for each in store_traces(self.workspace.mlflow_uri, self.home, trees)]

    def count(self) -> int:
        with sqlite3.connect(self.workspace.state / "mlflow" / "mlflow.db") as connection:
            return int(connection.execute("SELECT count(*) FROM trace_info").fetchone()[0])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return checkout(tmp_path / "checkout", shared_store())


@pytest.fixture
def store(workspace: Workspace) -> Store:
    return Store(workspace)


def run(workflow: Workflow = WORKFLOW) -> WorkflowTrace:
    return asyncio.run(execute_workflow(workflow, QUESTION, Team(WORKERS, Tool())))


def stored(store: Store, run: WorkflowTrace | QuestionTrace, *, withheld: str = "", **tags: str) -> Any:
    """Return the execution's trace as stored by MLflow."""
    whole = run if isinstance(run, QuestionTrace) else QuestionTrace.from_execution(run)
    [trace] = store.holds(TaggedTrace(build_execution_tree(whole, "workflow", withheld=withheld), tags))
    return trace


# ── executions ───────────────────────────────────────────────────────────────


def test_the_steps_are_spans_with_their_times_tokens_and_usd(store: Store) -> None:
    trace = run()
    shown = stored(store, trace, benchmark="math500")
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


def test_a_failure_is_an_error_and_says_which_step(store: Store) -> None:
    shown = stored(store, run(Workflow((Step(2, "a"), Step(0, "b", "all")))))
    assert shown.info.state == "ERROR"
    by_name = {span.name: span for span in shown.data.spans}
    assert by_name["1 · down"].attributes["error"] == "CANARY error"
    assert "2 · algebraist (not run)" in by_name


def test_without_texts_the_store_has_no_word_of_it(store: Store) -> None:
    failed = run(Workflow((Step(2, "CANARY a"), Step(0, "CANARY b", "all"))))
    for trace in (run(), failed):
        shown = stored(store, trace, withheld="The authors ask for it.")
        assert "CANARY" not in shown.to_json()
        assert len(shown.data.spans) == 1 + len(trace.steps)
        root = next(span for span in shown.data.spans if span.parent_id is None)
        assert root.inputs == root.outputs == {"withheld": "The authors ask for it."}


def test_rounds_are_spans_of_their_own(store: Store) -> None:
    texts = iter([WORKFLOW.render(), Workflow.single(1, "Again.").render(), Workflow(()).render()])

    async def write(_: list[list[Message]]) -> list[str]:
        return [next(texts)]

    problem = Problem("p", "math500", "math", "test", QUESTION, "42", "math")
    prompting = Prompting(style="compact", few_shots="none", access="fine_grained")
    question = Question(problem, Team(WORKERS, Tool(), prompting))
    [rounds] = asyncio.run(answer_questions([question], write, RoundLimits(rounds=3)))
    spans = {span.span_id: span for span in stored(store, rounds).data.spans}
    parents = {span.name: spans[span.parent_id].name for span in spans.values() if span.parent_id}
    assert parents["round 1"] == parents["round 2"] == "workflow"
    assert parents["4 · algebraist"] == "round 1"
    assert parents["1 · librarian"] == "round 2"
    root = next(span for span in spans.values() if span.parent_id is None)
    assert (root.attributes["stop"], root.attributes["rounds"], root.attributes["calls"]) == ("kept", 3, 4)


def test_below_an_open_span_no_second_trace_is_made(workspace: Workspace) -> None:
    import mlflow

    with connect(workspace) as client:
        get_or_create_experiment(client, workspace)
        with mlflow.start_span("request") as request:
            attach_to_span(build_execution_tree(QuestionTrace.from_execution(run()), "workflow"), request)
        mlflow.flush_trace_async_logging()
        trace = mlflow.get_trace(request.trace_id)
    assert trace is not None
    assert {span.name for span in trace.data.spans} >= {"request", "workflow", "4 · algebraist"}


QUESTIONS = {
    name: [
        Problem(f"{name}{number}", name, "math", "test", f"CANARY {name}{number}?", "42", "math") for number in range(4)
    ]
    for name in ("math500", "gpqa_diamond")
}


def export_sample(workspace: Workspace) -> list[str]:
    """Evaluate four questions of each of two benchmarks, and export the first two executions of each; a text without a
    workflow executes nothing."""
    problems = [problem for own in QUESTIONS.values() for problem in own]
    prompting = Prompting(style="compact", few_shots="none")
    texts = ["nothing", *[Workflow.single(0).render()] * 7]
    sample = TraceSample(2)
    completions = {(problem.key, 0): text for problem, text in zip(problems, texts, strict=True)}
    team = Team(WORKERS, Tool(), prompting)
    rows: list[OutcomeRow] = []
    asyncio.run(evaluate(completions, problems, team, Evaluation(), on_executed=sample.record, add_rows=rows.extend))
    setup = Setup(workspace, load_recipe(ROOT / "config", "quickstart"), Pool(name="test", workers=tuple(WORKERS)))
    return sample.export(setup, "conductor", "test-1", QUESTIONS, rows)


def test_an_evaluation_exports_the_stated_number_of_traces_per_benchmark(workspace: Workspace) -> None:
    import mlflow

    ids = export_sample(workspace)
    with connect(workspace):
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


def test_an_evaluation_is_one_of_mlflows_evaluation_runs(workspace: Workspace) -> None:
    ids = export_sample(workspace)
    with connect(workspace) as client:
        home = get_or_create_experiment(client, workspace)
        [made] = client.search_runs([home], "tags.`podium.purpose` = 'evaluation'")
        traces = client.search_traces(locations=[home], run_id=made.info.run_id)
    assert {trace.info.trace_id for trace in traces} == set(ids)
    assert (made.info.run_name, made.info.status) == ("evaluation conductor test-1", "FINISHED")
    assert made.data.tags["mlflow.runType"] == "genai_evaluate"
    data = {each.dataset.name: each.dataset.digest for each in made.inputs.dataset_inputs}
    assert data == {name: questions_key(own) for name, own in QUESTIONS.items()}
    assert (made.data.metrics["math500/accuracy"], made.data.metrics["math500/format_compliance"]) == (0.0, 0.75)
    for trace in traces:
        grades = {each.name: each.feedback.value for each in trace.info.assessments}
        assert (grades["right"], grades["usd"] > 0, grades["seconds"] >= 0) == (False, True, True)


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
        assert export_sample(workspace) == []
        server.shutdown()
    [said] = [each.getMessage() for each in caplog.records if each.name == "ops.release.evaluation_runs"]
    assert said.startswith("MLflow took no traces of conductor (") and said.endswith("; the scores are complete")


def test_nothing_kept_touches_no_store(tmp_path: Path) -> None:
    pool = Pool(name="none", workers=(WORKERS[0],))
    setup = Setup(Workspace(tmp_path), load_recipe(ROOT / "config", "quickstart"), pool)
    assert TraceSample(0).export(setup, "conductor", "test-1", {}, []) == []
    assert list(tmp_path.iterdir()) == []


# ── served requests ──────────────────────────────────────────────────────────

CHECKED = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all"))).render()


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """An answer after a second completion, by a Conductor that needs a tenth of a second for each."""
    writer = Scripted("nothing", CHECKED, seconds=0.1)
    with closing(engine_of(tmp_path_factory.mktemp("engine"), POOL, writer)) as engine:
        return ask(engine, SIX_BY_SEVEN)


def record(answer: Answer, number: int = 0, *, texts: bool = True, before_s: float = 0.0) -> RequestRecord:
    """A request that arrived this many seconds before its answer was begun, and ended a second after that or later."""
    ended = max(time.time(), answer.began + 1.0)
    return RequestRecord(f"req_{number}", "/v1/chat/completions", answer, texts, answer.began - before_s, ended)


def traced(*asked: Any, **named: Any) -> TaggedTrace:
    return build_request_trace(record(*asked, **named))


def test_a_trace_shows_waiting_writing_and_work_from_the_arrival_on(store: Store, answer: Answer) -> None:
    [trace] = store.holds(traced(replace(answer, waited_s=0.25), before_s=2.0))
    spans = {span.name: span for span in trace.data.spans}
    root = next(span for span in trace.data.spans if span.parent_id is None)
    assert root.start_time_ns == pytest.approx((answer.began - 2.0) * 1e9, abs=1e6)
    assert trace.info.execution_duration >= 2000
    assert (trace.info.tags["request"], trace.info.tags["status"]) == ("req_0", "answered")
    waiting = spans["waiting for a place"]
    assert (waiting.end_time_ns - waiting.start_time_ns) / 1e9 == pytest.approx(0.25, abs=0.01)
    first, second = spans["Conductor"], spans["Conductor (2)"]
    for span in (first, second):
        assert (span.end_time_ns - span.start_time_ns) / 1e9 >= 0.1
    assert second.inputs["messages"][-1]["content"].startswith(SIX_BY_SEVEN)
    assert second.outputs["choices"][0]["message"]["content"] == CHECKED
    usage = {"input_tokens": 100, "output_tokens": len(CHECKED), "total_tokens": 100 + len(CHECKED)}
    assert second.attributes["mlflow.chat.tokenUsage"] == usage
    assert {"workflow", "1 · algebraist", "2 · algebraist"} <= spans.keys()
    parts = [span for span in trace.data.spans if span.parent_id == root.span_id]
    assert all(span.start_time_ns >= root.start_time_ns and span.end_time_ns <= root.end_time_ns for span in parts)


def test_questions_that_wait_for_the_policy_show_it(tmp_path: Path, store: Store) -> None:
    writer = Scripted(CHECKED, seconds=2.0)
    with closing(engine_of(tmp_path / "engine", POOL, writer, batch=1)) as engine, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, engine, SIX_BY_SEVEN) for _ in "12"]
        traces = store.holds(*(traced(each.result(timeout=60), number) for number, each in enumerate(asked)))
    spans = [span for trace in traces for span in trace.data.spans if span.name == "waiting for the Conductor"]
    longest = max((span.end_time_ns - span.start_time_ns) / 1e9 for span in spans)
    assert longest > 0.1, "of the one whose writing waited for the other's"


def test_without_texts_the_store_has_no_word_of_a_request(store: Store, answer: Answer) -> None:
    [trace] = store.holds(traced(answer, texts=False))
    assert "cdot" not in trace.to_json() and "Compute" not in trace.to_json()
    assert {span.name for span in trace.data.spans} >= {"Conductor", "workflow"}
    root = next(span for span in trace.data.spans if span.parent_id is None)
    assert "`store: false`" in root.inputs["withheld"] and root.inputs == root.outputs


def test_half_a_surrogate_pair_spoils_no_batch(store: Store, answer: Answer) -> None:
    broken = replace(answer, problem=replace(answer.problem, question="half a pair: \ud83d"))
    store.holds(*(traced(each, number) for number, each in enumerate((answer, broken, answer))))
    assert store.count() == 3


def test_refused_records_of_the_store_are_reported(
    store: Store, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    good = [pickle.dumps(record(answer, number)) for number in range(2)]
    batches, replies = io.BytesIO(b"".join(map(pickle.dumps, ([*good, b"no record"], good)))), io.BytesIO()
    store_batches(store.workspace.root, store.home, batches, replies)
    with sqlite3.connect(store.workspace.state / "mlflow" / "mlflow.db") as connection:
        connection.execute("ALTER TABLE spans RENAME TO lost")
    store_batches(store.workspace.root, store.home, io.BytesIO(pickle.dumps(good)), replies)
    replies.seek(0)
    assert [pickle.load(replies) for _ in range(3)] == [2, 2, 0]
    assert "a request has no trace" in caplog.text and "MLflow does not take traces" in caplog.text


@pytest.mark.long
def test_many_at_once_are_stored_or_counted_also_where_the_process_is_killed(
    store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(pickle.dumps(record(answer, 100), pickle.HIGHEST_PROTOCOL))
    monkeypatch.setattr(trace_writer, "MAX_QUEUED_BYTES", 100 * size)
    monkeypatch.setattr(trace_writer, "RESTART_DELAY_S", 0.0)
    stored, dropped = [], []
    writer = TraceWriter(store.workspace.root, store.home)
    writer.on_stored, writer.on_dropped = stored.append, dropped.append
    writer.enqueue(record(answer))
    until(lambda: stored == [1], "one is stored")
    assert writer._process is not None
    writer._process.kill()
    writer._process.wait(60)
    writer.enqueue(record(answer, 1))
    until(lambda: dropped == [1], "one is dropped")
    assert "1 traces were dropped: the process that stores them ended" in caplog.text
    for number in range(300):
        writer.enqueue(record(answer, number))
    writer.close(120)
    assert sum(dropped) >= 50 and sum(stored) >= 90, "more came than may wait"
    assert sum(stored) + sum(dropped) == 302
    assert store.count() == sum(stored)
    writer.enqueue(record(answer, 301))
    assert sum(stored) + sum(dropped) == 303, "one that comes too late is counted"
