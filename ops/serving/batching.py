"""Writing for many questions at once: what arrives while the policy writes is its next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from ops.core.response import Message
from ops.workflow.prompt import PromptTooLongError


class Writer(Protocol):
    """Anything that writes completions: `ops.conductor.policy.Conductor`, or a fixed text in a test."""

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = ..., seed: int = ...) -> list[str]:
        """One completion per prompt, in order."""
        ...


class _Draw(NamedTuple):
    temperature: float
    seed: int


class _Prompt(NamedTuple):
    messages: Sequence[Message]
    draw: _Draw
    completion: asyncio.Future[str]


class BatchWriter:
    """One writer for any number of tasks of one event loop.

    A question that finds the writer idle is written for at once; those that come meanwhile wait and go together, at
    most `batch` of them and only with others that are drawn alike. `lanes`: batches in flight (a server takes more
    than one). `on_batch` is told the size of each.
    """

    def __init__(
        self, writer: Writer, batch: int, *, lanes: int = 1, on_batch: Callable[[int], None] | None = None
    ) -> None:
        self._writer, self._batch, self._lanes, self._on_batch = writer, batch, lanes, on_batch
        self._waiting: deque[_Prompt] = deque()
        self._threads = ThreadPoolExecutor(lanes, thread_name_prefix="batch-writer")
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, messages: Sequence[Message], *, temperature: float = 0.0, seed: int = 0) -> str:
        """One completion. Raises `PromptTooLongError` and what the writer raises."""
        loop = asyncio.get_running_loop()
        prompt = _Prompt(messages, _Draw(temperature, seed), loop.create_future())
        self._waiting.append(prompt)
        if self._busy < self._lanes:
            self._busy += 1
            task = loop.create_task(self._write_on())
            self._tasks.add(task)  # the loop itself holds tasks weakly
            task.add_done_callback(self._tasks.discard)
        return await prompt.completion

    def close(self) -> None:
        """Let the threads end; a batch in flight is written to its end."""
        self._threads.shutdown(wait=False)

    async def _write_on(self) -> None:
        try:
            while batch := self._next():
                await self._write_for(batch)
        finally:
            self._busy -= 1  # in the same breath as nobody was found waiting: whoever comes next starts another

    async def _write_for(self, batch: Sequence[_Prompt]) -> None:
        if self._on_batch is not None:
            self._on_batch(len(batch))
        written = await asyncio.get_running_loop().run_in_executor(self._threads, self._written, batch)
        for prompt, text in zip(batch, written, strict=True):
            if prompt.completion.done():  # its asker has left
                continue
            if isinstance(text, Exception):
                prompt.completion.set_exception(text)
            else:
                prompt.completion.set_result(text)

    def _next(self) -> list[_Prompt]:
        waiting = [prompt for prompt in self._waiting if not prompt.completion.done()]
        batch = [prompt for prompt in waiting if prompt.draw == waiting[0].draw][: self._batch]
        taken = set(map(id, batch))
        self._waiting = deque(prompt for prompt in waiting if id(prompt) not in taken)
        return batch

    def _written(self, batch: Sequence[_Prompt]) -> list[str | Exception]:
        """Each prompt's completion, or why it has none; one that is too long does not spoil the others'."""
        results: dict[int, str | Exception] = {}
        left = list(range(len(batch)))
        while left:
            try:
                texts = self._writer.write([batch[i].messages for i in left], **batch[0].draw._asdict())
            except PromptTooLongError as error:
                results[left.pop(error.index)] = error
            except Exception as error:  # noqa: BLE001  (each of those who wait is told)
                return [results.get(i, error) for i in range(len(batch))]
            else:
                results |= dict(zip(left, texts, strict=True))
                left = []
        return [results[i] for i in range(len(batch))]
