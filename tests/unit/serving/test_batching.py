"""Micro-batches: prompts that wait together are processed together, and a failing prompt fails no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from ops.conductor.policy import Completion
from ops.core.errors import PodiumError
from ops.core.messages import Message
from ops.serving.batching import BatchWriter
from ops.workflow.prompt import PromptTooLongError
from tests.serving.script import Scripted

pytestmark = pytest.mark.anyio


def chat(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class Echo(Scripted):
    """Returns its prompts, refuses those that begin with "long", and fails at "break" and "away"."""

    def __init__(self) -> None:
        super().__init__("", seconds=0.05)
        self.tries: list[int] = []

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        texts = [prompt[-1]["content"] for prompt in prompts]
        self.tries.append(len(texts))
        for index, text in enumerate(texts):
            if text.startswith("long"):
                raise PromptTooLongError(text, 1000, 10, index=index)
            if text == "break":
                raise RuntimeError("broken")
            if text.startswith("away"):
                raise PodiumError("the server is away")
        super().complete(prompts, temperature=temperature, seed=seed)
        return [Completion(f"{text} at {temperature:g}", True) for text in texts]


async def text_of(writer: BatchWriter, content: str, temperature: float = 0.0) -> str:
    return (await writer.write(chat(content), temperature=temperature)).completion.text


async def written(*asked: tuple[str, float], batch: int = 64) -> tuple[list[str | BaseException], Echo]:
    echo = Echo()
    with closing(BatchWriter(echo, batch)) as writer:
        texts = (text_of(writer, text, temperature) for text, temperature in asked)
        return await asyncio.gather(*texts, return_exceptions=True), echo


def greedy(*texts: str) -> list[tuple[str, float]]:
    return [(text, 0.0) for text in texts]


SHORT = [f"{'s' * 1_000}{n}" for n in range(33)]


@pytest.mark.parametrize(
    ("asked", "batch", "batches"),
    [
        pytest.param(greedy(*"0123456789"), 4, [4, 4, 2], id="prompts that wait together"),
        pytest.param([("a", 0.0), ("b", 0.7), ("c", 0.0)], 64, [2, 1], id="other sampling"),
        pytest.param(greedy(*SHORT[:30], "l" * 100_000, *SHORT[30:]), 64, [33, 1], id="a long prompt is alone"),
    ],
)
async def test_like_prompts_that_wait_together_are_one_batch(
    asked: list[tuple[str, float]], batch: int, batches: list[int]
) -> None:
    texts, echo = await written(*asked, batch=batch)
    assert texts == [f"{text} at {temperature:g}" for text, temperature in asked] and echo.batches == batches


async def test_a_prompt_that_is_too_long_fails_no_other() -> None:
    texts, _ = await written(*greedy("a", "long one", "b", "long two"))
    assert (texts[0], texts[2]) == ("a at 0", "b at 0")
    assert [str(texts[i]).partition(":")[0] for i in (1, 3)] == ["long one", "long two"]


async def test_an_unexpected_failure_is_that_of_one_prompt() -> None:
    texts, echo = await written(*greedy(*"012345", "break", "x"), ("y", 0.7))
    assert [str(text) for text in texts] == [*(f"{n} at 0" for n in range(6)), "broken", "x at 0", "y at 0.7"]
    assert sum(echo.batches) == 8 and len(echo.batches) <= 5, "the batch is halved, not written prompt by prompt"


async def test_an_unreachable_writer_is_called_once_for_a_batch() -> None:
    texts, echo = await written(*greedy("away 1", "away 2", "away 3"))
    assert [str(text) for text in texts] == ["the server is away"] * 3 and echo.tries == [3]


class Held(Scripted):
    """Ends its batch when it is let go."""

    def __init__(self) -> None:
        super().__init__("done")
        self.go = threading.Event()

    def complete(self, *prompts: Any, **sampling: Any) -> list[Completion]:
        assert self.go.wait(60)
        return super().complete(*prompts, **sampling)


async def test_a_writer_that_ends_no_batch_is_stalled() -> None:
    held = Held()
    writer = BatchWriter(held, 8)
    assert writer.seconds_without_progress == 0
    task = asyncio.create_task(writer.write(chat("x")))
    await asyncio.sleep(0.05)
    assert writer.seconds_without_progress > 0
    held.go.set()
    await task
    await asyncio.sleep(0)
    assert writer.seconds_without_progress == 0


async def test_a_cancelled_prompt_is_dropped_and_the_others_are_written() -> None:
    echo = Echo()
    writer = BatchWriter(echo, 1)
    first, gone, last = (asyncio.create_task(text_of(writer, text)) for text in ("first", "gone", "last"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.gather(first, last) == ["first at 0", "last at 0"] and echo.prompts == ["first", "last"]


async def test_a_prompt_that_arrives_as_a_batch_ends_is_written() -> None:
    writer = BatchWriter(Scripted("done"), 8)
    for _ in range(50):
        assert await asyncio.wait_for(text_of(writer, "x"), 30) == "done"


async def test_a_greedy_completion_is_not_written_twice() -> None:
    echo = Echo()
    writer = BatchWriter(echo, 8, max_cached=2)
    asked = [("a", 0.0), ("a", 0.0), ("b", 0.0), ("a", 0.7), ("a", 0.7), ("a", 0.0), ("c", 0.0), ("b", 0.0)]
    texts = [await text_of(writer, *each) for each in asked]
    assert texts == [f"{text} at {temperature:g}" for text, temperature in asked]
    await text_of(BatchWriter(echo, 8), "a")
    # A sampled completion is written each time, and so is one that two others have followed, or of another version.
    assert echo.prompts == ["a", "b", "a", "a", "c", "b", "a"]


async def test_a_failed_prompt_is_written_again() -> None:
    echo = Echo()
    writer = BatchWriter(echo, 8)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            await text_of(writer, "break")
    assert echo.tries == [1, 1]
