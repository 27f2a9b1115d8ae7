"""Plan the least work that brings the champion up to date after a difference between two pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ops.workers.pool import PoolDifference

Training = Literal["never", "if it falls below the gate", "if a newcomer pays", "if below or if a newcomer pays"]
NEVER: Training = "never"
BELOW: Training = "if it falls below the gate"
PAYS: Training = "if a newcomer pays"
BELOW_OR_PAYS: Training = "if below or if a newcomer pays"
DESCRIBED, UNDESCRIBED = ", fine-tune if it pays", "; not offered: the champion has no worker descriptions"


@dataclass(frozen=True)
class RetrainingPlan:
    """The required work with reasons in words; if all fields are False or empty, no work is required.

    `precache`: workers whose responses must be made. `evaluate`: score the champion on the current pool. `costs`:
    reprice recorded tokens and judge by the new costs. `fine_tune`: the condition for training from the champion.
    """

    precache: tuple[str, ...] = ()
    evaluate: bool = False
    costs: bool = False
    fine_tune: Training = "never"
    reasons: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.precache or self.evaluate or self.costs)

    @property
    def offers_newcomers(self) -> bool:
        """Whether new workers are offered to the champion and in training that starts from it."""
        return self.fine_tune in (PAYS, BELOW_OR_PAYS)

    def __str__(self) -> str:
        """The reasons in one line for a log."""
        return "; ".join(self.reasons) or "nothing"


def plan(difference: PoolDifference, *, described: bool) -> RetrainingPlan:
    """The least work for a pool difference (docs/retraining.md), with names in alphabetical order.

    Removed worker: evaluate on the remaining pool; fine-tune if the champion is below the gate. New worker: precache
    its responses and evaluate; if the champion was trained with worker descriptions (`described`), fine-tune if the
    worker pays. Without descriptions, only training from the start can use a new worker. Worker whose answers can
    differ: precache again and evaluate; fine-tune if below the gate. New price: recompute costs, without calls or
    training. Order, tags and limits require no work.
    """
    groups = (difference.added, difference.affects_answers, difference.removed, difference.affects_price)
    added, changed, removed, repriced = (tuple(sorted(group)) for group in groups)
    reasons = {
        f"new: {', '.join(added)} (precache, evaluate{DESCRIBED if described else UNDESCRIBED})": added,
        f"changed: {', '.join(changed)} (precache, evaluate, fine-tune if below the gate)": changed,
        f"removed: {', '.join(removed)} (evaluate, fine-tune if below the gate)": removed,
        f"another price: {', '.join(repriced)} (costs)": repriced,
    }
    return RetrainingPlan(
        precache=tuple(sorted(added + changed)),
        evaluate=bool(added or removed or changed),
        costs=bool(repriced),
        fine_tune=_training(below=bool(removed or changed), pays=described and bool(added)),
        reasons=tuple(reason for reason, names in reasons.items() if names),
    )


def _training(*, below: bool, pays: bool) -> Training:
    if below:
        return BELOW_OR_PAYS if pays else BELOW
    return PAYS if pays else NEVER
