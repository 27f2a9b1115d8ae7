"""How a system that is no Conductor answers: the workflows that it runs for a question, and whose answer counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.problem import Problem
from ops.core.rows import ResponseRow
from ops.evaluation.rows import OutcomeRow
from ops.workflow.few_shots import FewShot
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.team import Team

Branches = tuple[Workflow, ...]
"""Workflows that are run side by side for one question: five samples to be voted on are five equal branches."""


class Attempt(NamedTuple):
    """One question and what each of its branches answered: None where a worker refused or a context was too long.

    No branches: its author wrote no workflow.
    """

    problem: Problem
    answers: tuple[str | None, ...]


def first(attempts: Sequence[Attempt]) -> list[int]:
    """Every question's first branch counts."""
    return [0] * len(attempts)


class Author(NamedTuple):
    """A worker that writes each question's workflow, as a Conductor does; what it writes is read by `read`."""

    worker: int
    prompt: Callable[[Problem], str]
    read: Callable[[str], Parsed]


@dataclass(frozen=True)
class Method:
    """`branches`: questions of one benchmark and the repeat → each one's workflows, by the team's ordinals, of any
    length. `choose`: what those answered, of the whole benchmark at once → the branch of each question that counts;
    it never sees a gold answer that it does not grade by itself."""

    branches: Callable[[Sequence[Problem], int], Sequence[Branches]]
    choose: Callable[[Sequence[Attempt]], Sequence[int]] = first
    detail: str = ""
    """What was chosen or learned, in a word or two, for the column's head."""
    author: Author | None = None
    """Writes what is run, instead of `branches`; a completion that is no workflow is wrong, and paid for."""

    @classmethod
    def static(cls, workflow: Workflow, detail: str = "") -> Method:
        """One workflow whatever is asked."""
        return cls.samples(workflow, 1, detail=detail)

    @classmethod
    def samples(
        cls, workflow: Workflow, count: int, choose: Callable[[Sequence[Attempt]], Sequence[int]] = first,
        detail: str = "",
    ) -> Method:  # fmt: skip
        """One workflow repeated, each time with new answers."""
        return cls(lambda problems, repeat: [(workflow,) * count] * len(problems), choose, detail)

    @classmethod
    def beside(cls, workflows: Branches, choose: Callable[[Sequence[Attempt]], Sequence[int]]) -> Method:
        """The same workflows side by side, whatever is asked."""
        return cls(lambda problems, repeat: [workflows] * len(problems), choose)

    @classmethod
    def routed(cls, route: Callable[[Sequence[Problem]], Sequence[Workflow]], detail: str = "") -> Method:
        """One workflow a question, chosen by the question alone."""
        return cls(lambda problems, repeat: [(workflow,) for workflow in route(problems)], first, detail)

    @classmethod
    def written(cls, author: Author, detail: str = "") -> Method:
        """One workflow a question, written by a worker that is shown the question."""
        return cls(lambda problems, repeat: [()] * len(problems), first, detail, author)


@dataclass(frozen=True)
class Known:
    """What a baseline may learn from: the training mix and what the workers answered to it, never the test."""

    team: Team
    """The pool by ordinal; its names are those of `responses`."""
    problems: Sequence[Problem]
    responses: Sequence[ResponseRow]
    """Every worker alone on `problems`, at the pool's prices."""
    seed: int
    run: Callable[[Method, Sequence[Problem]], list[OutcomeRow]]
    """A method on training problems: rows by problem. It asks workers, and costs what they cost (`Asking.learning`)."""
    few_shots: Sequence[FewShot] = ()
    """Worked examples of workflows, of questions outside of the mix and of the test."""

    @property
    def accuracies(self) -> list[float]:
        """Each worker's share of right answers, by ordinal; unreachable ones left out."""
        made = []
        for name in self.team.names:
            own = [row.score >= 1.0 for row in self.responses if row.worker == name and row.status != "unreachable"]
            made.append(sum(own) / len(own) if own else 0.0)
        return made

    @property
    def ranking(self) -> list[int]:
        """The ordinals from the best single worker down, as `ops.precaching.profiles.ranked` has them."""
        from ops.precaching.profiles import ranked

        return [self.team.names.index(profile.worker) for profile in ranked(list(self.responses))]

    @property
    def best(self) -> int:
        """The ordinal of the best single worker. Raises `ValueError` without responses."""
        from ops.precaching.profiles import best_single

        return self.team.names.index(best_single(list(self.responses)).worker)
