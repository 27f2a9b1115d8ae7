"""The vote over several workflows of one question: how many to run next, and whose answer counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from ops.config import Vote
from ops.core.problem import Problem
from ops.grading.answer_clusters import find_largest_cluster


@dataclass
class Ballot:
    """The answers to one question so far, in the order of its workflows."""

    problem: Problem
    max_workflows: int = 1
    """The most workflows that answer the question."""
    required_agreement: int = 1
    """The number of equal answers that ends the vote."""
    answers: list[str | None] = field(default_factory=list)
    """None: the workflow gave no answer."""
    waves: list[int] = field(default_factory=list)
    """The number of workflows that ran at once, wave after wave."""

    @classmethod
    def for_problem(cls, problem: Problem, vote: Vote) -> Ballot:
        """Make an empty ballot of a question."""
        return cls(problem, vote.workflows, vote.enough)

    def next_workflows(self) -> range:
        """Return the numbers of the workflows to run now, side by side; empty once the answer stands.

        These are as many as the most frequent answer still lacks. Fewer cannot end the vote, so that running them side
        by side costs no more than running them one after another.
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
        """Add the answers of a wave."""
        self.answers += answers
        self.waves.append(len(answers))

    @property
    def winners(self) -> list[int]:
        """The numbers of the workflows whose answer counts; the first of all if none has an answer."""
        return [0] if len(self.answers) == 1 else find_largest_cluster(self.problem, self.answers) or [0]
