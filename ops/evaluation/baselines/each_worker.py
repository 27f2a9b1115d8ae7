"""Every worker alone, each a system of its own."""

from __future__ import annotations

from ops.evaluation.alone import of_worker
from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.runner import summarize


# As many columns as workers: only where a recipe asks for them.
@baseline("alone", place=5, usual=False)
def each_worker(answers: Answers) -> list[Standing]:
    """In the order in which the answers name them, which is the pool's."""
    names = dict.fromkeys(row.worker for row in answers.evaluation)
    return [Standing(summarize(of_worker(answers.evaluation, name)), name) for name in names]
