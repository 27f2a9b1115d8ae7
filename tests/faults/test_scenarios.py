"""Thousands of calls against a server with failures, kills and costs."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import OverBudget, WorkerUnreachable
from ops.spending.ledger import Ledger
from ops.workers.client import WorkerClient
from tests.builders import make_problem
from tests.faults import precache_run
from tests.faults.clients import MakeClient
from tests.faults.processes import running
from tests.faults.remote import PAID_USD, FaultServer, ask, left_behind, user
from tests.faults.server import FAULTS


async def ask_all(client: WorkerClient, worker: Worker, prompts: list[str]) -> list[Any]:
    """Make all calls at once and return their results. Fails if a task is left behind."""
    before = asyncio.all_tasks()
    calls = (client.complete(worker, user(prompt)) for prompt in prompts)
    results = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0.2)
    assert left_behind(before) == []
    return results


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.soak)])
def test_calls_at_a_20_percent_fault_rate(server: FaultServer, make_client: MakeClient, count: int) -> None:
    client = make_client()
    worker = server.worker(concurrency=32, requests_per_minute=6000, timeout_s=8.0, retries=8)
    prompts = [f"question {number}" for number in range(count)]
    ask(client, worker, "the key is right")
    server.order(rate=0.2, seed=14, latency_s=0.02)
    results = asyncio.run(ask_all(client, worker, prompts))
    answered = [result for result in results if not isinstance(result, BaseException)]
    unreachable = [result for result in results if isinstance(result, WorkerUnreachable)]
    kinds = {type(result).__name__ for result in results if isinstance(result, BaseException)}
    assert len(answered) + len(unreachable) == count, kinds
    served = server.served()
    assert {prompt for prompt in prompts if served[prompt] > 1} == set()
    assert sum(served[prompt] for prompt in prompts) == len(answered) >= 0.995 * count
    steps = [entry["step"] for entry in server.came()]
    assert set(FAULTS) < set(steps) and 0.15 * count < sum(step in FAULTS for step in steps) < 0.35 * count
    assert server.order()["busy"] <= steps.count("hang") + steps.count("trickle")
    assert (len(client.cache), client.ledger.count_in_flight("run")) == (len(answered) + 1, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_repeated_kills_pay_for_each_answer_once(server: FaultServer, tmp_path: Path, kills: int) -> None:
    server.order(latency_s=0.1)
    problems = [make_problem(id=f"{n:03}", question=f"Number {n}: what is 2+2?") for n in range(40 * (kills + 1))]
    # A call that a busy machine delays beyond its time-out is sent again: here only a kill may repeat one.
    worker = server.worker(concurrency=8, timeout_s=30.0)
    order, chance = precache_run.Order(tmp_path, worker, problems), random.Random(7)

    def served() -> int:
        return sum(server.served().values())

    for _ in range(kills):
        goal = served() + chance.randint(5, 15)
        with running(precache_run.live, order) as [process]:
            process.begin()
            while served() < goal:
                time.sleep(0.01)
            assert process.kill(), "it had ended before"
        time.sleep(0.3)  # the pending reply of the server to an ended process
    with running(precache_run.live, order) as [process]:
        process.begin()
        assert process.outcome() == len(problems)
    counts = server.served()
    assert len(counts) == len(problems)
    # A prompt that was answered more than once was in flight at a kill.
    assert sum(count - 1 for count in counts.values()) <= kills * worker.concurrency
    assert max(counts.values()) <= 1 + kills


@pytest.mark.long
@pytest.mark.slow
def test_the_cap_holds_under_200_queued_calls_and_a_larger_one_goes_on(
    server: FaultServer, make_client: MakeClient, tmp_path: Path
) -> None:
    server.order(latency_s=0.02)
    worker = server.worker(concurrency=64, max_tokens=20)
    prompts = [f"question {number}" for number in range(200)]
    cap = 80.5 * PAID_USD
    results = asyncio.run(ask_all(make_client(cap_usd=cap), worker, prompts))
    refused = [result for result in results if isinstance(result, OverBudget)]
    answered = [result for result in results if not isinstance(result, BaseException)]
    assert len(answered) + len(refused) == 200 and refused
    spent = sum(server.served().values()) * PAID_USD
    assert spent <= cap
    assert Ledger(tmp_path / "ledger.sqlite").total_usd("run") == pytest.approx(spent)
    assert spent >= cap - 12 * PAID_USD  # the rest is less than one more call's worst case

    before = server.served()
    more = make_client(cap_usd=1.0)
    results = asyncio.run(ask_all(more, worker, prompts))
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert (more.counts.cached, more.counts.live) == (len(answered), len(refused))
    assert set(server.served().values()) == {1} and len(server.served()) == 200
    assert sum(before.values()) == len(answered)
