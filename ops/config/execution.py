"""The part of a recipe that says how workflows are run: limits, what is kept to look at."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class Execution(Settings):
    """How a workflow is run."""

    deadline_s: float | None = Field(default=None, gt=0)
    """Maximum seconds of a workflow's own work along its longest chain, without waits for limits. Longer: timed out,
    which is unscorable."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of a response that later steps see; longer ones lose their middle. None: whole."""
    traces: int = Field(default=2, ge=0)
    """Executions per benchmark whose traces an evaluation exports to MLflow."""

    @property
    def what_answers_depend_on(self) -> dict[str, object]:
        """The settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}
