"""Baseline: the oracle over single workers, which chooses a worker for every question.

With several answers of each worker, the worker of one answer is chosen by the other answers. With one answer it is
chosen with hindsight, which rewards luck: the column is then called an upper bound, and the column beside it has what
chance alone gives workers of the same accuracies. A Conductor with a higher score than the upper bound combines workers
to solve questions that no single worker solves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ops.core.response_rows import ResponseRow
from ops.evaluation.baseline import BaselineScores, SoloResponses, computed_baseline
from ops.precaching import profiles
from ops.results.measures import UNKNOWN
from ops.results.statistics import (
    MeanEstimate,
    OracleEstimate,
    choose_workers,
    estimate_oracle,
    estimate_prior_weight,
    iterate_folds,
)
from ops.results.summary import Summary, summarize
from ops.results.table import response_rows_as_scores

UPPER_BOUND, BY_CHANCE = "upper bound", "by chance"
_UNKNOWN = float("nan")


@computed_baseline("oracle", position=30)
def oracle(answers: SoloResponses) -> Sequence[BaselineScores]:
    """The worker that is best at each question, judged by its other answers to that question, answers it.

    Where a benchmark has one answer of each worker, there are two columns instead: the choice with hindsight, which is
    an upper bound, and what it reaches by chance.
    """
    rows = answers.evaluation
    found = estimate_oracles(rows)
    fair = {name: each.cross_fitted for name, each in found.items() if each.cross_fitted is not None}
    if len(fair) == len(found):
        chosen = summarize(response_rows_as_scores(_select_cross_fitted(rows)))
        return [BaselineScores({name: replace(chosen[name], accuracy=accuracy) for name, accuracy in fair.items()})]
    lucky = {name: each.by_chance if each.cross_fitted is None else _UNKNOWN for name, each in found.items()}
    return [
        BaselineScores(summarize(response_rows_as_scores(profiles.select_oracle_rows(rows))), UPPER_BOUND),
        BaselineScores(
            {name: _summarize_accuracy_only(name, share, found[name].plain.n) for name, share in lucky.items()},
            BY_CHANCE,
        ),
    ]


def estimate_oracles(rows: Sequence[ResponseRow]) -> dict[str, OracleEstimate]:
    """Return benchmark → the estimates of the oracle over all workers that have rows."""
    found = profiles.tabulate_scores(rows, sorted({row.worker for row in rows}))
    return {name: estimate_oracle(own.scores) for name, own in found.items()}


def _select_cross_fitted(rows: Sequence[ResponseRow]) -> Iterator[ResponseRow]:
    """Yield for each question and repeat the answer of the worker that the other repeats choose; of equal workers the
    cheapest."""
    workers = sorted({row.worker for row in rows})
    known = {(row.problem_key, row.worker, row.sample): row for row in rows}
    for own in profiles.tabulate_scores(rows, workers).values():
        prior = estimate_prior_weight([own.scores])
        for sample, fold in enumerate(iterate_folds([own.scores])):
            [chosen] = choose_workers(fold, prior)
            for problem, line in zip(own.problems, chosen, strict=True):
                equals = [known[problem, workers[place], sample] for place in np.flatnonzero(line)]
                if equals:
                    yield min(equals, key=lambda row: (row.response.cost_usd, row.worker))


def _summarize_accuracy_only(benchmark: str, accuracy: float, questions: int) -> Summary:
    estimate = MeanEstimate(accuracy, _UNKNOWN, questions)
    return Summary(benchmark, estimate, 0, 0, UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN)
