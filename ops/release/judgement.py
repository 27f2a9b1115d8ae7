"""From a challenger to a verdict: who its champion is, and which look at it this is."""

from __future__ import annotations

from collections.abc import Sequence

from ops.config import PromotionGate, Setup
from ops.evaluation.runner import ScoreRow
from ops.evaluation.scores import at_prices
from ops.release import registry
from ops.release.promotion import GateDecision, decide


def judge(
    setup: Setup,
    challenger: registry.Registered,
    rows: Sequence[ScoreRow],
    best_worker: Sequence[ScoreRow],
    gate: PromotionGate,
) -> GateDecision:
    """Judge the challenger's rows by the gate, against the champion at the pool's prices; the look is recorded first.

    Of the champion itself, what was decided when it was promoted: nothing is learned by comparing it with itself.
    Raises `RegistryError` when the challenger's version does not exist.
    """
    champion = registry.champion(setup.workspace)
    if champion is not None and champion.version == challenger.version:
        return registry.recorded_decision(setup.workspace, champion.version)
    theirs = at_prices(registry.score_rows(setup.workspace, champion), setup.pool) if champion else None
    look = registry.look_at(setup.workspace, champion, challenger.version)
    return decide(rows, theirs, best_worker, gate, look=look)
