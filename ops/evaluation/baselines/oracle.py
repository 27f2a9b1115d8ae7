"""The oracle over single workers: for every question the worker that answers it, known with hindsight.

No system that sends a question to one worker can beat it, so a Conductor above it has made workers do together what
none of them does alone.
"""

from __future__ import annotations

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import summarize
from ops.precaching import profiles


@baseline("oracle", place=30)
def oracle(answers: Answers) -> Standing:
    """`profiles.oracle` on the evaluation questions."""
    return Standing(summarize(map(OutcomeRow.of_response, profiles.oracle(answers.evaluation))))
