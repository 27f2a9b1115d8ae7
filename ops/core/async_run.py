"""Run asynchronous work so that a signal cancels all of it, with less frequent garbage collection."""

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
"""Arguments of `gc.set_threshold` inside `collect_garbage_rarely`.

LiteLLM allocates many objects for each call. With Python's default thresholds (700, 10, 10) the collector takes a large
part of the time of these calls, which `make bench` measures.
"""


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Make the cyclic garbage collector run less often inside the block, in all threads of this process.

    Most objects of a call are freed by reference counting, without the collector. Thresholds that are already higher
    than `GC_THRESHOLDS` are not lowered.
    """
    before = gc.get_threshold()
    gc.set_threshold(*map(max, before, GC_THRESHOLDS))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, as `asyncio.run` does, and return its result.

    The first SIGINT or SIGTERM cancels the coroutine and all tasks that it waits for; afterwards the signal handler
    that was installed before is called. Without this, the exception of a handler that raises (Dagster installs such a
    handler) would end only the task that happens to be running, while the others would go on making paid calls. A
    second signal is passed to that handler at once.

    Raises what `work` or the handler raises, and `KeyboardInterrupt` if the handler returns. In a thread other than the
    main one, which receives no signals, it is the same as `asyncio.run`.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # noqa: TID251
    current_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number, handler in current_handlers.items() if callable(handler)
    }
    received: list[int] = []

    try:
        with collect_garbage_rarely(), asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)

            def cancel_on_signal(number: int, frame: FrameType | None) -> None:
                received.append(number)
                if len(received) > 1:
                    handlers[number](number, frame)
                loop.call_soon_threadsafe(task.cancel)

            for number in handlers:
                signal.signal(number, cancel_on_signal)
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
