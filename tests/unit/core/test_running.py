"""A signal ends all asynchronous work, not only the task that happens to run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from ops.core.running import run_async


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
    made: list[int] = []
    thread = threading.Thread(target=lambda: made.append(run_async(many([]))))
    thread.start()
    thread.join(30)
    assert made == [3]
