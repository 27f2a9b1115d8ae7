"""Precaching: graded rows, deterministic files, resuming after a stop, a cap or a kill -9."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.cache import ResponseCache
from ops.core.errors import ConfigError, DataError, OverBudget
from ops.core.problem import Problem
from ops.core.rows import ResponseRow, load_responses, response_file
from ops.precaching.precache import precache, write_responses
from ops.spending.ledger import Ledger
from ops.workflow.team import Team
from tests.builders import make_problem, make_response
from tests.faults import precache_run
from tests.faults.processes import Process


def problems(count: int) -> list[Problem]:
    """Make sums in short text; the server answers 4 to all of them, which is right for every other one."""
    return [
        make_problem(id=f"rlpr-{n:03}", question=f"Number {n}: what is 2+{2 + n % 2}?", answer=str(4 + n % 2))
        for n in range(count)
    ]


def run(client: Any, worker: Any, count: int, **more: Any) -> list[ResponseRow]:
    return asyncio.run(precache(problems(count), worker, client, **more))


def test_rows_are_graded_priced_and_in_order(loopback: Any, make_client: Any) -> None:
    seen: list[ResponseRow] = []
    client = make_client()
    rows = run(client, loopback.worker(), 4, samples=2, on_progress=seen.append)
    assert [(r.problem_id, r.sample) for r in rows] == [(f"rlpr-{n:03}", s) for n in range(4) for s in (0, 1)]
    assert [r.score for r in rows] == [1.0, 1.0, 0.0, 0.0] * 2
    assert all(r.status == "ok" and r.extracted == "4" for r in rows)
    assert all(r.response.cost_usd > 0 and not r.response.cached for r in rows)
    assert sorted(seen, key=lambda r: (r.problem_id, r.sample)) == rows
    again = run(client, loopback.worker(), 4, samples=2)
    assert len(loopback.requests) == 8
    assert all(r.response.cached for r in again)


def test_a_worker_alone_is_asked_as_the_one_step_workflow_asks_it(loopback: Any, make_client: Any) -> None:
    from ops.grading import worker_prompt
    from ops.workflow.execution import execute
    from ops.workflow.grammar import SOLVE, Workflow

    client, worker = make_client(), loopback.worker()
    run(client, worker, 1)
    question = worker_prompt(problems(1)[0])
    trace = asyncio.run(execute(Workflow.single(0, SOLVE), question, Team([worker], client)))
    assert trace.answer == "Answer: 4"
    assert len(loopback.requests) == 1


def test_refused_and_unreachable_are_distinguished(loopback: Any, make_client: Any) -> None:
    loopback.plan.extend(["413", "500", "500"])
    rows = run(make_client(), loopback.worker(concurrency=1, retries=0), 3)
    assert Counter(r.status for r in rows) == {"refused": 1, "unreachable": 2}
    assert all(r.score == 0.0 and r.response.text == "" for r in rows)


def test_unreachable_problems_are_asked_again_the_next_time(loopback: Any, make_client: Any) -> None:
    loopback.plan.extend(["500", "500"])
    client, worker = make_client(), loopback.worker(retries=0)
    assert sum(r.status == "unreachable" for r in run(client, worker, 5)) == 2
    assert all(r.status == "ok" for r in run(client, worker, 5))
    assert len(loopback.requests) == 7


def test_at_the_cap_it_stops_and_continues_later_without_paying_twice(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(max_tokens=5, concurrency=4)
    with pytest.raises(OverBudget):
        run(make_client(cap_usd=4e-4), worker, 40)
    paid = len(loopback.requests)
    assert 0 < paid < 40
    rows = run(make_client(), worker, 40)
    assert len(loopback.requests) == 40
    assert sum(r.response.cached for r in rows) == paid


def test_a_wrong_key_stops_it_at_once(loopback: Any, make_client: Any) -> None:
    loopback.plan.extend(["401"] * 100)
    with pytest.raises(ConfigError, match="api_key_env"):
        run(make_client(), loopback.worker(concurrency=2), 50)
    assert len(loopback.requests) <= 4


def test_kill_9_and_again_pays_for_nothing_twice(loopback: Any, tmp_path: Path) -> None:
    count, concurrency = 60, 3
    loopback.latency_s = 0.03
    worker = loopback.worker(concurrency=concurrency, max_tokens=5, timeout_s=10.0)
    order = precache_run.Order(tmp_path, worker, problems(count))

    def started() -> Process:
        process = Process(precache_run.live, order)
        process.wait_until_ready()
        process.begin()
        return process

    process = started()
    while len(loopback.requests) < count // 3:
        time.sleep(0.005)
    assert process.kill(), "it had ended before"
    while asyncio.all_tasks(loopback.loop):  # until the killed process's requests have been read to their end
        time.sleep(0.005)
    before = len(loopback.requests)
    kept = len(ResponseCache(tmp_path))
    assert count // 3 <= before < count
    assert before - concurrency <= kept <= before  # only calls in flight can be lost
    assert not list(tmp_path.glob("*.parquet*"))

    assert started().outcome() == count
    assert len(loopback.requests) - before == count - kept
    counts = Counter(json.dumps(request["messages"]) for request in loopback.requests)
    assert len(counts) == count
    assert sum(times - 1 for times in counts.values()) == before - kept
    table = load_responses(tmp_path / "rows.parquet")
    assert len(table) == count
    # Calls in flight at the kill were paid as well, at the cost of the same question's answer.
    spent = Ledger(tmp_path / "ledger.sqlite").by_run()["run"]
    each = sum(row.response.cost_usd for row in table) / count
    assert before - kept <= spent.lost <= concurrency
    assert spent.calls + spent.lost >= len(loopback.requests)
    assert spent.usd == pytest.approx((spent.calls + spent.lost) * each)


# ── files ────────────────────────────────────────────────────────────────────

row = make_response

def test_the_same_rows_give_the_same_bytes_whatever_their_order_and_source(tmp_path: Path) -> None:
    rows = [row(problem_id=f"p{n}", sample=s, text=f"Zeile {n} ∑") for n in range(20) for s in (0, 1)]
    write_responses(rows, tmp_path / "a.parquet")
    write_responses([row_from_cache(r) for r in reversed(rows)], tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def row_from_cache(original: ResponseRow) -> ResponseRow:
    return replace(original, response=replace(original.response, cached=True))


def test_a_folder_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [
        row(worker=w, benchmark=b, problem_id=f"{b}-{n}", status="refused" if n else "ok")
        for w in ("a", "b") for b in ("mmlu", "rlpr") for n in range(3)
    ]  # fmt: skip
    for worker in ("b", "a"):
        for benchmark in ("rlpr", "mmlu"):
            own = [r for r in rows if (r.worker, r.benchmark) == (worker, benchmark)]
            write_responses(own, response_file(tmp_path, worker, benchmark))
    assert load_responses(tmp_path) == rows
    assert load_responses(tmp_path / "nothing-here") == []


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    write_responses([], tmp_path / "empty.parquet")
    assert load_responses(tmp_path) == []


@pytest.mark.parametrize("content", ["no table", "no column"])
def test_a_file_that_is_not_a_table_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.parquet"
    file.write_bytes(b"nothing of the kind")
    if content == "no column":
        pq.write_table(pa.table({"worker": ["w"]}), file)
    says = {"no table": r"bad\.parquet.*precache again", "no column": r"bad\.parquet: columns: benchmark"}
    with pytest.raises(DataError, match=says[content]):
        load_responses(tmp_path)


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    write_responses([row()], file)
    old = file.read_bytes()
    wrong: Any = "not a number"
    with pytest.raises((TypeError, ValueError)):
        write_responses([row(score=wrong)], file)
    assert file.read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
