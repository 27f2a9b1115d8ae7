"""Baseline: the oracle over single workers, which chooses the right worker for every question with hindsight.

No system that sends each question to one worker can beat it. A Conductor with a higher score combines
workers to solve questions that no single worker solves.
"""

from __future__ import annotations

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import summarize
from ops.precaching import profiles


@baseline("oracle", place=30)
def oracle(answers: Answers) -> Standing:
    """Score `profiles.oracle` on the evaluation questions."""
    return Standing(summarize(map(OutcomeRow.of_response, profiles.oracle(answers.evaluation))))
