"""How a system that is no Conductor answers: the workflows that it runs for a question, and whose answer counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.problem import Problem
from ops.core.rows import ResponseRow
from ops.evaluation.runner import ScoreRow
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

Branches = tuple[Workflow, ...]
"""Workflows that are run side by side for one question: five samples to be voted on are five equal branches."""


class Attempt(NamedTuple):
    """One question and what each of its branches answered: None where a worker refused or a context was too long."""

    problem: Problem
    answers: tuple[str | None, ...]


def first(attempts: Sequence[Attempt]) -> list[int]:
    """Every question's first branch counts."""
    return [0] * len(attempts)


@dataclass(frozen=True)
class Method:
    """`branches`: questions of one benchmark and the repeat → each one's workflows, by the team's ordinals, of any
    length. `choose`: what those answered, of the whole benchmark at once → the branch of each question that counts;
    it never sees a gold answer that it does not grade by itself."""

    branches: Callable[[Sequence[Problem], int], Sequence[Branches]]
    choose: Callable[[Sequence[Attempt]], Sequence[int]] = first
    detail: str = ""
    """What was chosen or learned, in a word or two, for the column's head."""

    @classmethod
    def static(cls, workflow: Workflow, detail: str = "") -> Method:
        """One workflow whatever is asked."""
        return cls.samples(workflow, 1, detail=detail)

    @classmethod
    def samples(
        cls, workflow: Workflow, count: int, choose: Callable[[Sequence[Attempt]], Sequence[int]] = first,
        detail: str = "",
    ) -> Method:  # fmt: skip
        """One workflow, so many times, each with answers of its own."""
        return cls(lambda problems, repeat: [(workflow,) * count] * len(problems), choose, detail)

    @classmethod
    def beside(cls, workflows: Branches, choose: Callable[[Sequence[Attempt]], Sequence[int]]) -> Method:
        """The same workflows side by side, whatever is asked."""
        return cls(lambda problems, repeat: [workflows] * len(problems), choose)

    @classmethod
    def routed(cls, route: Callable[[Sequence[Problem]], Sequence[Workflow]], detail: str = "") -> Method:
        """One workflow a question, chosen by the question alone."""
        return cls(lambda problems, repeat: [(workflow,) for workflow in route(problems)], first, detail)


@dataclass(frozen=True)
class Known:
    """What a baseline may learn from: the training mix and what the workers answered to it, never the test."""

    team: Team
    """The pool by ordinal; its names are those of `responses`."""
    problems: Sequence[Problem]
    responses: Sequence[ResponseRow]
    """Every worker alone on `problems`, at the pool's prices."""
    seed: int
    run: Callable[[Method, Sequence[Problem]], list[ScoreRow]]
    """A method on training problems: rows by problem. It asks workers, and costs what they cost (`Asking.learning`)."""

    @property
    def accuracies(self) -> list[float]:
        """Each worker's share of right answers, by ordinal; unreachable ones left out."""
        made = []
        for name in self.team.names:
            own = [row.score >= 1.0 for row in self.responses if row.worker == name and row.status != "unreachable"]
            made.append(sum(own) / len(own) if own else 0.0)
        return made

    @property
    def best(self) -> int:
        """The ordinal of the best single worker, as `ops.precaching.profiles.best_single` chooses it."""
        from ops.precaching.profiles import best_single

        return self.team.names.index(best_single(list(self.responses)).worker)
