"""`promotion`: whether the challenger has earned the place of the champion."""

import dagster as dg

from assets import metadata
from assets.recursive_conductor import final_run
from assets.registered_model import registered_model
from assets.resources import Podium
from ops.evaluation.comparison import stored_comparison
from ops.release import registry
from ops.release.judgement import judge


@dg.asset(deps=[registered_model], group_name="release", kinds={"mlflow"})
def promotion(podium: Podium) -> dg.MaterializeResult:
    """Champion or not, by config/promotion.yaml: paired tests against champion and best worker, cost, format."""
    setup = podium.load()
    scores = stored_comparison(setup, final_run(podium) / "policy")
    challenger = registry.challenger_of(setup.workspace, scores.policy)
    verdict = judge(setup, challenger, scores.conductor, scores.best_worker_rows, podium.snapshot().gate)
    promoted = registry.promote(setup.workspace, challenger.version, verdict)
    checks = [
        ("✓" if check.passed else "✗", check.name, f"{check.value:.4g}", f"{check.bound:.4g}", check.explanation)
        for check in verdict.checks
    ]
    return dg.MaterializeResult(
        metadata={
            "promoted": promoted,
            "version": challenger.version,
            "look": verdict.look,
            "checks": metadata.table(("passed", "check", "value", "bound", "what it says"), checks),
        }
    )
