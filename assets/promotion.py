"""`promotion`: whether the challenger has earned the place of the champion."""

import dagster as dg

from assets import metadata
from assets.registered_model import registered_model
from assets.resources import Podium
from ops import registry
from ops.config import load_gate
from ops.evaluation.stage import compare
from ops.promotion import decide


@dg.asset(deps=[registered_model], group_name="release", kinds={"mlflow"})
def promotion(podium: Podium) -> dg.MaterializeResult:
    """Champion or not, by config/promotion.yaml: paired tests against champion and best worker, cost, format."""
    setup = podium.load()
    workspace = setup.workspace
    challenger, champion = registry.challenger(workspace), registry.champion(workspace)
    if challenger is None:
        raise registry.RegistryError("There is no challenger. Materialize registered_model first")
    found = compare(*setup)
    theirs = registry.score_rows(workspace, champion) if champion else None
    verdict = decide(found.conductor, theirs, found.best_worker_rows, load_gate(workspace.config))
    promoted = registry.promote(workspace, challenger.version, verdict)
    checks = [
        ("✓" if one.passed else "✗", one.name, f"{one.value:.4g}", f"{one.bound:.4g}", one.explanation)
        for one in verdict.checks
    ]
    return dg.MaterializeResult(
        metadata={
            "promoted": promoted,
            "version": challenger.version,
            "checks": metadata.table(("", "check", "value", "bound", "what it says"), checks),
        }
    )
