"""Replay: recorded answers again at no cost, typed misses, and nothing written back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.store import write_problems
from ops.config import Pool, Recipe, Replay, Setup, Worker
from ops.core.errors import ReplayMiss, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.grading import worker_prompt
from ops.precaching.opening import open_client
from ops.precaching.precache import precache, solo_messages, write_responses
from ops.precaching.replay import Recorded, ReplayClient
from ops.precaching.stored import Cell
from ops.stages.responses import materialize_responses
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from ops.workflow.execution import execute, worker_messages
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import make_problem, make_response


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
        replay=Replay(**policy), recorded=Recorded(rows or [], problems),
    )  # fmt: skip


def ask(client: WorkerClient, worker: Worker, number: int = 0, sample: int = 0) -> Any:
    return asyncio.run(client.complete(worker, solo_messages(problem(number)), sample=sample))


def test_recorded_calls_are_replayed_without_key_cost_or_trace(
    loopback: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make_client()
    paid = ask(live, loopback.worker())
    monkeypatch.delenv("LOOPBACK_KEY")
    client = replaying(live)
    again = ask(client, loopback.worker())
    assert (again.text, again.cost_usd, again.latency_s) == (paid.text, paid.cost_usd, paid.latency_s)
    assert again.cost_usd > 0
    assert again.replayed
    assert not paid.replayed
    assert (client.counts.replayed, client.counts.live, client.counts.cached, client.counts.usd) == (1, 0, 0, 0.0)
    assert client.ledger.spent("rehearsal") == 0.0
    assert (len(loopback.requests), len(client.cache)) == (1, 1)


def test_an_unrecorded_call_is_a_replay_miss_without_a_call(loopback: Any, make_client: Any) -> None:
    live = make_client()
    ask(live, loopback.worker())
    client = replaying(live)
    changed = [
        (loopback.worker(), 1, 0),
        (loopback.worker(), 0, 1),
        (loopback.worker(temperature=0.9), 0, 0),
    ]
    for worker, number, sample in changed:
        with pytest.raises(ReplayMiss, match="nothing recorded"):
            ask(client, worker, number, sample)
    assert issubclass(ReplayMiss, WorkerUnreachable)
    assert (client.counts.failed, len(loopback.requests)) == (3, 1)


def test_a_replay_miss_can_be_a_paid_live_call(loopback: Any, make_client: Any) -> None:
    client = replaying(make_client(), on_miss="live")
    assert not ask(client, loopback.worker()).replayed
    assert ask(client, loopback.worker()).replayed
    assert (client.counts.live, client.counts.replayed) == (1, 1)
    assert client.ledger.spent("rehearsal") > 0


class TestByProblem:
    """With `match: problem`, the tables give the answer, by worker, problem and sample."""

    def test_for_any_subtask_and_context(self, loopback: Any, make_client: Any) -> None:
        client = replaying(make_client(), [recorded(3), recorded(3, worker="other", text="other")], match="problem")
        workflow = Workflow((Step(0, "Look it up."), Step(0, "Solve it.", "all")))
        messages = worker_messages(workflow, 1, worker_prompt(problem(3)), {0: "I saw\n\nSubtask: nothing."})
        response = asyncio.run(client.complete(loopback.worker(), messages))
        assert (response.text, response.cost_usd) == ("Answer: 3", 0.25)
        assert (response.finish_reason, response.replayed) == ("stop", True)
        assert (len(client.cache), client.ledger.spent("rehearsal")) == (0, 0.0)

    def test_another_sample_worker_or_problem_is_a_miss(self, loopback: Any, make_client: Any) -> None:
        client = replaying(make_client(), [recorded(3)], match="problem")
        for worker, number, sample in (
            (loopback.worker(), 3, 1),
            (loopback.worker(name="other"), 3, 0),
            (loopback.worker(), 4, 0),
        ):
            with pytest.raises(ReplayMiss):
                ask(client, worker, number, sample)

    def test_the_very_prompt_comes_first(self, loopback: Any, make_client: Any) -> None:
        live = make_client()
        ask(live, loopback.worker(), 3)
        client = replaying(live, [recorded(3)], match="problem")
        assert ask(client, loopback.worker(), 3).text == "Answer: 4"

    def test_a_question_that_holds_the_separator(self) -> None:
        odd = problem(1, "Read this:\n\nSubtask: say 3.\n\nSubtask: what is 2+2?")
        table = Recorded([recorded(1)], [odd])
        worker = Worker(name="remote", model="openai/x")
        response = table.response(worker, solo_messages(odd), 0)
        assert response is not None
        assert response.text == "Answer: 1"

    def test_a_recorded_refusal_is_refused_again_and_an_outage_is_a_miss(
        self, loopback: Any, make_client: Any
    ) -> None:
        rows = [recorded(1, status="refused", text=""), recorded(2, status="unreachable", text="")]
        client = replaying(make_client(), rows, match="problem")
        with pytest.raises(WorkerRefused, match="rlpr-001"):
            ask(client, loopback.worker(), 1)
        with pytest.raises(ReplayMiss):
            ask(client, loopback.worker(), 2)

    def test_a_rollout_whose_response_is_missing_is_unscorable(self, loopback: Any, make_client: Any) -> None:
        client = replaying(make_client(), match="problem")
        trace = asyncio.run(
            execute(Workflow.single(0, "Solve it."), worker_prompt(problem(1)), Team([loopback.worker()], client))
        )
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
    cell = Cell("remote", "rlpr")
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
    rows = asyncio.run(precache(problems, setup.pool.workers[0], client))
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
