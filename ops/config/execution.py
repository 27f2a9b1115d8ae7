"""The part of a recipe that says how workflows are run: limits, rounds, what is kept to look at."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class Recursion(Settings):
    """Rounds in which the Conductor reads its own answer and may write again (Section 3.2 of arXiv:2512.04388)."""

    rounds: int = Field(default=0, ge=0)
    """At most so many after the first; 0: none."""
    calls_ratio: float = Field(default=2.0, ge=1)
    """All rounds together may make at most so many times the first round's calls."""
    answer_tokens: int | None = Field(default=None, ge=16)
    """Longest final response, in tokens, that the Conductor is shown; longer ones lose their middle. None: whole."""


class Execution(Settings):
    """How a workflow is run."""

    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds of a workflow's own work, along its longest chain of steps: waits for slots and limits do not count.
    What takes longer is timed out, which is unscorable."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """Longest response, in tokens, that later steps are shown; longer ones lose their middle. None: whole."""
    traces: int = Field(default=2, ge=0)
    """Executions per benchmark whose traces an evaluation exports to MLflow."""
    recursion: Recursion = Recursion()

    @property
    def what_answers_depend_on(self) -> dict[str, object]:
        """The settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}
