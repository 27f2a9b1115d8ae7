"""Generate workflows in micro-batches: prompts that arrive during a generation form the next batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from ops.conductor.policy import Completion
from ops.core.errors import PodiumError
from ops.core.messages import Message
from ops.workflow.prompt import PromptTooLongError

ALLOWED_CHARACTERS = 65_536
"""A batch may always have this many characters, where each prompt counts as long as the longest one."""
MAX_CHARACTERS = 2_000_000
"""A batch of several prompts never has more characters than this, counted in the same way."""
MAX_CACHED_COMPLETIONS = 4096
"""How many greedy completions are kept; the least recently used ones are dropped."""


class CompletionWriter(Protocol):
    """Anything that writes completions: `ops.conductor.policy.Conductor`, or a fixed text in a test."""

    @property
    def prompt_limit(self) -> int | None:
        """The maximum number of tokens in a prompt; None if it is unknown."""
        ...

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = ..., seed: int = ...
    ) -> list[Completion]:
        """Return one completion per prompt, in their order."""
        ...

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """Return whether the prompt is within `prompt_limit`; safe to call from any thread."""
        ...

    def close(self) -> None:
        """Release the resources of the writer."""
        ...


class BatchedCompletion(NamedTuple):
    """A completion, and the start of its batch in seconds since the epoch."""

    completion: Completion
    started: float


class _Sampling(NamedTuple):
    temperature: float
    seed: int


class _Prompt(NamedTuple):
    messages: Sequence[Message]
    characters: int
    sampling: _Sampling
    future: asyncio.Future[BatchedCompletion]


class BatchWriter:
    """Shares one writer among the tasks of an event loop.

    A prompt is processed at once if the writer is idle. Prompts that arrive meanwhile form the next batch. It has at
    most `batch` prompts, all with the same sampling settings, and only as many as can be padded to the longest without
    doubling the work. `lanes` is the number of batches in flight; a server accepts more than one. `on_batch` receives
    the size of each batch. A greedy completion depends on its prompt only, so the last `max_cached` of them are kept
    and not generated again.
    """

    def __init__(
        self, writer: CompletionWriter, batch: int, *,
        lanes: int = 1, max_cached: int = MAX_CACHED_COMPLETIONS, on_batch: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        self._writer, self._batch, self._lanes, self._on_batch = writer, batch, lanes, on_batch
        self._waiting: deque[_Prompt] = deque()
        self._threads = ThreadPoolExecutor(lanes, thread_name_prefix="batch-writer")
        self._tasks: set[asyncio.Task[None]] = set()
        self._greedy: LRUCache[bytes, Completion] = LRUCache(max_cached)
        self._busy = 0
        self._progress = time.monotonic()
        """Time at which the writer last became busy or finished a batch."""

    @property
    def seconds_without_progress(self) -> float:
        """Return how many seconds ago the busy writer last finished a batch; 0 if it is idle."""
        return time.monotonic() - self._progress if self._busy else 0.0

    async def write(self, messages: Sequence[Message], *, temperature: float = 0.0, seed: int = 0) -> BatchedCompletion:
        """Return a completion of the prompt. Raises the writer's error for this prompt."""
        if temperature == 0 and (known := self._greedy.get(_hash_messages(messages))) is not None:
            return BatchedCompletion(known, time.time())
        loop = asyncio.get_running_loop()
        characters = sum(len(message["content"]) for message in messages)
        prompt = _Prompt(messages, characters, _Sampling(temperature, seed), loop.create_future())
        self._waiting.append(prompt)
        if self._busy < self._lanes:
            if self._busy == 0:
                self._progress = time.monotonic()
            self._busy += 1
            task = loop.create_task(self._write_batches())
            self._tasks.add(task)  # the event loop itself holds only weak references to tasks
            task.add_done_callback(self._tasks.discard)
        return await prompt.future

    def close(self) -> None:
        """End the threads after the batch in flight."""
        self._threads.shutdown(wait=False)

    async def _write_batches(self) -> None:
        try:
            while batch := self._next_batch():
                if self._on_batch is not None:
                    self._on_batch(len(batch))
                began = time.time()
                results = await asyncio.get_running_loop().run_in_executor(self._threads, self._complete_batch, batch)
                self._progress = time.monotonic()
                for prompt, result in zip(batch, results, strict=True):
                    if prompt.sampling.temperature == 0 and isinstance(result, Completion):
                        self._greedy[_hash_messages(prompt.messages)] = result
                    if prompt.future.done():  # its request was cancelled
                        continue
                    if isinstance(result, Exception):
                        prompt.future.set_exception(result)
                    else:
                        prompt.future.set_result(BatchedCompletion(result, began))
        finally:
            self._busy -= 1  # there was no `await` since the queue was empty, so the next prompt starts another task

    def _next_batch(self) -> list[_Prompt]:
        """Take the next batch from the queue, and drop prompts whose requests were cancelled."""
        batch: list[_Prompt] = []
        rest: deque[_Prompt] = deque()
        longest = total = 0
        for prompt in self._waiting:
            if prompt.future.done():
                continue
            padded = max(longest, prompt.characters) * (len(batch) + 1)
            most = min(max(2 * (total + prompt.characters), ALLOWED_CHARACTERS), MAX_CHARACTERS)
            if not batch or (len(batch) < self._batch and prompt.sampling == batch[0].sampling and padded <= most):
                batch.append(prompt)
                longest, total = max(longest, prompt.characters), total + prompt.characters
            else:
                rest.append(prompt)
        self._waiting = rest
        return batch

    def _complete_batch(self, batch: Sequence[_Prompt]) -> list[Completion | Exception]:
        """Return each prompt's completion, or its error.

        A failed batch is halved until the prompts that cause the failure are alone, so that one bad prompt fails no
        other. An unreachable writer (`PodiumError`) is not called again.
        """
        prompts = [prompt.messages for prompt in batch]
        try:
            return list(self._writer.complete(prompts, **batch[0].sampling._asdict()))
        except Exception as error:  # noqa: BLE001  (each waiting request gets the error)
            if len(batch) == 1 or (isinstance(error, PodiumError) and not isinstance(error, PromptTooLongError)):
                return [error] * len(batch)
        half = len(batch) // 2
        return self._complete_batch(batch[:half]) + self._complete_batch(batch[half:])


def _hash_messages(messages: Sequence[Message]) -> bytes:
    return hashlib.sha256(json.dumps(messages).encode()).digest()
