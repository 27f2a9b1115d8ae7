"""Find a recipe's requirements that the machine, the pool or a file does not meet, with a remedy for each.

There is one module per part of a pipeline run; a new requirement is a function in its module's `REQUIREMENTS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ops.planning.plan import Plan
from ops.planning.requirements import data, evaluation, training, workers
from ops.planning.requirements.missing import Missing as Missing
from ops.planning.requirements.missing import Requirement

Need = Literal["data", "workers", "training", "evaluation"]
"""A part of a pipeline run."""
ALL_NEEDS: tuple[Need, ...] = ("data", "workers", "training", "evaluation")
_REQUIREMENTS: dict[Need, tuple[Requirement, ...]] = {
    "data": data.REQUIREMENTS,
    "workers": workers.REQUIREMENTS,
    "training": training.REQUIREMENTS,
    "evaluation": evaluation.REQUIREMENTS,
}


def missing(plan: Plan, needs: Iterable[Need] = ALL_NEEDS) -> list[Missing]:
    """All missing requirements of these parts of a pipeline run: those that prevent a start first, then by part. An
    untrained policy needs nothing for training."""
    wanted = set(needs) if plan.recipe.trains else set(needs) - {"training"}
    asked = (requirement for need in ALL_NEEDS if need in wanted for requirement in _REQUIREMENTS[need])
    found = dict.fromkeys(each for requirement in asked for each in requirement(plan))
    return sorted(found, key=lambda each: not each.refuses)
