"""What a difference between two pools requires: the least work that brings the champion up to date."""

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
    """Required work, with reasons in words. Every field False or empty: there is none.

    `precache` names the workers whose column of responses must be made; `evaluate` scores the champion on the pool as
    it is now; `costs` computes what recorded tokens cost at the new prices and judges by them; `fine_tune`: the
    condition for training that starts from the champion.
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
        """Whether new workers are offered to the champion, and to a training that starts from it."""
        return self.fine_tune in (PAYS, BELOW_OR_PAYS)

    @property
    def costs_only(self) -> bool:
        """Whether no answer can have changed: nothing is asked, written or trained again."""
        return self.costs and not self.evaluate

    def __str__(self) -> str:
        """One line for a log."""
        return "; ".join(self.reasons) or "nothing"


def plan(difference: PoolDifference, *, described: bool) -> RetrainingPlan:
    """The least that suffices for a pool's difference (docs/release.md); names in alphabetical order.

    A removed worker: evaluate what is left, fine-tune if that is below the gate. A new one: precache its column,
    evaluate, and fine-tune if it pays where the champion was trained with worker descriptions (`described`); a
    champion without them cannot use a new worker, and only training from the start can. One that can answer
    differently: precache again, evaluate, fine-tune if below. Another price changes no answer, so costs are computed
    again and nothing is asked or trained. Order, tags and limits require nothing.
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
