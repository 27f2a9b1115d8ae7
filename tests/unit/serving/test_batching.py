"""Writing for many at once: who waits together is written for together, and one that fails spoils no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ops.core.response import Message
from ops.serving.batching import BatchWriter
from ops.workflow.prompt import PromptTooLongError
from tests.serving.script import Scripted


def chat(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class Echo(Scripted):
    """Writes what it reads, refuses what is too long for it, and breaks when it is told to."""

    def __init__(self) -> None:
        super().__init__("", seconds=0.05)

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        texts = [prompt[-1]["content"] for prompt in prompts]
        for index, text in enumerate(texts):
            if text.startswith("long"):
                raise PromptTooLongError(text, 1000, 10, index=index)
            if text == "break":
                raise RuntimeError("broken")
        super().write(prompts, temperature=temperature, seed=seed)
        return [f"{text} at {temperature:g}" for text in texts]


def written(*asked: tuple[str, float], batch: int = 64) -> tuple[list[str | BaseException], Echo]:
    echo = Echo()

    async def all_at_once() -> list[str | BaseException]:
        writer = BatchWriter(echo, batch)
        try:
            texts = (writer.write(chat(text), temperature=temperature) for text, temperature in asked)
            return await asyncio.gather(*texts, return_exceptions=True)
        finally:
            writer.close()

    return asyncio.run(all_at_once()), echo


def test_what_comes_together_is_written_together_up_to_a_batch() -> None:
    texts, echo = written(*((str(n), 0.0) for n in range(10)), batch=4)
    assert texts == [f"{n} at 0" for n in range(10)] and echo.batches == [4, 4, 2]


def test_other_draws_are_another_batch() -> None:
    texts, echo = written(("a", 0.0), ("b", 0.7), ("c", 0.0))
    assert texts == ["a at 0", "b at 0.7", "c at 0"] and echo.batches == [2, 1]


def test_one_that_is_too_long_spoils_no_others() -> None:
    texts, _ = written(("a", 0.0), ("long one", 0.0), ("b", 0.0), ("long two", 0.0))
    assert (texts[0], texts[2]) == ("a at 0", "b at 0")
    assert [str(texts[i]).partition(":")[0] for i in (1, 3)] == ["long one", "long two"]


def test_a_writer_that_breaks_is_told_to_all_of_its_batch_and_to_no_other() -> None:
    texts, _ = written(("a", 0.0), ("break", 0.0), ("b", 0.7))
    assert [str(text) for text in texts] == ["broken", "broken", "b at 0.7"]


def test_who_leaves_is_not_written_for_and_the_others_are() -> None:
    async def leaving() -> list[str]:
        writer = BatchWriter(echo, 1)
        first = asyncio.create_task(writer.write(chat("first")))
        gone = asyncio.create_task(writer.write(chat("gone")))
        last = asyncio.create_task(writer.write(chat("last")))
        await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(first, last)

    echo = Echo()
    assert asyncio.run(leaving()) == ["first at 0", "last at 0"] and echo.prompts == ["first", "last"]


@pytest.mark.parametrize("rounds", [50])
def test_a_question_that_comes_as_a_batch_ends_is_written_for(rounds: int) -> None:
    async def one_after_the_other() -> None:
        writer = BatchWriter(Scripted("done"), 8)
        for _ in range(rounds):
            assert await asyncio.wait_for(writer.write(chat("x")), 30) == "done"

    asyncio.run(one_after_the_other())
