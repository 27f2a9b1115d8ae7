"""Apply the guards to the files of a training run."""

from __future__ import annotations

from pathlib import Path

from ops.config import Setup
from ops.core.errors import DataError
from ops.training.guards import GuardEvidence, GuardFinding, guard_all
from ops.training.run.plan import CURVE, RunPlan, read_curve
from ops.workflow.cards import load_cards


def guard_run(setup: Setup, folder: Path) -> list[GuardFinding]:
    """All guards' findings on the run in `folder`, at the recipe's current thresholds.

    Raises `DataError` if the run has no step yet.
    """
    if not (rows := read_curve(folder)):
        raise DataError(folder / CURVE, "", "has no training step", "Train first: materialize conductor")
    offered = RunPlan.read(folder).offered
    return guard_all(GuardEvidence(rows, setup.recipe.guards, _alone(setup, offered)))


def _alone(setup: Setup, offered: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Domain → worker → solo accuracy; empty unless the profiles contain all offered workers."""
    try:
        cards = load_cards(setup.workspace.data, offered)
    except DataError:
        return {}
    alone: dict[str, dict[str, float]] = {}
    for name, card in zip(offered, cards, strict=True):
        for domain, accuracy in card.accuracy.items():
            alone.setdefault(domain, {})[name] = accuracy
    return alone
