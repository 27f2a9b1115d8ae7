"""Define and load the worked examples in `data/few_shots`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ops.config import Settings, load_settings
from ops.workflow.grammar import SOLVE_SUBTASK, OfferedWorkers, Step, Workflow, offered_ordinals, parse_workflow


class FewShotStep(Settings):
    """One step of a worked example."""

    worker: int = Field(ge=0)
    """The ordinal of the worker, counted from 0."""
    subtask: str
    """The instruction for the worker."""
    access: Literal["none", "all"] = "none"
    """The earlier steps that the worker sees, which are none or all."""


class FewShot(Settings):
    """A worked example consists of a question, the reasoning about it, and a workflow."""

    kind: str
    """The strategy that the example demonstrates. The prompt does not show it."""
    question: str = Field(min_length=1)
    """The text of the question."""
    choices: tuple[str, ...] = ()
    """The choices of a multiple-choice question."""
    offered: int = Field(default=7, ge=1)
    """The number of workers on offer in the example. `renumber_for` adapts it to the workers that a prompt offers."""
    reasoning: str = Field(min_length=1)
    """The text that precedes the workflow in the example's completion."""
    steps: tuple[FewShotStep, ...] = Field(min_length=1)
    """The steps of the workflow."""

    @model_validator(mode="after")
    def _check_parses(self) -> Self:
        text = self.workflow.render()
        parsed = parse_workflow(text, offered=self.offered, max_steps=len(self.steps))
        if parsed.workflow is None:
            raise ValueError(f"the workflow of {self.kind!r} does not parse: {parsed.detail}")
        return self

    @property
    def workflow(self) -> Workflow:
        """Return the steps as a workflow. Raises `ValueError` for a step that is not valid (see `Step`)."""
        return Workflow(tuple(Step(step.worker, step.subtask, step.access) for step in self.steps))

    def without_subtasks(self) -> FewShot:
        """Return the same example with `SOLVE_SUBTASK` as the subtask of every step."""
        return self.model_copy(
            update={"steps": tuple(s.model_copy(update={"subtask": SOLVE_SUBTASK}) for s in self.steps)}
        )

    def renumber_for(self, offered: OfferedWorkers) -> FewShot:
        """Return the same example with ordinals of the given workers on offer.

        A worker that is on offer keeps its ordinal. Every other worker gets an unused ordinal, or an ordinal that is
        already used if there are too few.
        """
        present = tuple(offered_ordinals(offered))
        ordinals = {step.worker: step.worker for step in self.steps if step.worker in present}
        for step in self.steps:
            if step.worker not in ordinals:
                turns = [present[(step.worker + shift) % len(present)] for shift in range(len(present))]
                free = (ordinal for ordinal in turns if ordinal not in ordinals.values())
                ordinals[step.worker] = next(free, turns[0])
        steps = tuple(step.model_copy(update={"worker": ordinals[step.worker]}) for step in self.steps)
        return self.model_copy(update={"offered": max(present) + 1, "steps": steps})


class FewShotFile(Settings):
    """The content of a file in `data/few_shots`."""

    description: str = ""
    """A description of the file for people."""
    examples: tuple[FewShot, ...] = Field(min_length=1)
    """The examples in the order in which a prompt shows them."""


def load_few_shots(data: Path, name: str) -> tuple[FewShot, ...]:
    """Load the examples in `few_shots/NAME.yaml` of the folder `data`.

    The name "none" gives no examples. Raises `ConfigError` if the file cannot be read.
    """
    if name == "none":
        return ()
    return load_settings(FewShotFile, data / "few_shots" / f"{name}.yaml").examples
