"""Baseline: a random worker for every question, as an exact expected value without sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.evaluation.baseline import BaselineScores, SoloResponses, computed_baseline
from ops.results.measures import MEANS, UNKNOWN
from ops.results.statistics import estimate_accuracy, estimate_mean
from ops.results.summary import (
    MEAN_COLUMNS,
    QUESTION_KEY,
    Summary,
    average_by_question,
    count_questions,
    select_benchmark,
)
from ops.results.table import response_rows_as_scores

if TYPE_CHECKING:
    import polars as pl


@computed_baseline("random worker", position=20)
def random_worker(answers: SoloResponses) -> BaselineScores:
    """A worker that is drawn at random for each question answers it.

    A question's value is the mean over the reachable workers, after averaging each worker's samples. The standard error
    of the expected value is over questions. A question without a reachable worker is unscorable.
    """
    import polars as pl

    worker = pl.col("workers").list.first().alias("worker")
    rows = response_rows_as_scores(answers.evaluation)
    # Each worker's samples are averaged first, because each worker is drawn with the same probability.
    drawn = (
        average_by_question(rows, worker).group_by(QUESTION_KEY, maintain_order=True).agg(pl.col(*MEAN_COLUMNS).mean())
    )
    return BaselineScores(
        {name: _summary(name, count, select_benchmark(drawn, name)) for name, count in count_questions(rows).items()}
    )


def _summary(benchmark: str, questions: int, drawn: pl.DataFrame) -> Summary:
    # A percentile of a draw among workers does not follow from the questions' means.
    means = {measure.name: estimate_mean(drawn[measure.name]).mean for measure in MEANS}
    return Summary(
        benchmark=benchmark,
        accuracy=estimate_accuracy(drawn["correct"]),
        rows=questions,
        unscorable=questions - drawn.height,
        values=UNKNOWN | means,
        steps=1.0,
        format_compliance=1.0,
        multi_worker_share=0.0,
    )
