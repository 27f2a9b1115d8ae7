"""Majority vote over the answers of several workflows for one question.

The vote decides how many workflows run next and which answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ops.config import Vote
from ops.core.problem import Problem
from ops.grading.answer_clusters import find_largest_cluster


@dataclass
class Ballot:
    """Collects the answers that the workflows of one question have given so far."""

    problem: Problem
    """The question that the workflows answer."""
    max_workflows: int = 1
    """The largest number of workflows that may run for the question."""
    required_agreement: int = 1
    """The number of equal answers that ends the vote."""
    answers: list[str | None] = field(default_factory=list)
    """The answers in the order of the workflows. A workflow that gave no answer has None."""
    waves: list[int] = field(default_factory=list)
    """The number of workflows in each wave; the workflows of a wave run at the same time."""

    @classmethod
    def for_problem(cls, problem: Problem, vote: Vote) -> Ballot:
        """Return an empty ballot for a question with the limits that the settings `vote` give."""
        return cls(problem, vote.workflows, vote.needed_votes)

    def next_workflows(self) -> range:
        """Return the numbers of the workflows to run in the next wave; the range is empty when the vote is decided.

        A wave has as many workflows as the most frequent answer still needs to reach `required_agreement`. Fewer
        workflows could not end the vote, so running them at the same time costs no more than running them one after
        another.
        """
        begun = len(self.answers)
        if begun == self.max_workflows:
            return range(begun, begun)
        return range(
            begun,
            max(
                begun,
                min(
                    self.max_workflows,
                    begun + self.required_agreement - len(find_largest_cluster(self.problem, self.answers)),
                ),
            ),
        )

    def add_answers(self, answers: list[str | None]) -> None:
        """Add the answers of one wave, in the order of its workflows."""
        self.answers += answers
        self.waves.append(len(answers))

    @property
    def winners(self) -> list[int]:
        """Return the numbers of the workflows that gave the most frequent answer, or [0] if no workflow gave one."""
        return [0] if len(self.answers) == 1 else find_largest_cluster(self.problem, self.answers) or [0]
