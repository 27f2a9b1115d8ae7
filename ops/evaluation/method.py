"""Methods other than a Conductor: the workflows that a method runs for a question, and the choice among their answers.

At the end are the workflows and the votes that several baselines share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.grading.answer_clusters import find_largest_cluster
from ops.results.outcome_rows import OutcomeRow
from ops.workflow.few_shots import FewShot
from ops.workflow.grammar import SOLVE_SUBTASK, ParseResult, Step, Workflow
from ops.workflow.team import Team

Branches = tuple[Workflow, ...]
"""Workflows that run side by side for one question. A vote over five samples has five equal branches."""


class Attempt(NamedTuple):
    """A question with the answer of each branch; an answer is None if a worker refused or a context was too long.

    `answers` is empty if the method's author wrote no valid workflow.
    """

    problem: Problem
    answers: tuple[str | None, ...]


def choose_first(attempts: Sequence[Attempt]) -> list[int]:
    """Choose the first branch of every question."""
    return [0] * len(attempts)


class WorkflowAuthor(NamedTuple):
    """A worker that writes each question's workflow, as a Conductor does; `parse` reads its completion."""

    worker: int
    prompt: Callable[[Problem], str]
    parse: Callable[[str], ParseResult]


@dataclass(frozen=True)
class Method:
    """A way to answer the questions of a benchmark.

    `branches` maps the questions of one benchmark and the repeat to the workflows of each question, with the team's
    ordinals and of any length. `choose` maps the answers of the whole benchmark to the index of the branch that is
    graded for each question; it must not use gold answers.
    """

    branches: Callable[[Sequence[Problem], int], Sequence[Branches]]
    choose: Callable[[Sequence[Attempt]], Sequence[int]] = choose_first
    detail: str = ""
    """What the method chose or learned, in a few words, for the heading of its column."""
    agreeing_answers: int | None = None
    """The number of equal answers after which no further branch runs; None runs all branches at once."""
    author: WorkflowAuthor | None = None
    """The worker that writes the workflows in place of `branches`. An invalid completion counts as wrong, and its cost
    counts."""

    @classmethod
    def static(cls, workflow: Workflow, detail: str = "") -> Method:
        """Make a method that runs the same workflow for every question."""
        return cls.samples(workflow, 1, detail=detail)

    @classmethod
    def samples(
        cls, workflow: Workflow, count: int, choose: Callable[[Sequence[Attempt]], Sequence[int]] = choose_first,
        detail: str = "",
    ) -> Method:  # fmt: skip
        """Make a method that runs the same workflow `count` times for every question, each time with new answers."""
        return cls(lambda problems, repeat: [(workflow,) * count] * len(problems), choose, detail)

    @classmethod
    def side_by_side(cls, workflows: Branches, choose: Callable[[Sequence[Attempt]], Sequence[int]]) -> Method:
        """Make a method that runs the same workflows side by side for every question."""
        return cls(lambda problems, repeat: [workflows] * len(problems), choose)

    @classmethod
    def routed(cls, route: Callable[[Sequence[Problem]], Sequence[Workflow]], detail: str = "") -> Method:
        """Make a method that runs one workflow per question, which `route` chooses from the questions alone."""
        return cls(lambda problems, repeat: [(workflow,) for workflow in route(problems)], choose_first, detail)

    @classmethod
    def authored(cls, author: WorkflowAuthor, detail: str = "") -> Method:
        """Make a method that runs one workflow per question, which a worker writes."""
        return cls(lambda problems, repeat: [()] * len(problems), choose_first, detail, author=author)


@dataclass(frozen=True)
class TrainingData:
    """The data that a baseline may learn from: the training mix and the workers' responses to it, never the test
    questions."""

    team: Team
    """The pool's workers by ordinal; `responses` refers to the same names."""
    problems: Sequence[Problem]
    responses: Sequence[ResponseRow]
    """The own responses of every worker to `problems`, at the pool's prices."""
    seed: int
    run_method: Callable[[Method, Sequence[Problem]], list[OutcomeRow]]
    """Runs a method on training problems and returns rows by problem. The calls cost money;
    `WorkflowBaseline.learning_calls` states how many there are."""
    few_shots: Sequence[FewShot] = ()
    """Worked examples of workflows, for questions outside the mix and the test."""

    @property
    def accuracies(self) -> list[float]:
        """Each worker's share of right answers, by ordinal; unreachable responses are left out."""
        made = []
        for name in self.team.names:
            own = [row.score >= 1.0 for row in self.responses if row.worker == name and row.status != "unreachable"]
            made.append(sum(own) / len(own) if own else 0.0)
        return made

    @property
    def ranking(self) -> list[int]:
        """The workers' ordinals from best to worst, in the order of `ops.precaching.profiles.rank_workers`."""
        from ops.precaching.profiles import rank_workers

        return [self.team.names.index(profile.worker) for profile in rank_workers(list(self.responses))]

    @property
    def best_worker(self) -> int:
        """The ordinal of the best single worker. Raises `ValueError` without responses."""
        from ops.precaching.profiles import find_best_worker

        return self.team.names.index(find_best_worker(list(self.responses)).worker)


CHECK = "Check the answer."
CONTINUE = "Go on from the work so far, check it, and give the complete answer."
AGGREGATE = (
    "Check the proposed answers against each other and give, complete and in the form asked for, the answer that is "
    "most likely right."
)
PROPOSERS = 7
"""The largest number of proposers in a mixture, which is the size of the paper's pool."""


def make_checked_workflow(solver: int, checker: int) -> Workflow:
    """Return a workflow in which one worker solves the question and one checks the answer."""
    return Workflow((Step(solver, SOLVE_SUBTASK), Step(checker, CHECK, "all")))


def make_chain(workers: Sequence[int]) -> Workflow:
    """Return a workflow in which the first worker solves, and each other worker continues from all earlier
    responses."""
    first, *others = workers
    return Workflow((Step(first, SOLVE_SUBTASK), *(Step(worker, CONTINUE, "all") for worker in others)))


def make_mixture(proposers: Sequence[int], aggregator: int) -> Workflow:
    """Return a one-layer Mixture-of-Agents (arXiv:2406.04692): independent proposers, then an aggregator."""
    return Workflow((*(Step(worker, SOLVE_SUBTASK) for worker in proposers), Step(aggregator, AGGREGATE, "all")))


VOTERS = 5
"""The number of samples in a vote."""


def choose_majority(attempts: Sequence[Attempt]) -> list[int]:
    """Return for each question the first branch with the most frequent answer; of equally frequent answers the first
    given.

    A branch without an answer does not vote. If no branch has an answer, the first branch is chosen and counts as
    wrong.
    """
    return [(find_largest_cluster(attempt.problem, attempt.answers) or [0])[0] for attempt in attempts]


def vote_over_samples(worker: int, detail: str = "", voters: int = VOTERS) -> Method:
    """Return a method that votes over several samples of one worker."""
    return Method.samples(Workflow.single(worker), voters, choose_majority, detail)


def vote_over_workers(workers: Sequence[int], names: Sequence[str] = ()) -> Method:
    """Return a method that votes over one answer of each worker; of equally frequent answers that of the first worker
    counts.

    `names` are the workers' names by ordinal, for the heading of the column.
    """
    method = Method.side_by_side(tuple(Workflow.single(worker) for worker in workers), choose_majority)
    return replace(method, detail=" + ".join(names[worker] for worker in workers)) if names else method
