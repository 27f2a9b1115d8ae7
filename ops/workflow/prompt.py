"""What the Conductor is shown: a problem, the workers on offer as ordinals, worked examples.

What belongs here: our wording of the task, the order in which a pool is offered, and
loading `data/few_shots`. What does not: what a worker is shown (`ops.benchmarks.prompts`,
`execution`) and the grammar itself.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ops.config import Pool, Prompting, Settings, Worker, load
from ops.problem import Problem
from ops.workers.types import Message
from ops.workflow.grammar import Step, Workflow, parse


class FewShotStep(Settings):
    """One step of a worked example."""

    worker: int
    subtask: str
    access: Literal["none", "all"] = "none"


class FewShot(Settings):
    """A worked example: a question, the thinking, and a workflow of our own writing."""

    kind: str
    """What it is an example of; not shown to the Conductor."""
    question: str = Field(min_length=1)
    choices: tuple[str, ...] = ()
    offered: int = Field(default=7, ge=1)
    """How many workers the example has on offer."""
    reasoning: str = Field(min_length=1)
    steps: tuple[FewShotStep, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _parses(self) -> Self:
        text = self.workflow.render()
        parsed = parse(text, offered=self.offered, max_steps=len(self.steps))
        if parsed.workflow is None:
            raise ValueError(f"the workflow of {self.kind!r} does not parse: {parsed.detail}")
        return self

    @property
    def workflow(self) -> Workflow:
        """Raises `ValueError` for a step that no text can give."""
        return Workflow(tuple(Step(step.worker, step.subtask, step.access) for step in self.steps))


class FewShotFile(Settings):
    """One file of `data/few_shots`."""

    description: str = ""
    examples: tuple[FewShot, ...] = Field(min_length=1)


def load_few_shots(data: Path, name: str) -> tuple[FewShot, ...]:
    """The examples of `data/few_shots/NAME.yaml`; none for "none". Raises `ConfigError`."""
    if name == "none":
        return ()
    return load(FewShotFile, data / "few_shots" / f"{name}.yaml").examples


def offer(pool: Pool, seed: int | None) -> tuple[Worker, ...]:
    """The pool's workers by ordinal: in its own order, or shuffled by `seed`."""
    workers = list(pool.workers)
    if seed is not None:
        random.Random(seed).shuffle(workers)
    return tuple(workers)


def conductor_messages(
    problem: Problem, offered: int, prompting: Prompting, few_shots: Sequence[FewShot]
) -> list[Message]:
    """The chat that asks the Conductor for a workflow with `offered` workers on offer.

    "full": one user message that explains the task, shows the examples and asks. "compact": the
    question, how many choices there are (their texts are for the workers) and the ordinals; examples as
    past turns. Examples with more steps than
    `prompting.max_steps` are left out: they would break the rule that they illustrate.
    """
    shown = [example for example in few_shots if len(example.steps) <= prompting.max_steps]
    if prompting.style == "compact":
        return _compact(problem, offered, shown)
    question = _question(problem.question, problem.choices)
    parts = [_instruction(prompting, offered)]
    parts.extend(_example(number, shot) for number, shot in enumerate(shown, 1))
    if shown:
        parts.append("--- Your turn ---")
    parts.append(f"{_asked(question, offered)}\n\nThink first, then end with the three lists.")
    return [{"role": "user", "content": "\n\n".join(parts)}]


def _compact(problem: Problem, offered: int, examples: Sequence[FewShot]) -> list[Message]:
    messages: list[Message] = []
    for example in examples:
        messages.append({"role": "user", "content": _in_short(example, example.offered)})
        messages.append({"role": "assistant", "content": example.workflow.render()})
    return [*messages, {"role": "user", "content": _in_short(problem, offered)}]


def _in_short(asked: Problem | FewShot, offered: int) -> str:
    choices = f"\nChoices: {len(asked.choices)}" if asked.choices else ""
    return f"{asked.question}{choices}\nModels: {' '.join(map(str, range(offered)))}"


_INSTRUCTION = """\
You are the conductor of a team of language models. You do not answer the question yourself: \
you plan who works on it, on what, and who gets to read whose work. Your plan is carried out exactly \
as you write it, and the response of its last step is taken as the answer.

First think freely about what the question needs: which parts it has, where mistakes are likely, \
and whether a second opinion, a check or a summary is worth a step. Then write the plan as three Python \
lists of the same length, one entry per step, with at most {max_steps} steps:

model_id: the number of the model that does the step. The same model may do several steps.
subtasks: a string that tells this model what to do. Every model reads the full question as well, \
so do not repeat it; say what to work out, check, compare or write, and in what form.
access_list: {access}

A step that needs no earlier work can be done at the same time as others. A simple question may \
need one step only. The last step must give the complete final answer to the question. Use plain list \
literals: no variables, no calls, no comments inside the lists. For instance:

{instance}"""

_ACCESS = {
    "binary": '[] if the step sees only the question, or ["all"] if it also sees the subtasks and '
    "responses of all earlier steps.",
    "fine_grained": '[] if the step sees only the question, ["all"] if it also sees the subtasks and '
    "responses of all earlier steps, or a list such as [0, 2] of the earlier steps that it sees "
    "(the first step is 0).",
}


def _instruction(prompting: Prompting, offered: int) -> str:
    steps = (
        Step(min(1, offered - 1), "Solve it step by step."),
        Step(0, "Check the work above and give the final answer.", "all"),
    )
    return _INSTRUCTION.format(
        max_steps=prompting.max_steps,
        access=_ACCESS[prompting.access],
        instance=Workflow(steps[: prompting.max_steps]).render(),
    )


def _asked(question: str, offered: int) -> str:
    models = ", ".join(f"Model {ordinal}" for ordinal in range(offered))
    return f"Question:\n{question}\n\nModels on offer: {models}"


def _question(question: str, choices: Sequence[str]) -> str:
    lettered = (f"{letter}) {text}" for letter, text in zip(string.ascii_uppercase, choices, strict=False))
    return "\n".join([question, *lettered])


def _example(number: int, example: FewShot) -> str:
    asked = _asked(_question(example.question, example.choices), example.offered)
    return f"--- Example {number} ---\n{asked}\n\n{example.reasoning.strip()}\n\n{example.workflow.render()}"
