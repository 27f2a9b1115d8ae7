"""The workflows that exploration counts as reliable, and those that it tries next."""

from __future__ import annotations

from collections import Counter
from random import Random

from ops.training.cold_start.exploration import WorkflowTally
from ops.workflow.grammar import Step, Workflow

SURE, LUCKY, SOMETIMES, NEVER = (Workflow.single(ordinal) for ordinal in range(4))
LONG = Workflow((Step(0, "Read."), Step(1, "Solve.", "all")))
MATH = ("math", "algebra")


def tally() -> WorkflowTally:
    made = WorkflowTally()
    for workflow, tries, wins in ((SURE, 8, 8), (LUCKY, 1, 1), (SOMETIMES, 40, 20), (NEVER, 9, 0), (LONG, 1, 1)):
        for number in range(tries):
            made.count(MATH, workflow, number < wins)
    return made


def test_reliability_takes_more_than_one_lucky_try() -> None:
    made = tally()
    assert made.reliability(MATH, SURE) > made.reliability(MATH, LUCKY) > made.reliability(MATH, SOMETIMES)
    assert made.reliability(MATH, Workflow.single(9)) == 0.5  # never tried
    assert made.best(MATH) == [SURE, LUCKY, LONG, SOMETIMES]  # ties go to the shorter one


def test_workflows_with_proven_success_are_drawn_most_often() -> None:
    made, random = tally(), Random(1)
    drawn = Counter(made.promising(MATH, random) for _ in range(400))
    assert drawn[SURE] > 200
    assert drawn[SURE] > drawn[LUCKY] > drawn[SOMETIMES]
    assert drawn[NEVER] == 0
    assert made.promising(("math", "geometry"), random) is None
