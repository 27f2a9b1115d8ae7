"""The slots and times of a machine: real files and locks, and two holders without a common state."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from ops.config import Worker
from ops.workers.limits import Limits
from ops.workers.machine import MachineLimits, machine_limits


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
    worker = Worker(name="a", model="openai/m", concurrency=1)
    changes = ({}, {"name": "b"}, {"model": "openai/n"}, {"api_base": "http://x/v1"})
    places = [machine_limits(tmp_path, worker.model_copy(update=change)) for change in changes]
    assert [free(place, 1) for place in places] == [0, 0, 0, 0]
    assert free(machine_limits(tmp_path, worker.model_copy(update={"temperature": 0.9})), 1) is None


def test_429s_narrow_a_process_as_before(tmp_path: Path) -> None:
    limits = Limits(Worker(name="w", model="openai/m", concurrency=32), machine=MachineLimits(tmp_path))
    for _ in range(4):
        limits.crowded(time.monotonic(), None, 0.5)
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
