"""Run asynchronous work that a signal ends as a whole, and collect garbage more rarely meanwhile."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

GC_THRESHOLDS = (20_000, 20, 20)
"""Values of `gc.set_threshold` in `collect_garbage_rarely`. With Python's own (700, 10, 10) the collector takes much of
the time of calls by LiteLLM, which makes many objects; `make bench` measures these calls."""


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Collect cyclic garbage more rarely inside the block, in all threads of this process.

    Most objects of a call are freed without the collector. Thresholds that are already higher stay.
    """
    before = gc.get_threshold()
    gc.set_threshold(*map(max, before, GC_THRESHOLDS))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` as `asyncio.run` does. The first SIGINT or SIGTERM cancels all of it, then its handler is called.

    A handler that raises, as Dagster's does, raises in the code that runs: in a task, it would end only that task,
    and the calls of the others would go on. A second signal goes to its handler at once. Raises what `work` and the
    handler raise; `KeyboardInterrupt` if the handler returns.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # noqa: TID251
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number, handler in known.items() if callable(handler)
    }
    received: list[int] = []

    try:
        with collect_garbage_rarely(), asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)

            def end(number: int, frame: FrameType | None) -> None:
                received.append(number)
                if len(received) > 1:
                    handlers[number](number, frame)
                loop.call_soon_threadsafe(task.cancel)

            for number in handlers:
                signal.signal(number, end)
            return loop.run_until_complete(task)
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[received[0]](received[0], None)
    raise KeyboardInterrupt
