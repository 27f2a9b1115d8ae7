"""The worked examples in `data/few_shots`: their form, and reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ops.config import Settings, load_settings
from ops.workflow.grammar import SOLVE_SUBTASK, OfferedWorkers, Step, Workflow, offered_ordinals, parse_workflow


class FewShotStep(Settings):
    """One step of a worked example."""

    worker: int = Field(ge=0)
    subtask: str
    access: Literal["none", "all"] = "none"


class FewShot(Settings):
    """A worked example: a question, the thinking, and a workflow of our own writing."""

    kind: str
    """The strategy that it demonstrates; not shown to the Conductor."""
    question: str = Field(min_length=1)
    choices: tuple[str, ...] = ()
    offered: int = Field(default=7, ge=1)
    """Number of workers that its ordinals count; it is shown with as many as the question offers (`renumber_for`)."""
    reasoning: str = Field(min_length=1)
    steps: tuple[FewShotStep, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_parses(self) -> Self:
        text = self.workflow.render()
        parsed = parse_workflow(text, offered=self.offered, max_steps=len(self.steps))
        if parsed.workflow is None:
            raise ValueError(f"the workflow of {self.kind!r} does not parse: {parsed.detail}")
        return self

    @property
    def workflow(self) -> Workflow:
        """Return the workflow. Raises `ValueError` for a step that no text can express."""
        return Workflow(tuple(Step(step.worker, step.subtask, step.access) for step in self.steps))

    def without_subtasks(self) -> FewShot:
        """Return the same example with "solve the problem" as every subtask."""
        return self.model_copy(
            update={"steps": tuple(s.model_copy(update={"subtask": SOLVE_SUBTASK}) for s in self.steps)}
        )

    def renumber_for(self, offered: OfferedWorkers) -> FewShot:
        """Return the example rewritten for a pool with these offered workers.

        An offered worker keeps its ordinal; each other one gets a free ordinal, distinct while there are enough.
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
    """One file of `data/few_shots`."""

    description: str = ""
    examples: tuple[FewShot, ...] = Field(min_length=1)


def load_few_shots(data: Path, name: str) -> tuple[FewShot, ...]:
    """Load the examples of `data/few_shots/NAME.yaml`; none for "none". Raises `ConfigError`."""
    if name == "none":
        return ()
    return load_settings(FewShotFile, data / "few_shots" / f"{name}.yaml").examples
