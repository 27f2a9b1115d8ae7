"""What a difference between two pools requires: the least work that makes the champion true again."""

from __future__ import annotations

from dataclasses import dataclass

from ops.config import Pool


@dataclass(frozen=True)
class PoolDifference:
    """Names of the workers that differ between two pools, in alphabetical order.

    `changed` workers can answer differently (model, revision, sampling);
    `repriced` ones answer the same at another price.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    repriced: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed or self.repriced)


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


def difference(old: Pool, new: Pool) -> PoolDifference:
    """Compare two pools by workers' names. Their order and their limits (concurrency …) do not count."""
    before = {worker.name: worker for worker in old.workers}
    after = {worker.name: worker for worker in new.workers}
    both = sorted(before.keys() & after.keys())
    changed = tuple(name for name in both if before[name].identity != after[name].identity)
    return PoolDifference(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=changed,
        repriced=tuple(name for name in both if name not in changed and before[name].price != after[name].price),
    )


def plan(found: PoolDifference) -> Plan:
    """The least that suffices for a pool's difference (DESIGN.md, "Retraining").

    A removed worker: evaluate what is left. A new one: precache its column and
    fine-tune. A changed one: all of it. Another price changes no answer, so
    costs are computed again and nothing is asked or trained.
    """
    reasons = []
    if found.added:
        reasons.append(f"new: {', '.join(found.added)} (precache, fine-tune)")
    if found.changed:
        reasons.append(f"changed: {', '.join(found.changed)} (precache, fine-tune, evaluate)")
    if found.removed:
        reasons.append(f"removed: {', '.join(found.removed)} (evaluate)")
    if found.repriced:
        reasons.append(f"another price: {', '.join(found.repriced)} (costs)")
    return Plan(
        precache=tuple(sorted(found.added + found.changed)),
        fine_tune=bool(found.added or found.changed),
        evaluate=bool(found.removed or found.changed),
        costs=bool(found.repriced),
        reasons=tuple(reasons),
    )
