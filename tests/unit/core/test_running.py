"""A signal ends all asynchronous work, not only the task that happens to run."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest

from ops.core.async_run import GC_THRESHOLDS, collect_garbage_rarely, run_async


class Interrupted(BaseException):
    """Like Dagster's: neither an `Exception` nor a `KeyboardInterrupt`."""


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = signal.signal(request.param, handler)
    yield request.param
    assert signal.getsignal(request.param) is handler
    signal.signal(request.param, before)


async def many(ended: list[str], number: signal.Signals | None = None, *, again: bool = False) -> int:
    """Three tasks, of which the first is signalled while it runs; all others must end without having slept."""

    async def one(name: str) -> None:
        try:
            if name == "0" and number is not None:
                os.kill(os.getpid(), number)
                if again:
                    os.kill(os.getpid(), number)
            await asyncio.sleep(100 if number is not None else 0)
        except asyncio.CancelledError:
            ended.append(name)
            raise

    results = await asyncio.gather(*map(one, "012"), return_exceptions=True)
    return len(results)


def test_work_without_a_signal_returns_its_result_and_raises_its_error(number: signal.Signals) -> None:
    async def wrong() -> None:
        raise ValueError("wrong")

    assert run_async(many([])) == 3
    with pytest.raises(ValueError, match="wrong"):
        run_async(wrong())


def test_a_signal_in_one_task_cancels_all_and_raises_what_its_handler_raises(number: signal.Signals) -> None:
    ended: list[str] = []
    with pytest.raises(Interrupted):
        run_async(many(ended, number))
    assert sorted(ended) == ["0", "1", "2"]


def test_a_second_signal_goes_to_its_handler_at_once(number: signal.Signals) -> None:
    with pytest.raises(Interrupted):
        run_async(many([], number, again=True))


def test_a_handler_that_returns_ends_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.signal(number, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        run_async(many([], number))
    signal.signal(number, before)


def test_outside_the_main_thread_no_handler_is_set() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: run_async(many([]))).result(30) == 3


def test_garbage_is_collected_more_rarely_while_calls_are_made() -> None:
    before = gc.get_threshold()

    async def seen(raises: bool = False) -> tuple[int, int, int]:
        if raises:
            raise ValueError
        return gc.get_threshold()

    assert run_async(seen()) == GC_THRESHOLDS
    with pytest.raises(ValueError):
        run_async(seen(raises=True))
    assert gc.get_threshold() == before


def test_a_higher_threshold_of_the_process_stays() -> None:
    before = gc.get_threshold()
    gc.set_threshold(50_000, 5, 50)
    try:
        with collect_garbage_rarely():
            assert gc.get_threshold() == (50_000, GC_THRESHOLDS[1], 50)
        assert gc.get_threshold() == (50_000, 5, 50)
    finally:
        gc.set_threshold(*before)
