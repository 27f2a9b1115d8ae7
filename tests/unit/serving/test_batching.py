"""Micro-batches: prompts that wait together are processed together, and a failing prompt fails no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ops.conductor.policy import Completion
from ops.core.errors import PodiumError
from ops.core.response import Message
from ops.serving.batching import BatchWriter
from ops.workflow.prompt import PromptTooLongError
from tests.serving.script import Scripted


def chat(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class Echo(Scripted):
    """Returns its prompts, refuses those that begin with "long", and fails at "break"."""

    def __init__(self) -> None:
        super().__init__("", seconds=0.05)

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        texts = [prompt[-1]["content"] for prompt in prompts]
        for index, text in enumerate(texts):
            if text.startswith("long"):
                raise PromptTooLongError(text, 1000, 10, index=index)
            if text == "break":
                raise RuntimeError("broken")
        super().complete(prompts, temperature=temperature, seed=seed)
        return [Completion(f"{text} at {temperature:g}", True) for text in texts]


async def text_of(writer: BatchWriter, content: str, temperature: float = 0.0) -> str:
    return (await writer.write(chat(content), temperature=temperature)).completion.text


def written(*asked: tuple[str, float], batch: int = 64) -> tuple[list[str | BaseException], Echo]:
    echo = Echo()

    async def all_at_once() -> list[str | BaseException]:
        writer = BatchWriter(echo, batch)
        try:
            texts = (text_of(writer, text, temperature) for text, temperature in asked)
            return await asyncio.gather(*texts, return_exceptions=True)
        finally:
            writer.close()

    return asyncio.run(all_at_once()), echo


def test_prompts_that_wait_together_are_one_batch() -> None:
    texts, echo = written(*((str(n), 0.0) for n in range(10)), batch=4)
    assert texts == [f"{n} at 0" for n in range(10)] and echo.batches == [4, 4, 2]


def test_other_sampling_is_another_batch() -> None:
    texts, echo = written(("a", 0.0), ("b", 0.7), ("c", 0.0))
    assert texts == ["a at 0", "b at 0.7", "c at 0"] and echo.batches == [2, 1]


def test_a_prompt_that_is_too_long_fails_no_other() -> None:
    texts, _ = written(("a", 0.0), ("long one", 0.0), ("b", 0.0), ("long two", 0.0))
    assert (texts[0], texts[2]) == ("a at 0", "b at 0")
    assert [str(texts[i]).partition(":")[0] for i in (1, 3)] == ["long one", "long two"]


def test_an_unexpected_failure_is_that_of_one_prompt() -> None:
    texts, echo = written(*((str(n), 0.0) for n in range(6)), ("break", 0.0), ("x", 0.0), ("y", 0.7))
    assert [str(text) for text in texts] == [*(f"{n} at 0" for n in range(6)), "broken", "x at 0", "y at 0.7"]
    assert sum(echo.batches) == 8 and len(echo.batches) <= 5, "the batch is halved, not written prompt by prompt"


def test_an_unreachable_writer_is_called_once_for_a_batch() -> None:
    class Away(Echo):
        calls = 0

        def complete(
            self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
        ) -> list[Completion]:
            self.calls += 1
            raise PodiumError("the server is away")

    echo = Away()

    async def three() -> list[str | BaseException]:
        writer = BatchWriter(echo, 8)
        tasks = (text_of(writer, str(n)) for n in range(3))
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [str(text) for text in asyncio.run(three())] == ["the server is away"] * 3 and echo.calls == 1


def test_a_long_prompt_does_not_pad_the_short_ones() -> None:
    short, long = "s" * 1_000, "l" * 100_000
    texts, echo = written(
        *((f"{short}{n}", 0.0) for n in range(30)), (long, 0.0), *((f"{short}{n}", 0.0) for n in "abc")
    )
    assert all(str(text).endswith("at 0") for text in texts)
    assert sorted(echo.batches) == [1, 33]


class Held(Scripted):
    """Ends its batch when it is let go."""

    def __init__(self) -> None:
        super().__init__("done")
        self.go = threading.Event()

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        assert self.go.wait(60)
        return super().complete(prompts, temperature=temperature, seed=seed)


def test_a_writer_that_ends_no_batch_is_stalled() -> None:
    async def watch() -> list[bool]:
        held = Held()
        writer = BatchWriter(held, 8)
        before = writer.stalled_s
        task = asyncio.create_task(writer.write(chat("x")))
        await asyncio.sleep(0.05)
        during = writer.stalled_s
        held.go.set()
        await task
        await asyncio.sleep(0)
        return [before == 0, during > 0, writer.stalled_s == 0]

    assert asyncio.run(watch()) == [True, True, True]


def test_a_cancelled_prompt_is_dropped_and_the_others_are_written() -> None:
    async def leaving() -> list[str]:
        writer = BatchWriter(echo, 1)
        first = asyncio.create_task(text_of(writer, "first"))
        gone = asyncio.create_task(text_of(writer, "gone"))
        last = asyncio.create_task(text_of(writer, "last"))
        await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(first, last)

    echo = Echo()
    assert asyncio.run(leaving()) == ["first at 0", "last at 0"] and echo.prompts == ["first", "last"]


@pytest.mark.parametrize("rounds", [50])
def test_a_prompt_that_arrives_as_a_batch_ends_is_written(rounds: int) -> None:
    async def one_after_the_other() -> None:
        writer = BatchWriter(Scripted("done"), 8)
        for _ in range(rounds):
            assert await asyncio.wait_for(text_of(writer, "x"), 30) == "done"

    asyncio.run(one_after_the_other())


def test_a_greedy_completion_is_not_written_twice() -> None:
    async def ask() -> list[str]:
        writer, other = BatchWriter(echo, 8, kept=2), BatchWriter(echo, 8)
        asked = [("a", 0.0), ("a", 0.0), ("b", 0.0), ("a", 0.7), ("a", 0.7), ("a", 0.0), ("c", 0.0), ("b", 0.0)]
        texts = [await text_of(writer, *each) for each in asked]
        await text_of(other, "a")
        return texts

    echo = Echo()
    texts = asyncio.run(ask())
    assert texts == ["a at 0", "a at 0", "b at 0", "a at 0.7", "a at 0.7", "a at 0", "c at 0", "b at 0"]
    # A sampled completion is written each time, and so is one that two others have followed, or of another version.
    assert echo.prompts == ["a", "b", "a", "a", "c", "b", "a"]


def test_a_failed_prompt_is_written_again() -> None:
    async def twice() -> list[str]:
        writer = BatchWriter(echo, 8)
        return [str((await asyncio.gather(text_of(writer, "break"), return_exceptions=True))[0]) for _ in range(2)]

    echo, tries = Echo(), list[int]()
    complete = echo.complete

    def counted(prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[Completion]:
        tries.append(len(prompts))
        return complete(prompts, temperature=temperature, seed=seed)

    echo.complete = counted  # type: ignore[method-assign]
    assert asyncio.run(twice()) == ["broken", "broken"] and tries == [1, 1]
