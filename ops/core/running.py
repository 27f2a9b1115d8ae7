"""`run_async`: asynchronous work that a signal ends as a whole."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


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

    async def watched() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            if len(received) > 1:
                handlers[number](number, frame)
            loop.call_soon_threadsafe(task.cancel)

        for number in handlers:
            signal.signal(number, end)
        return await work

    try:
        return asyncio.run(watched())  # noqa: TID251
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[received[0]](received[0], None)
    raise KeyboardInterrupt
