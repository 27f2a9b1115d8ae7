"""A worker's limits and its circuit breaker, with a test clock if time matters; the slots and times of a machine, with
real files and locks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import WorkerUnreachable
from ops.workers.limits import Limits, RatePacer
from ops.workers.machine import MachineLimits, machine_limits
from ops.workers.worker_handle import Breaker
from tests.unit.workers.conftest import ASK


def limited(**settings: Any) -> Worker:
    return Worker.model_validate({"name": "w", "model": "openai/m", "price": {"input": 1, "output": 2}} | settings)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def crowd(limits: Limits, times: int, sent_at: float, retry_after_s: float | None = None) -> None:
    for _ in range(times):
        limits.crowded(sent_at, retry_after_s, 0.5)


def test_a_pace_never_exceeds_its_limit_in_any_minute() -> None:
    pace, now, following, starts = RatePacer(600), 0.0, 0.0, []
    for _ in range(1500):
        now, following = pace.take(following, 1, now)
        starts.append(now)
    for first in range(0, 900, 7):
        assert sum(starts[first] <= start < starts[first] + 60 for start in starts[first:]) <= 601


def test_a_pace_is_corrected_by_a_calls_real_usage() -> None:
    pace = RatePacer(60)
    start, following = pace.take(0.0, 10, 0.0)
    assert start == 0.0
    start, following = pace.take(following + pace.seconds(-8), 1, 0.0)
    assert start == 2.0
    assert pace.take(following + pace.seconds(5), 1, 0.0)[0] == 8.0


def test_many_429s_halve_the_calls_in_flight_once_and_successes_bring_them_back() -> None:
    clock = Clock()
    limits = Limits(limited(concurrency=32), clock)
    crowd(limits, 4, sent_at=99.0)
    assert limits.allowed == 16
    crowd(limits, 28, sent_at=99.0)  # all were sent before the limit was halved
    assert limits.allowed == 16
    clock.now = 101.0
    crowd(limits, 4, sent_at=100.5)
    assert limits.allowed == 8
    seen = []

    async def succeed() -> None:
        for _ in range(900):
            limits.answered(5)
            seen.append(limits.allowed)

    asyncio.run(succeed())
    assert seen == sorted(seen) and seen[0] == 8 and seen[100] < 32 and seen[-1] == 32


def test_a_stray_429_halves_nothing() -> None:
    limits = Limits(limited(concurrency=64))

    async def night() -> None:
        for number in range(500):
            if number % 20 == 0:
                limits.crowded(time.monotonic(), None, 0.01)
            limits.answered(5)

    asyncio.run(night())
    assert limits.allowed == 64


def test_concurrency_never_falls_below_one_call() -> None:
    clock = Clock()
    limits = Limits(limited(concurrency=4), clock)
    for _ in range(10):
        clock.now += 1
        crowd(limits, 4, sent_at=clock.now)
    assert limits.allowed == 1


def test_tokens_per_minute_are_estimated_before_and_corrected_after() -> None:
    limits = Limits(limited(tokens_per_minute=6000, max_tokens=1000, concurrency=1))

    async def calls() -> list[float]:
        starts = []
        for _ in range(4):
            taken = await limits.enter(prompt_chars=40)
            starts.append(time.monotonic())
            limits.answered(10)
            limits.leave(taken, used=20)
        return starts

    starts = asyncio.run(calls())
    # 20 tokens at 100 per second take 0.2 s; the estimate of a first call, 1,010 tokens, would have taken ten.
    assert 3 * 0.15 < starts[-1] - starts[0] < 4


def test_places_are_kept_over_threads_and_loops() -> None:
    limits = Limits(limited(concurrency=3))
    busy = most = 0
    lock = threading.Lock()

    async def call() -> None:
        nonlocal busy, most
        taken = await limits.enter(4)
        with lock:
            busy += 1
            most = max(most, busy)
        await asyncio.sleep(0.005)
        with lock:
            busy -= 1
        limits.leave(taken, 1)

    async def many() -> None:
        await asyncio.gather(*(call() for _ in range(40)))

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (busy, most) == (0, 3)


def test_a_call_that_is_made_again_goes_first() -> None:
    limits = Limits(limited(concurrency=1))
    order: list[str] = []

    async def call(name: str, again: bool) -> None:
        taken = await limits.enter(4, again=again)
        order.append(name)
        await asyncio.sleep(0)
        limits.leave(taken, 1)

    async def queue() -> None:
        names = [("first", False), ("second", False), ("third", False), ("second time", True)]
        await asyncio.gather(*(call(*arguments) for arguments in names))

    asyncio.run(queue())
    assert order == ["first", "second time", "second", "third"]


def test_cancelled_waits_give_their_places_back() -> None:
    limits = Limits(limited(concurrency=2, requests_per_minute=60))

    async def race() -> list[float]:
        first = await limits.enter(4)
        waiting = [asyncio.create_task(limits.enter(4)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        limits.leave(first, 1)
        # Both slots are free, and the cancelled calls' share of the rate was returned.
        return [await asyncio.wait_for(limits.enter(4), 10) for _ in range(2)]

    assert len(asyncio.run(race())) == 2


def test_the_circuit_opens_probes_and_closes() -> None:
    clock = Clock()
    breaker = Breaker(3, 30.0, clock)
    for call in range(3):
        assert breaker.rest_s(call) == 0
        breaker.failed(call, "Timeout")
    assert breaker.rest_s("a") == 30
    clock.now += 31
    assert breaker.rest_s("a") == 0 and breaker.is_probe("a")
    assert breaker.rest_s("b") > 0
    breaker.left("a")  # cancelled, so the next call is the probe
    assert breaker.rest_s("b") == 0
    breaker.failed("b", "Timeout")
    assert breaker.rest_s("c") == 30
    clock.now += 31
    assert breaker.rest_s("c") == 0
    breaker.succeeded()
    assert breaker.rest_s("d") == breaker.rest_s("e") == 0


def test_a_success_between_failures_keeps_the_circuit_closed() -> None:
    breaker = Breaker(2, 30.0)
    for call in range(5):
        breaker.failed(call, "Timeout")
        assert breaker.rest_s("x") == 0
        breaker.succeeded()


def test_a_worker_that_is_down_is_not_called_until_it_is_back(loopback: Any, client: Any) -> None:
    down = loopback.worker(retries=1, breaker_failures=3, breaker_rest_s=30.0, concurrency=1, timeout_s=60)
    clock = client._seat(down).breaker._clock = Clock()
    loopback.plan.extend(["500"] * 6)

    async def ask(sample: int) -> Any:
        return await client.complete(down, ASK, sample=sample)

    async def night() -> None:
        for sample in range(3):
            with pytest.raises(WorkerUnreachable, match="after 2 attempts"):
                await ask(sample)
        paused = r"is paused: 3 calls or more .* at last InternalServerError 500"
        for sample in range(3, 100):
            with pytest.raises(WorkerUnreachable, match=paused):
                await ask(sample)
        assert len(loopback.requests) == 6
        assert client.counts.retries == 3
        clock.now += 31
        loopback.plan.append("500")
        with pytest.raises(WorkerUnreachable, match="after 1 attempt,"):  # the probe has one attempt
            await ask(100)
        with pytest.raises(WorkerUnreachable, match="is paused"):
            await ask(101)
        clock.now += 31
        assert (await ask(102)).text and (await ask(103)).text

    asyncio.run(night())
    assert len(loopback.requests) == 9
    assert client.ledger.in_flight("run") == 0


# ── a machine ────────────────────────────────────────────────────────────────


def free(limits: MachineLimits, slots: int) -> int | None:
    """Return a slot if one is free now."""

    async def take() -> int | None:
        try:
            return await asyncio.wait_for(limits.take(slots), 0.3)
        except TimeoutError:
            return None

    return asyncio.run(take())


def test_two_holders_have_the_slots_once_and_a_cancelled_wait_leaves_nothing(tmp_path: Path) -> None:
    holder, other = MachineLimits(tmp_path), MachineLimits(tmp_path)
    mine = [free(holder, 2), free(holder, 2)]
    assert set(mine) == {0, 1}
    assert free(other, 2) is None
    assert free(holder, 2) is None
    holder.give(1)
    assert free(other, 2) == 1
    other.give(1)
    assert free(holder, 2) == 1


def test_times_are_one_for_all_and_a_clock_that_was_set_back_stops_no_call(tmp_path: Path) -> None:
    holder, other = MachineLimits(tmp_path), MachineLimits(tmp_path)
    soon = holder.now() + 60
    with holder.times() as times:
        times.requests, times.tokens, times.not_before = soon, soon, holder.now() + 86_400
    assert (other.known_times().requests, other.known_times().not_before) == (soon, 0.0)
    with pytest.raises(RuntimeError), other.times() as times:
        times.requests = 1.0
        raise RuntimeError
    assert holder.known_times().requests == soon


@pytest.mark.parametrize("asks", [True, False])
def test_a_forked_child_shares_nothing_with_its_parent(tmp_path: Path, asks: bool) -> None:
    """This holds for a child that requests a slot, and for a child that only inherited the open files."""
    limits = MachineLimits(tmp_path)
    assert free(limits, 1) == 0
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"free" if asks and free(limits, 1) is not None else b"taken")
        time.sleep(30)
        os._exit(0)
    try:
        assert os.read(read, 9) == b"taken"
        limits.give(0)
        assert free(MachineLimits(tmp_path), 1) == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_workers_of_another_name_model_or_endpoint_share_nothing(tmp_path: Path) -> None:
    worker = limited(concurrency=1)
    changes = ({}, {"name": "b"}, {"model": "openai/n"}, {"api_base": "http://x/v1"})
    places = [machine_limits(tmp_path, worker.model_copy(update=change)) for change in changes]
    assert [free(place, 1) for place in places] == [0, 0, 0, 0]
    assert free(machine_limits(tmp_path, worker.model_copy(update={"temperature": 0.9})), 1) is None


def test_429s_narrow_a_process_as_before(tmp_path: Path) -> None:
    limits = Limits(limited(concurrency=32), machine=MachineLimits(tmp_path))
    crowd(limits, 4, sent_at=time.monotonic())
    assert limits.allowed == 16

    async def enter() -> int:
        tasks = [asyncio.create_task(limits.enter(4)) for _ in range(32)]
        done, waiting = await asyncio.wait(tasks, timeout=1.0)
        for task in waiting:
            task.cancel()
        for task in done:
            limits.leave(task.result(), 1)
        return len(done)

    assert asyncio.run(enter()) == 16
