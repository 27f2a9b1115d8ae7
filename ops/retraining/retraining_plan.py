"""Plan the least work that brings the champion up to date after a difference between two pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ops.workers.pool import PoolDifference

TrainingCondition = Literal[
    "never", "if it falls below the gate", "if a newcomer pays", "if below or if a newcomer pays"
]
"""The condition for training: never, if the champion fails the gate, if a new worker pays, or if either holds."""
NEVER: TrainingCondition = "never"
BELOW: TrainingCondition = "if it falls below the gate"
PAYS: TrainingCondition = "if a newcomer pays"
BELOW_OR_PAYS: TrainingCondition = "if below or if a newcomer pays"
DESCRIBED, UNDESCRIBED = ", fine-tune if it pays", "; not offered: the champion has no worker descriptions"


@dataclass(frozen=True)
class RetrainingPlan:
    """The work that a change of the pool requires, with reasons in words. If all fields are False or empty, no work is
    required.

    `precache` are the workers that must be asked the stored questions. `evaluate` is true if the champion must be
    scored on the current pool. `costs` is true if recorded tokens must be priced anew. `fine_tune` is the condition for
    training that starts from the champion.
    """

    precache: tuple[str, ...] = ()
    evaluate: bool = False
    costs: bool = False
    fine_tune: TrainingCondition = "never"
    reasons: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the plan requires no work."""
        return not (self.precache or self.evaluate or self.costs)

    @property
    def offers_newcomers(self) -> bool:
        """Return whether new workers are offered to the champion, and in training that starts from it."""
        return self.fine_tune in (PAYS, BELOW_OR_PAYS)

    def __str__(self) -> str:
        """The reasons in one line for a log."""
        return "; ".join(self.reasons) or "nothing"


def plan_retraining(difference: PoolDifference, *, has_descriptions: bool) -> RetrainingPlan:
    """Return the least work that a difference between two pools requires (docs/retraining.md). Names are sorted
    alphabetically.

    A removed worker requires an evaluation on the remaining pool, and training if the champion falls below the gate. A
    new worker requires its responses and an evaluation; if the champion was trained with descriptions of workers
    (`has_descriptions`), also training if the worker pays. Without descriptions, only a training from the start can use
    a new worker. A worker whose answers can differ requires new responses and an evaluation, and training if the
    champion falls below the gate. A new price requires costs to be computed again, without calls or training. Order,
    tags and limits of workers require nothing.
    """
    groups = (difference.added, difference.affects_answers, difference.removed, difference.affects_price)
    added, changed, removed, repriced = (tuple(sorted(group)) for group in groups)
    reasons = {
        f"new: {', '.join(added)} (precache, evaluate{DESCRIBED if has_descriptions else UNDESCRIBED})": added,
        f"changed: {', '.join(changed)} (precache, evaluate, fine-tune if below the gate)": changed,
        f"removed: {', '.join(removed)} (evaluate, fine-tune if below the gate)": removed,
        f"another price: {', '.join(repriced)} (costs)": repriced,
    }
    return RetrainingPlan(
        precache=tuple(sorted(added + changed)),
        evaluate=bool(added or removed or changed),
        costs=bool(repriced),
        fine_tune=_training_condition(below=bool(removed or changed), pays=has_descriptions and bool(added)),
        reasons=tuple(reason for reason, names in reasons.items() if names),
    )


def _training_condition(*, below: bool, pays: bool) -> TrainingCondition:
    if below:
        return BELOW_OR_PAYS if pays else BELOW
    return PAYS if pays else NEVER
