"""What a difference between two pools requires: the least work that makes the champion true again."""

from __future__ import annotations

from dataclasses import dataclass

from ops.workers.pool import PoolDifference


@dataclass(frozen=True)
class Plan:
    """What to do, and why in words. Every field False or empty: nothing.

    `precache` names the workers whose column of responses must be made;
    `fine_tune` continues training from the champion, `evaluate` scores it again, `costs`
    computes what recorded tokens cost at the new prices.
    """

    precache: tuple[str, ...] = ()
    fine_tune: bool = False
    evaluate: bool = False
    costs: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.precache or self.fine_tune or self.evaluate or self.costs)

    @property
    def costs_only(self) -> bool:
        """Whether no answer can have changed: nothing is asked, written or trained again."""
        return self.costs and not (self.precache or self.fine_tune or self.evaluate)


def plan(difference: PoolDifference) -> Plan:
    """The least that suffices for a pool's difference (docs/release.md, "Retraining"); names in alphabetical order.

    A removed worker: evaluate what is left. A new one: precache its column and
    fine-tune. One that can answer differently: all of it. Another price changes no answer, so
    costs are computed again and nothing is asked or trained. Order, tags and limits require nothing.
    """
    groups = (difference.added, difference.affects_answers, difference.removed, difference.affects_price)
    added, changed, removed, repriced = (tuple(sorted(group)) for group in groups)
    reasons = {
        f"new: {', '.join(added)} (precache, fine-tune)": added,
        f"changed: {', '.join(changed)} (precache, fine-tune, evaluate)": changed,
        f"removed: {', '.join(removed)} (evaluate)": removed,
        f"another price: {', '.join(repriced)} (costs)": repriced,
    }
    return Plan(
        precache=tuple(sorted(added + changed)),
        fine_tune=bool(added or changed),
        evaluate=bool(removed or changed),
        costs=bool(repriced),
        reasons=tuple(reason for reason, names in reasons.items() if names),
    )
