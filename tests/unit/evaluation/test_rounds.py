"""A Conductor in rounds: one row per question with all its costs, and the answer that stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ops.config import Evaluation, Prompting, RoundLimits, Worker
from ops.core.errors import WorkerUnreachable
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.status import Status
from ops.core.usage import Usage
from ops.evaluation.runner import evaluate
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import summarize
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.team import Team

PROBLEMS = [Problem(str(i), "math500", "math", "test", f"What is {i} + 0?", str(i), "math") for i in range(5)]
KEEP = Workflow(()).render()
SOLVE, GUESS, DOWN = (Workflow.single(ordinal).render() for ordinal in range(3))


class Tool:
    """`solver` answers correctly, `guesser` wrongly, `down` never."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        if worker.name == "down":
            raise WorkerUnreachable("down")
        number = messages[0]["content"].split()[2]
        return Response(f"\\boxed{{{number if worker.name == 'solver' else 99}}}", Usage(10, 5), 0.001, 0.5, "stop")


class Conductor:
    """Generates for each question the texts of its list, round by round."""

    def __init__(self, *texts: Sequence[str]) -> None:
        self.texts, self.batches = texts, list[int]()

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        self.batches.append(len(prompts))
        return [
            self.texts[int(prompt[0]["content"].split()[2])][sum(said["role"] == "assistant" for said in prompt)]
            for prompt in prompts
        ]


TEAM = Team(
    [Worker(name=name, model=f"local/{name}") for name in ("solver", "guesser", "down")],
    Tool(),
    Prompting(style="compact", few_shots="none"),
)
SCRIPT = ([SOLVE, KEEP], [GUESS, SOLVE], [SOLVE, GUESS], ["nothing"], [GUESS, DOWN])


def rows(rounds: int, settings: Evaluation | None = None) -> list[OutcomeRow]:
    limits = RoundLimits(rounds=rounds)
    return asyncio.run(evaluate(Conductor(*SCRIPT), PROBLEMS, TEAM, settings or Evaluation(), limits=limits))


def test_a_row_is_of_the_answer_that_stands_and_of_all_that_it_took() -> None:
    made = rows(1)
    assert [row.stop for row in made] == ["kept", "cap", "cap", "invalid", "unreachable"]
    assert [row.correct for row in made] == [1, 1, 0, 0, 0]
    assert [row.workers for row in made] == [
        ("solver",), ("guesser", "solver"), ("solver", "guesser"), (), ("guesser",)
    ]  # fmt: skip
    assert [row.rounds for row in made] == [2, 2, 2, 1, 2]
    assert [row.unscorable for row in made] == [False] * 4 + [True]
    assert (made[1].cost_usd, made[1].tokens, made[1].latency_s, made[1].steps) == (0.002, 30, 1.0, 2)
    assert len(made[1].usage) == 2 and made[1].pattern == "0"
    assert (made[3].format_ok, made[3].status) == (False, Status.NO_WORKFLOW)
    assert made[4].status == "unreachable"
    assert summarize(made)["math500"].accuracy.mean == pytest.approx(0.5)


def test_without_further_rounds_it_is_the_plain_evaluation() -> None:
    plain = asyncio.run(evaluate(Conductor(*SCRIPT), PROBLEMS, TEAM, Evaluation()))
    assert [replace(row, stop="") for row in rows(0)] == plain


def test_prompts_are_written_by_the_batch_and_every_repeat_is_a_set() -> None:
    conductor = Conductor(*SCRIPT)
    settings = Evaluation(batch=2, repeats=2, temperature=0.5)
    made = asyncio.run(evaluate(conductor, PROBLEMS, TEAM, settings, limits=RoundLimits(rounds=1)))
    assert conductor.batches == [2, 2, 1, 2, 2] * 2
    assert [(row.problem_id, row.repeat) for row in made] == [(str(i), repeat) for i in range(5) for repeat in (0, 1)]


def test_a_first_prompt_that_is_too_long_names_its_problem() -> None:
    class Narrow(Conductor):
        def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
            if "What is 3" in prompts[-1][0]["content"]:
                raise PromptTooLongError("prompt 1", 500, 300, index=1)
            return super().write(prompts, temperature=temperature, seed=seed)

    running = evaluate(Narrow(*SCRIPT), PROBLEMS, TEAM, Evaluation(batch=2), limits=RoundLimits())
    with pytest.raises(PromptTooLongError, match=r"math500 problem 3: .* 500 tokens"):
        asyncio.run(running)
