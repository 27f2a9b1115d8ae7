"""Baseline: a random worker for every question, as an exact expected value without sampling."""

from __future__ import annotations

from collections import defaultdict

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import Summary
from ops.evaluation.statistics import accuracy_estimate


@baseline("random worker", place=20)
def random_worker(answers: Answers) -> Standing:
    """Score the uniform draw over workers.

    A question's value is the mean over the reachable workers, after averaging each worker's samples. The standard error
    of the expected value is over questions. A question without a reachable worker is unscorable.
    """
    by_benchmark: dict[str, dict[str, dict[str, list[OutcomeRow]]]] = {}
    for row in map(OutcomeRow.of_response, answers.evaluation):
        questions = by_benchmark.setdefault(row.benchmark, {})
        workers = questions.setdefault(row.problem_id, defaultdict(list))
        if not row.unscorable:
            workers[row.workers[0]].append(row)
    return Standing({benchmark: _summary(benchmark, questions) for benchmark, questions in by_benchmark.items()})


def _summary(benchmark: str, questions: dict[str, dict[str, list[OutcomeRow]]]) -> Summary:
    scored = [list(workers.values()) for workers in questions.values() if workers]

    def mean(field: str) -> float:
        values = [_draw(groups, field) for groups in scored]
        return sum(values) / len(values) if values else float("nan")

    return Summary(
        benchmark=benchmark,
        accuracy=accuracy_estimate([_draw(groups, "correct") for groups in scored]),
        rows=len(questions),
        unscorable=len(questions) - len(scored),
        tokens=mean("tokens"),
        cost_usd=mean("cost_usd"),
        latency_s=mean("latency_s"),
        steps=1.0,
        format_compliance=1.0,
        multi_worker_share=0.0,
    )


def _draw(groups: list[list[OutcomeRow]], field: str) -> float:
    means = [sum(float(getattr(row, field)) for row in group) / len(group) for group in groups]
    return sum(means) / len(means)
