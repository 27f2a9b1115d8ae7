"""Scores of two systems on the questions that both answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ops.core.problem import benchmark_of
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import (
    Interval,
    MeanEstimate,
    accuracy_estimate,
    mcnemar,
    mean_of,
    score_interval,
)


class Pairs:
    """Two systems' rows on the questions that both scored; repeats of a question are averaged."""

    def __init__(self, ours: Sequence[OutcomeRow], theirs: Sequence[OutcomeRow]) -> None:
        self.ours, self.theirs = _by_question(ours), _by_question(theirs)
        self.questions = sorted(self.ours.keys() & self.theirs.keys())

    def of(self, benchmark: str) -> Pairs:
        """The pairs of one benchmark alone."""
        ours, theirs = (
            [row for question, rows in side.items() if benchmark_of(question) == benchmark for row in rows]
            for side in (self.ours, self.theirs)
        )
        return Pairs(ours, theirs)

    def strata(self) -> dict[str, list[float]]:
        """Differences of accuracy by benchmark."""
        return {
            name: [
                self._mean(self.ours, question, "correct") - self._mean(self.theirs, question, "correct")
                for question in own
            ]
            for name, own in self._by_benchmark().items()
        }

    def gain(self, confidence: float) -> Interval:
        """Difference of the mean accuracies, every benchmark weighing the same."""
        return score_interval(list(self.strata().values()), confidence=confidence)

    def accuracies(self) -> tuple[MeanEstimate, MeanEstimate]:
        """Return the means of both systems over the benchmarks, with their 95 % intervals."""
        return self._accuracy(self.ours), self._accuracy(self.theirs)

    def vectors(self) -> tuple[list[float], list[float]]:
        """Return the scores of both systems, question by question."""
        return (
            [self._mean(self.ours, question, "correct") for question in self.questions],
            [self._mean(self.theirs, question, "correct") for question in self.questions],
        )

    def discordance(self) -> str:
        """Return in words the number of questions that only one of the two systems answered correctly."""
        test = mcnemar(*self.vectors())
        pairs = f"{test.gains} gains and {test.losses} losses of {len(self.questions)}"
        return f"{pairs}, McNemar p = {test.p_value:.3g}"

    def means(self, field: str) -> tuple[float, float]:
        """Return the means of both systems per question."""
        ours = [self._mean(self.ours, question, field) for question in self.questions]
        theirs = [self._mean(self.theirs, question, field) for question in self.questions]
        return sum(ours) / len(ours), sum(theirs) / len(theirs)

    def _by_benchmark(self) -> dict[str, list[str]]:
        questions: dict[str, list[str]] = defaultdict(list)
        for question in self.questions:
            questions[benchmark_of(question)].append(question)
        return questions

    def _accuracy(self, side: dict[str, list[OutcomeRow]]) -> MeanEstimate:
        strata = self._by_benchmark().values()
        return mean_of([
            accuracy_estimate([self._mean(side, question, "correct") for question in own]) for own in strata
        ])  # fmt: skip

    @staticmethod
    def _mean(side: dict[str, list[OutcomeRow]], question: str, field: str) -> float:
        rows = side[question]
        return sum(float(getattr(row, field)) for row in rows) / len(rows)


def _by_question(rows: Sequence[OutcomeRow]) -> dict[str, list[OutcomeRow]]:
    scored: dict[str, list[OutcomeRow]] = defaultdict(list)
    for row in rows:
        if not row.unscorable:
            scored[row.problem_key].append(row)
    return dict(scored)
