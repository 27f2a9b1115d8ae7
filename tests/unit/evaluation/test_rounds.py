"""Depths of recursion are counted over the same conversations, and taught from the policy's own rollouts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from ops.config import Execution, Prompting, Recursion, Worker
from ops.core.errors import WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message, Response
from ops.evaluation.rounds import in_rounds, under
from ops.training.recursive import Lessons, lessons
from ops.workflow.cards import WorkerCard
from ops.workflow.grammar import Step, Workflow
from ops.workflow.prompt import PromptTooLongError

OFFERED = [Worker(name=name, model=f"local/{name}") for name in ("good", "bad", "down", "trusting")]
PROMPTING = Prompting(style="compact", few_shots="none")
GOOD, BAD, DOWN = (Workflow.single(ordinal) for ordinal in range(3))
TRUSTING = Workflow((Step(3, "Check.", "all"),))
KEEP = Workflow(())
LIMITS = Execution.model_validate({"recursion": {"rounds": 4, "calls_ratio": 9}})


def problem(name: str, benchmark: str = "math500") -> Problem:
    return Problem(name, benchmark, "math", "test", f"What is {name}?", "42", "math")


class Tool:
    """Right, wrong, or unreachable; "trusting" is right unless it reads a wrong answer."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        if worker.name == "down":
            raise WorkerUnreachable("down")
        misled = worker.name == "trusting" and any("41" in message["content"] for message in messages)
        text = r"\boxed{41}" if worker.name == "bad" or misled else r"\boxed{42}"
        return Response(text, 10, 5, 0.5, 1.0, "stop")


class Scripted:
    """Writes for each question the workflows that are listed for it, one a round; keeps what it was asked."""

    def __init__(self, script: dict[str, list[Workflow | str]]) -> None:
        self.script = {name: list(texts) for name, texts in script.items()}
        self.prompts: list[Sequence[Message]] = []

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        found = []
        self.prompts += prompts
        for index, prompt in enumerate(prompts):
            match = re.search(r"What is (\w+)\?", prompt[0]["content"])
            assert match is not None
            said = self.script[match[1]].pop(0)
            if said == "too long":
                self.script[match[1]].insert(0, said)
                raise PromptTooLongError(f"prompt {index}", 999, 100, index=index)
            found.append(said if isinstance(said, str) else said.render())
        return found


def test_each_depth_is_graded_and_counted() -> None:
    script = {
        "a": [GOOD, KEEP],
        "b": [BAD, GOOD, KEEP],
        "c": [BAD, BAD],
        "d": [GOOD, BAD, "prose"],
        "e": ["prose"],
    }
    problems = [problem(name) for name in script]
    traces = asyncio.run(in_rounds(Scripted(script), problems, OFFERED, Tool(), PROMPTING, LIMITS))
    depths = [under(traces, problems, Recursion(rounds=rounds, calls_ratio=9)) for rounds in range(4)]
    assert [depth.accuracy.mean for depth in depths] == pytest.approx([0.4, 0.4, 0.4, 0.4])  # b is won, d is lost
    assert [depth.calls for depth in depths] == pytest.approx([0.8, 1.2, 1.2, 1.2])
    assert [depth.cost_usd for depth in depths] == pytest.approx([0.4, 0.6, 0.6, 0.6])
    assert dict(depths[0].stops) == {"cap": 4, "invalid": 1}
    assert dict(depths[1].stops) == {"kept": 1, "cap": 2, "loop": 1, "invalid": 1}
    assert dict(depths[3].stops) == {"kept": 2, "loop": 1, "invalid": 2}


def test_benchmarks_weigh_the_same_and_the_unscorable_nothing() -> None:
    script = {"a": [GOOD], "b": [BAD], "c": [BAD], "d": [DOWN], "e": [GOOD]}
    problems = [problem(name, "aime25" if name == "e" else "math500") for name in script]
    limits = LIMITS.model_copy(update={"recursion": LIMITS.recursion.model_copy(update={"rounds": 0})})
    traces = asyncio.run(in_rounds(Scripted(script), problems, OFFERED, Tool(), PROMPTING, limits))
    depth = under(traces, problems, Recursion(rounds=0, calls_ratio=9))
    assert depth.accuracy.mean == pytest.approx((1 / 3 + 1) / 2)
    assert depth.unscorable == 1


def test_a_prompt_that_is_too_long_ends_its_rounds_and_no_others() -> None:
    script: dict[str, list[Workflow | str]] = {"a": [GOOD, "too long"], "b": [BAD, GOOD, KEEP]}
    problems = [problem("a"), problem("b")]
    traces = asyncio.run(in_rounds(Scripted(script), problems, OFFERED, Tool(), PROMPTING, LIMITS))
    assert [trace.stop for trace in traces] == ["invalid", "kept"]
    assert under(traces, problems, Recursion(rounds=4, calls_ratio=9)).accuracy.mean == 1.0


def taught(script: dict[str, list[Workflow | str]], samples: int) -> Lessons:
    problems = [problem(name) for name in script]
    return asyncio.run(
        lessons(problems, Scripted(script), OFFERED, Tool(), PROMPTING, LIMITS, samples=samples)
    )


def test_lessons_keep_what_is_right_and_improve_what_is_wrong() -> None:
    found = taught({"a": [GOOD, BAD, "prose"], "b": [GOOD, GOOD, GOOD], "c": [BAD, DOWN, BAD]}, 3)
    assert len(found.first) == len(found.keep) == 2  # one for each distinct right workflow
    assert [lesson["completion"][0]["content"] for lesson in found.keep] == [KEEP.render()] * 2
    assert "42" in found.keep[0]["prompt"][-1]["content"]
    [again] = found.again
    assert again["completion"][0]["content"] == GOOD.render()
    assert again["prompt"][-2] == {"role": "assistant", "content": BAD.render()}
    assert "41" in again["prompt"][-1]["content"]


def test_a_workflow_that_the_wrong_answer_misleads_is_no_lesson() -> None:
    found = taught({"a": [TRUSTING, BAD]}, 2)
    assert len(found.keep) == 1
    assert found.again == []


def test_lessons_are_drawn_in_their_shares_and_missing_kinds_are_left_out() -> None:
    found = taught({"a": [GOOD, BAD]}, 2)
    drawn = found.draw(1000, seed=3)
    kept = sum(one["completion"][0]["content"] == KEEP.render() for one in drawn)
    firsts = sum(len(one["prompt"]) == 1 for one in drawn)
    assert 280 < kept < 420
    assert 190 < firsts < 310
    assert drawn == found.draw(1000, seed=3)
    found.again.clear()
    assert len(found.draw(100, seed=1)) == 100


def test_workers_cards_are_in_every_prompt() -> None:
    cards = [WorkerCard(accuracy={"math": 0.71 - ordinal / 10}, cost_usd=0.002) for ordinal in range(len(OFFERED))]
    shown, prompting = cards[0].short(), PROMPTING.model_copy(update={"cards": True})
    conductor = Scripted({"a": [BAD, GOOD, KEEP]})
    [trace] = asyncio.run(in_rounds(conductor, [problem("a")], OFFERED, Tool(), prompting, LIMITS, cards=cards))
    assert trace.stop == "kept"
    assert [len(prompt) for prompt in conductor.prompts] == [1, 3, 3]
    assert all(shown in prompt[0]["content"] for prompt in conductor.prompts)
    conductor = Scripted({"a": [BAD, GOOD]})
    found = asyncio.run(
        lessons([problem("a")], conductor, OFFERED, Tool(), prompting, LIMITS, cards=cards, samples=2)
    )
    taught = [*found.first, *found.keep, *found.again]
    assert len(taught) == 3
    assert all(shown in prompt[0]["content"] for prompt in (*conductor.prompts, *(one["prompt"] for one in taught)))
