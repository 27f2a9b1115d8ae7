"""Replay: recorded answers again at no cost, typed misses, and nothing written back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import write_problems
from ops.config import Pool, Recipe, Replay, Setup, Worker
from ops.core.errors import ReplayMiss, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.grading import worker_prompt
from ops.precaching.client_setup import open_client
from ops.precaching.precache import build_solo_messages, precache_worker, write_responses
from ops.precaching.replay import RecordedResponses, ReplayClient
from ops.precaching.stored_profiles import WorkerBenchmark
from ops.stages.responses import materialize_responses
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workflow.execution import build_worker_messages, execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import make_problem, make_response
from tests.unit.workers.conftest import ask


def problem(number: int, question: str = "") -> Problem:
    return make_problem(id=f"rlpr-{number:03}", question=question or f"Number {number}: what is 2+2?")


def recorded(number: int, **changes: Any) -> ResponseRow:
    values = {
        "worker": "remote", "problem_id": f"rlpr-{number:03}", "text": f"Answer: {number}", "score": 0.0,
        "cost_usd": 0.25, "latency_s": 1.5, "finish_reason": "stop",
    }  # fmt: skip
    return make_response(**values | changes)


def replaying(like: WorkerClient, rows: list[ResponseRow] | None = None, **policy: Any) -> ReplayClient:
    """Make a replay client on the same cache and ledger."""
    problems = [problem(number) for number in range(10)]
    return ReplayClient(
        like.cache, like.ledger, Account("rehearsal", "rehearsal", 10.0),
        replay=Replay(**policy), recorded=RecordedResponses(rows or [], problems),
    )  # fmt: skip


def ask_about(number: int, client: WorkerClient, worker: Worker, sample: int = 0) -> Response:
    return ask(client, worker, build_solo_messages(problem(number)), sample)


def test_recorded_calls_are_replayed_without_key_cost_or_trace(
    loopback: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    live = make_client()
    paid = ask_about(0, live, worker)
    monkeypatch.delenv("LOOPBACK_KEY")
    client = replaying(live)
    again = ask_about(0, client, worker)
    assert (again.text, again.cost_usd, again.latency_s) == (paid.text, paid.cost_usd, paid.latency_s)
    assert again.cost_usd > 0
    assert again.replayed
    assert not paid.replayed
    assert (client.counts.replayed, client.counts.live, client.counts.cached, client.counts.usd) == (1, 0, 0, 0.0)
    assert client.ledger.total_usd("rehearsal") == 0.0
    assert (len(loopback.requests), len(client.cache)) == (1, 1)


@pytest.mark.parametrize(
    ("number", "sample", "changed"),
    [(1, 0, {}), (0, 1, {}), (0, 0, {"temperature": 0.9})],
    ids=["another problem", "another sample", "another temperature"],
)
def test_an_unrecorded_call_is_a_replay_miss_without_a_call(
    loopback: Any, client: WorkerClient, worker: Worker, number: int, sample: int, changed: dict[str, Any]
) -> None:
    ask_about(0, client, worker)
    replay = replaying(client)
    with pytest.raises(ReplayMiss, match="nothing recorded"):
        ask_about(number, replay, loopback.worker(**changed), sample)
    assert issubclass(ReplayMiss, WorkerUnreachable)
    assert (replay.counts.failed, len(loopback.requests)) == (1, 1)


def test_a_replay_miss_can_be_a_paid_live_call(client: WorkerClient, worker: Worker) -> None:
    replay = replaying(client, on_miss="live")
    assert not ask_about(0, replay, worker).replayed
    assert ask_about(0, replay, worker).replayed
    assert (replay.counts.live, replay.counts.replayed) == (1, 1)
    assert replay.ledger.total_usd("rehearsal") > 0


# ── with `match: problem`, the tables give the answer, by worker, problem and sample ──


def test_a_recorded_answer_is_for_any_subtask_and_context(client: WorkerClient, worker: Worker) -> None:
    replay = replaying(client, [recorded(3), recorded(3, worker="other", text="other")], match="problem")
    workflow = Workflow((Step(0, "Look it up."), Step(0, "Solve it.", "all")))
    messages = build_worker_messages(workflow, 1, worker_prompt(problem(3)), {0: "I saw\n\nSubtask: nothing."})
    response = ask(replay, worker, messages)
    assert (response.text, response.cost_usd) == ("Answer: 3", 0.25)
    assert (response.finish_reason, response.replayed) == ("stop", True)
    assert (len(replay.cache), replay.ledger.total_usd("rehearsal")) == (0, 0.0)


@pytest.mark.parametrize(
    ("number", "sample", "name"),
    [(3, 1, "remote"), (3, 0, "other"), (4, 0, "remote"), (2, 0, "remote")],
    ids=["another sample", "another worker", "another problem", "a recorded outage"],
)
def test_what_the_tables_do_not_answer_is_a_miss(
    loopback: Any, client: WorkerClient, number: int, sample: int, name: str
) -> None:
    rows = [recorded(3), recorded(2, status="unreachable", text="")]
    with pytest.raises(ReplayMiss):
        ask_about(number, replaying(client, rows, match="problem"), loopback.worker(name=name), sample)


def test_a_recorded_refusal_is_refused_again(client: WorkerClient, worker: Worker) -> None:
    with pytest.raises(WorkerRefused, match="rlpr-001"):
        ask_about(1, replaying(client, [recorded(1, status="refused", text="")], match="problem"), worker)


def test_the_exact_prompt_comes_first(client: WorkerClient, worker: Worker) -> None:
    ask_about(3, client, worker)
    assert ask_about(3, replaying(client, [recorded(3)], match="problem"), worker).text == "Answer: 4"


def test_a_question_that_holds_the_separator() -> None:
    odd = problem(1, "Read this:\n\nSubtask: say 3.\n\nSubtask: what is 2+2?")
    table = RecordedResponses([recorded(1)], [odd])
    response = table.find(Worker(name="remote", model="openai/x"), build_solo_messages(odd), 0)
    assert response is not None
    assert response.text == "Answer: 1"


def test_a_rollout_whose_response_is_missing_is_unscorable(client: WorkerClient, worker: Worker) -> None:
    team = Team([worker], replaying(client, match="problem"))
    trace = asyncio.run(execute_workflow(Workflow.single(0, "Solve it."), worker_prompt(problem(1)), team))
    assert trace.status == "unreachable"


# ── the stage ────────────────────────────────────────────────────────────────


def checkout(root: Path, worker: Worker, count: int, **replay: Any) -> Setup:
    workspace = Workspace(root)
    benchmarks = {name: {"train": count} for name in ("math500", "mmlu", "rlpr", "livecodebench")}
    recipe = Recipe.model_validate({
        "name": "r", "pool": "p", "benchmarks": benchmarks, "policy": {"kind": "scratch"}, "cold_start": {},
        "replay": replay or None,
    })  # fmt: skip
    write_problems(workspace.data / "shortlist.jsonl", [problem(number) for number in range(count)])
    return Setup(workspace, recipe, Pool(name="p", workers=(worker,)))


def materialize(setup: Setup) -> tuple[list[ResponseRow], WorkerClient]:
    client = open_client(setup, "precache")
    cell = WorkerBenchmark("remote", "rlpr")
    return materialize_responses(setup, client, [cell])[cell], client


def test_a_rehearsal_replaces_no_recorded_table(loopback: Any, tmp_path: Path) -> None:
    real = checkout(tmp_path, loopback.worker(), 4)
    paid, _ = materialize(real)
    file = response_file(tmp_path / "data" / "responses", "remote", "rlpr")
    before = file.read_bytes()
    # With another endpoint the cache has no answer, and the tables must be kept.
    moved = checkout(tmp_path, loopback.worker(api_base="http://127.0.0.1:9/v1"), 4, match="prompt")
    rows, client = materialize(moved)
    assert [row.response.text for row in rows] == [row.response.text for row in paid]
    assert file.read_bytes() == before
    assert (client.counts.live, client.counts.failed, len(loopback.requests)) == (0, 0, 4)


def test_a_rehearsal_reads_tables_that_came_without_a_cache(loopback: Any, tmp_path: Path) -> None:
    write_responses([recorded(n) for n in range(3)], response_file(tmp_path / "data" / "responses", "remote", "rlpr"))
    setup = checkout(tmp_path, loopback.worker(), 4, match="problem")
    client = open_client(setup, "training")
    problems = [problem(number) for number in range(4)]
    rows = asyncio.run(precache_worker(problems, setup.pool.workers[0], client))
    assert [row.status for row in rows] == ["ok", "ok", "ok", "unreachable"]
    assert [row.response.replayed for row in rows] == [True, True, True, False]
    assert loopback.requests == []


def test_a_rehearsal_leaves_what_it_makes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://a-team-server")
    real, rehearsal = Workspace(tmp_path), Workspace(tmp_path, rehearsal=True)
    for name in ("policies", "runs", "scores", "mlflow_uri", "mlflow_artifacts"):
        assert getattr(real, name) != getattr(rehearsal, name), name
    assert "a-team-server" not in rehearsal.mlflow_uri
    assert (real.cache, real.ledger, real.data) == (rehearsal.cache, rehearsal.ledger, rehearsal.data)
