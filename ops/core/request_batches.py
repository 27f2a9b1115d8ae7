"""Combine the requests of one turn of the event loop into batches, because a commit costs about as much as a tool's
call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Batcher(Generic[Item, Result]):
    """Processes the items of all callers in one turn of the event loop with a single call of `work`.

    `work` returns for each item, in order, its result or an exception to raise. An exception that `work` itself raises
    is raised in every caller. With `undo`, an item whose caller was cancelled is left out, or its result is passed to
    `undo` if it was processed already. Without `undo`, it is processed anyway.
    """

    work: Callable[[Sequence[Item]], Sequence[Result | Exception]]
    undo: Callable[[Result], None] | None = None
    _waiting: dict[asyncio.AbstractEventLoop, list[tuple[Item, asyncio.Future[Result]]]] = field(default_factory=dict)

    async def submit(self, item: Item) -> Result:
        """Add an item to the current batch and return its result. Raises the exception that `work` returned for it or
        raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()
        if (waiting := self._waiting.get(loop)) is None:
            self._waiting[loop] = [(item, done)]
            loop.call_soon(self._flush, loop)
        else:
            waiting.append((item, done))
        try:
            return await done
        except asyncio.CancelledError:
            if self.undo is not None and not done.cancelled() and done.exception() is None:
                self.undo(done.result())
            raise

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        entries = self._waiting.pop(loop)
        if self.undo is not None:
            entries = [(item, done) for item, done in entries if not done.cancelled()]
        if not entries:
            return
        results: Sequence[Result | Exception]
        try:
            results = self.work([item for item, _ in entries])
        except Exception as error:  # noqa: BLE001  (every caller receives it)
            results = [error] * len(entries)
        for (_, done), result in zip(entries, results, strict=True):
            if done.cancelled():
                continue
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)
