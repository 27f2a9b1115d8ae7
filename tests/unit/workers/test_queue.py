"""A worker's queue: its order, its limits and its circuit breaker, with a test clock if time matters; the slots and
times of a machine, with real files and locks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Worker
from ops.core.errors import WorkerUnreachable
from ops.workers.breaker import CircuitBreaker
from ops.workers.machine_limits import MachineLimits, open_machine_limits
from ops.workers.queue import QueuePlace, RatePacer, WorkerQueue
from ops.workers.scheduling import CallDurations, Turn
from tests.unit.workers.conftest import ASK


def limited(**settings: Any) -> Worker:
    return Worker.model_validate({"name": "w", "model": "openai/m", "price": {"input": 1, "output": 2}} | settings)


PLACE = QueuePlace(0.0, None, 0.0)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def crowd(queue: WorkerQueue, times: int, sent_at: float, retry_after_s: float | None = None) -> None:
    for _ in range(times):
        queue.record_rate_limit(sent_at, retry_after_s, 0.5)


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
    start, following = pace.take(following + pace.delay_s(-8), 1, 0.0)
    assert start == 2.0
    assert pace.take(following + pace.delay_s(5), 1, 0.0)[0] == 8.0


def test_many_429s_halve_the_calls_in_flight_once_and_successes_bring_them_back() -> None:
    clock = Clock()
    queue = WorkerQueue(limited(concurrency=32), clock=clock)
    crowd(queue, 4, sent_at=99.0)
    assert queue.max_in_flight == 16
    crowd(queue, 28, sent_at=99.0)  # all were sent before the limit was halved
    assert queue.max_in_flight == 16
    clock.now = 101.0
    crowd(queue, 4, sent_at=100.5)
    assert queue.max_in_flight == 8
    seen = []

    async def succeed() -> None:
        for _ in range(900):
            queue.record_answer(PLACE, 5)
            seen.append(queue.max_in_flight)

    asyncio.run(succeed())
    assert seen == sorted(seen) and seen[0] == 8 and seen[100] < 32 and seen[-1] == 32


def test_a_stray_429_halves_nothing() -> None:
    queue = WorkerQueue(limited(concurrency=64))

    async def night() -> None:
        for number in range(500):
            if number % 20 == 0:
                queue.record_rate_limit(time.monotonic(), None, 0.01)
            queue.record_answer(PLACE, 5)

    asyncio.run(night())
    assert queue.max_in_flight == 64


def test_concurrency_never_falls_below_one_call() -> None:
    clock = Clock()
    queue = WorkerQueue(limited(concurrency=4), clock=clock)
    for _ in range(10):
        clock.now += 1
        crowd(queue, 4, sent_at=clock.now)
    assert queue.max_in_flight == 1


def test_tokens_per_minute_are_estimated_before_and_corrected_after() -> None:
    queue = WorkerQueue(limited(tokens_per_minute=6000, max_tokens=1000, concurrency=1))

    async def calls() -> list[float]:
        starts = []
        for _ in range(4):
            taken = await queue.enter("call", prompt_chars=40)
            starts.append(time.monotonic())
            queue.record_answer(taken, 10)
            queue.leave(taken, used=20)
        return starts

    starts = asyncio.run(calls())
    # 20 tokens at 100 per second take 0.2 s; the estimate of a first call, 1,010 tokens, would have taken ten.
    assert 3 * 0.15 < starts[-1] - starts[0] < 4


def test_places_are_kept_over_threads_and_loops() -> None:
    queue = WorkerQueue(limited(concurrency=3))
    busy = most = 0
    lock = threading.Lock()

    async def call() -> None:
        nonlocal busy, most
        taken = await queue.enter("call", 4)
        with lock:
            busy += 1
            most = max(most, busy)
        await asyncio.sleep(0.005)
        with lock:
            busy -= 1
        queue.leave(taken, 1)

    async def many() -> None:
        await asyncio.gather(*(call() for _ in range(40)))

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (busy, most) == (0, 3)


# ── order ────────────────────────────────────────────────────────────────────


async def hold(queue: WorkerQueue, gate: asyncio.Event) -> None:
    """Hold a place until the gate opens."""
    place = await queue.enter("holder", 0)
    await gate.wait()
    queue.leave(place, 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_call_with_the_most_remaining_work_goes_first_and_equals_keep_their_order(
    remaining: list[int], limit: int
) -> None:
    async def scenario() -> list[int]:
        queue, order, gate = WorkerQueue(limited(concurrency=limit)), [], asyncio.Event()

        async def call(number: int) -> None:
            place = await queue.enter(number, 0, Turn(lambda _: float(remaining[number])))
            order.append(number)
            queue.leave(place, 0)

        holders = [asyncio.create_task(hold(queue, gate)) for _ in range(limit)]
        await asyncio.sleep(0)
        callers = [asyncio.create_task(call(number)) for number in range(len(remaining))]
        await asyncio.sleep(0)
        assert queue.waiting_calls == len(remaining)
        gate.set()
        await asyncio.gather(*holders, *callers)
        return order

    assert asyncio.run(scenario()) == sorted(range(len(remaining)), key=lambda n: (-remaining[n], n))


def test_a_call_that_is_made_again_goes_first() -> None:
    queue = WorkerQueue(limited(concurrency=1))
    order: list[str] = []

    async def call(name: str, again: bool, remaining_s: float) -> None:
        taken = await queue.enter(name, 4, Turn(lambda _: remaining_s), is_retry=again)
        order.append(name)
        await asyncio.sleep(0)
        queue.leave(taken, 1)

    async def ask() -> None:
        calls = [("first", False, 1.0), ("short", False, 1.0), ("long", False, 9.0), ("second time", True, 1.0)]
        await asyncio.gather(*(call(*arguments) for arguments in calls))

    asyncio.run(ask())
    assert order == ["first", "second time", "long", "short"]


def test_a_surprising_speed_sorts_the_waiting_calls_again() -> None:
    """The second call is followed by one of a worker that turns out to be slow."""
    slow, durations = limited(name="slow"), CallDurations()
    queue, order = WorkerQueue(limited(concurrency=1), durations=durations), list[str]()

    async def call(name: str, turn: Turn) -> None:
        taken = await queue.enter(name, 4, turn)
        order.append(name)
        await asyncio.sleep(0)
        queue.leave(taken, 1)

    async def ask() -> None:
        calls = [asyncio.create_task(call("first", Turn())), asyncio.create_task(call("2 s", Turn(lambda _: 2.0)))]
        calls.append(asyncio.create_task(call("slow", Turn(lambda known: known.expected_s(slow)))))
        await asyncio.sleep(0)
        durations.record(slow, 60.0)
        await asyncio.gather(*calls)

    asyncio.run(ask())
    assert order == ["first", "slow", "2 s"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=40), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_places_survive_cancellation_and_errors(calls: list[tuple[int, int, bool]], limit: int) -> None:
    async def scenario() -> int:
        queue, running, most = WorkerQueue(limited(concurrency=limit)), 0, 0

        async def call(urgency: int, pauses: int, breaks: bool) -> None:
            nonlocal running, most
            place = await queue.enter("call", 0, Turn(lambda _: urgency))
            running += 1
            most = max(most, running)
            try:
                for _ in range(pauses):
                    await asyncio.sleep(0)
                if breaks:
                    raise ValueError("broken")
            finally:
                running -= 1
                queue.leave(place, 0)

        tasks = [asyncio.create_task(call(*arguments)) for arguments in calls]
        for task in tasks[::3]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert queue.waiting_calls == 0
        for _ in range(limit):  # every place is free again; otherwise this would wait forever
            await asyncio.wait_for(queue.enter("call", 0), 5)
        return most

    assert asyncio.run(scenario()) <= limit


def test_a_workers_speed_is_learnt_unless_it_is_declared() -> None:
    declared, learnt, durations = limited(latency_s=2.5), limited(name="b"), CallDurations()
    clock = Clock()
    for tool in (declared, learnt):
        queue = WorkerQueue(tool, durations=durations, clock=clock)
        place = asyncio.run(queue.enter("call", 0))
        clock.now += 0.5
        queue.record_answer(place, 5)
    assert (durations.expected_s(declared), durations.expected_s(learnt)) == (2.5, 0.5)


# ── limits and the circuit ───────────────────────────────────────────────────


def test_cancelled_waits_give_their_places_back() -> None:
    queue = WorkerQueue(limited(concurrency=2, requests_per_minute=60))

    async def race() -> list[float]:
        first = await queue.enter("call", 4)
        waiting = [asyncio.create_task(queue.enter("call", 4)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        queue.leave(first, 1)
        # Both slots are free, and the cancelled calls' share of the rate was returned.
        return [await asyncio.wait_for(queue.enter("call", 4), 10) for _ in range(2)]

    assert len(asyncio.run(race())) == 2


def test_the_circuit_opens_probes_and_closes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(3, 30.0, clock)
    for call in range(3):
        assert breaker.seconds_to_wait(call) == 0
        breaker.record_failure(call, "Timeout")
    assert breaker.seconds_to_wait("a") == 30
    clock.now += 31
    assert breaker.seconds_to_wait("a") == 0 and breaker.is_probe("a")
    assert breaker.seconds_to_wait("b") > 0
    breaker.record_no_result("a")  # cancelled, so the next call is the probe
    assert breaker.seconds_to_wait("b") == 0
    breaker.record_failure("b", "Timeout")
    assert breaker.seconds_to_wait("c") == 30
    clock.now += 31
    assert breaker.seconds_to_wait("c") == 0
    breaker.record_success()
    assert breaker.seconds_to_wait("d") == breaker.seconds_to_wait("e") == 0


def test_a_success_between_failures_keeps_the_circuit_closed() -> None:
    breaker = CircuitBreaker(2, 30.0)
    for call in range(5):
        breaker.record_failure(call, "Timeout")
        assert breaker.seconds_to_wait("x") == 0
        breaker.record_success()


def test_a_worker_that_is_down_is_not_called_until_it_is_back(loopback: Any, client: Any) -> None:
    down = loopback.worker(retries=1, breaker_failures=3, breaker_rest_s=30.0, concurrency=1, timeout_s=60)
    clock = client._find_handle(down).queue.breaker._clock = Clock()
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
    assert client.ledger.count_in_flight("run") == 0


# ── a machine ────────────────────────────────────────────────────────────────


def free(limits: MachineLimits, slots: int) -> int | None:
    """Return a slot if one is free now."""

    async def take() -> int | None:
        try:
            return await asyncio.wait_for(limits.take_slot(slots), 0.3)
        except TimeoutError:
            return None

    return asyncio.run(take())


def test_two_holders_have_the_slots_once_and_a_cancelled_wait_leaves_nothing(tmp_path: Path) -> None:
    holder, other = MachineLimits(tmp_path), MachineLimits(tmp_path)
    mine = [free(holder, 2), free(holder, 2)]
    assert set(mine) == {0, 1}
    assert free(other, 2) is None
    assert free(holder, 2) is None
    holder.release_slot(1)
    assert free(other, 2) == 1
    other.release_slot(1)
    assert free(holder, 2) == 1


def test_times_are_one_for_all_and_a_clock_that_was_set_back_stops_no_call(tmp_path: Path) -> None:
    holder, other = MachineLimits(tmp_path), MachineLimits(tmp_path)
    soon = holder.now() + 60
    with holder.locked_times() as times:
        times.requests, times.tokens, times.not_before = soon, soon, holder.now() + 86_400
    assert (other.known_times().requests, other.known_times().not_before) == (soon, 0.0)
    with pytest.raises(RuntimeError), other.locked_times() as times:
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
        limits.release_slot(0)
        assert free(MachineLimits(tmp_path), 1) == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_workers_of_another_name_model_or_endpoint_share_nothing(tmp_path: Path) -> None:
    worker = limited(concurrency=1)
    changes = ({}, {"name": "b"}, {"model": "openai/n"}, {"api_base": "http://x/v1"})
    places = [open_machine_limits(tmp_path, worker.model_copy(update=change)) for change in changes]
    assert [free(place, 1) for place in places] == [0, 0, 0, 0]
    assert free(open_machine_limits(tmp_path, worker.model_copy(update={"temperature": 0.9})), 1) is None


def test_429s_narrow_a_process_as_before(tmp_path: Path) -> None:
    queue = WorkerQueue(limited(concurrency=32), shared=MachineLimits(tmp_path))
    crowd(queue, 4, sent_at=time.monotonic())
    assert queue.max_in_flight == 16

    async def enter() -> int:
        tasks = [asyncio.create_task(queue.enter("call", 4)) for _ in range(32)]
        done, waiting = await asyncio.wait(tasks, timeout=1.0)
        for task in waiting:
            task.cancel()
        for task in done:
            queue.leave(task.result(), 1)
        return len(done)

    assert asyncio.run(enter()) == 16
