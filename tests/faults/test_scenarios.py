"""Thousands of calls against a server with failures, kills and costs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import OverBudget, WorkerUnreachable
from ops.core.problem import Problem
from ops.spending.ledger import Ledger
from ops.workers.client import WorkerClient
from tests.faults import precache_run
from tests.faults.processes import Process
from tests.faults.remote import PRICE, FaultServer
from tests.faults.server import COMPLETION_TOKENS, FAULTS, PROMPT_TOKENS

MakeClient = Callable[..., WorkerClient]
PER_CALL = (PROMPT_TOKENS * PRICE["input"] + COMPLETION_TOKENS * PRICE["output"]) / 1e6


async def ask_all(client: WorkerClient, worker: Worker, prompts: list[str]) -> list[Any]:
    """Make all calls at once and return their results. Fails if a task is left behind."""
    before = asyncio.all_tasks()
    calls = (client.complete(worker, [{"role": "user", "content": prompt}]) for prompt in prompts)
    results = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0.2)
    assert [task for task in asyncio.all_tasks() - before if "LoggingWorker" not in repr(task)] == []
    return results


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.soak)])
def test_calls_at_a_20_percent_fault_rate(server: FaultServer, make_client: MakeClient, count: int) -> None:
    client = make_client()
    worker = server.worker(concurrency=32, requests_per_minute=6000, timeout_s=8.0, retries=8)
    prompts = [f"question {number}" for number in range(count)]
    asyncio.run(client.complete(worker, [{"role": "user", "content": "the key is right"}]))
    server.order(rate=0.2, seed=14, latency_s=0.02)
    results = asyncio.run(ask_all(client, worker, prompts))
    answered = [result for result in results if not isinstance(result, BaseException)]
    unreachable = [result for result in results if isinstance(result, WorkerUnreachable)]
    kinds = {type(result).__name__ for result in results if isinstance(result, BaseException)}
    assert len(answered) + len(unreachable) == count, kinds
    served = server.served()
    assert {prompt for prompt in prompts if served[prompt] > 1} == set()
    assert sum(served[prompt] for prompt in prompts) == len(answered) >= 0.995 * count
    steps = [entry["step"] for entry in server.log() if entry["event"] == "came"]
    assert set(FAULTS) < set(steps) and 0.15 * count < sum(step in FAULTS for step in steps) < 0.35 * count
    assert server.order()["busy"] <= steps.count("hang") + steps.count("trickle")
    assert (len(client.cache), client.ledger.in_flight("run")) == (len(answered) + 1, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_repeated_kills_pay_for_each_answer_once(server: FaultServer, tmp_path: Path, kills: int) -> None:
    server.order(latency_s=0.1)
    problems = [
        Problem(f"rlpr-{number:03}", "rlpr", "rlpr", "train", f"Number {number}: what is 2+2?", "4", "text")
        for number in range(40 * (kills + 1))
    ]
    # A call that a busy machine delays beyond its time-out is sent again: here only a kill may repeat one.
    worker = server.worker(concurrency=8, timeout_s=30.0)
    order, chance = precache_run.Order(tmp_path, worker, problems), random.Random(7)

    def served() -> int:
        return sum(server.served().values())

    def started() -> Process:
        process = Process(precache_run.live, order)
        process.wait_until_ready()
        process.begin()
        return process

    for _ in range(kills):
        goal, process = served() + chance.randint(5, 15), started()
        while served() < goal:
            time.sleep(0.01)
        assert process.kill(), "it had ended before"
        time.sleep(0.3)  # the pending reply of the server to an ended process
    assert started().outcome() == len(problems)
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
    cap = 80.5 * PER_CALL
    results = asyncio.run(ask_all(make_client(cap_usd=cap), worker, prompts))
    refused = [result for result in results if isinstance(result, OverBudget)]
    answered = [result for result in results if not isinstance(result, BaseException)]
    assert len(answered) + len(refused) == 200 and refused
    spent = sum(server.served().values()) * PER_CALL
    assert spent <= cap
    assert Ledger(tmp_path / "ledger.sqlite").spent("run") == pytest.approx(spent)
    assert spent >= cap - 12 * PER_CALL  # the rest is less than one more call's worst case

    before = server.served()
    more = make_client(cap_usd=1.0)
    results = asyncio.run(ask_all(more, worker, prompts))
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert (more.counts.cached, more.counts.live) == (len(answered), len(refused))
    assert set(server.served().values()) == {1} and len(server.served()) == 200
    assert sum(before.values()) == len(answered)


def test_cancelled_work_leaves_nothing_behind(server: FaultServer, make_client: MakeClient) -> None:
    client, worker = make_client(), server.worker(concurrency=4, timeout_s=60)

    async def cancel() -> None:
        await client.complete(worker, [{"role": "user", "content": "first"}])
        server.order(latency_s=30.0)
        before = asyncio.all_tasks()
        calls = [
            asyncio.create_task(client.complete(worker, [{"role": "user", "content": f"question {number}"}]))
            for number in range(12)
        ]
        for _ in range(500):  # four are at the server, the others wait for their place
            if server.order()["busy"] == 4:
                break
            await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*calls, return_exceptions=True))
        await asyncio.sleep(0.1)
        assert [task for task in asyncio.all_tasks() - before if "LoggingWorker" not in repr(task)] == []
        assert client.ledger.in_flight("run") == 0
        server.order(latency_s=0.0)
        again = await asyncio.wait_for(client.complete(worker, [{"role": "user", "content": "question 3"}]), 30)
        assert again.text

    asyncio.run(cancel())
