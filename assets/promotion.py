"""`promotion`: the gate's decision whether the challenger becomes champion."""

import dagster as dg

from assets import metadata
from assets.leaderboard import leaderboard
from assets.recursive_conductor import get_final_policy_folder
from assets.registered_model import registered_model
from assets.resources import RunResource
from ops.core.charts import render_png
from ops.reports.decision_page import draw_differences, make_comparison_table
from ops.retraining.story import finish_record
from ops.stages.release import judge_and_promote


@dg.asset(deps=[leaderboard, registered_model], group_name="release", kinds={"mlflow"})
def promotion(podium: RunResource) -> dg.MaterializeResult:
    """Decide whether the new version becomes the champion. config/promotion.yaml has the conditions: paired tests
    against the champion and the best worker, cost and valid workflows."""
    setup, snapshot = podium.load_setup(), podium.get_snapshot()
    outcome = judge_and_promote(setup, get_final_policy_folder(podium), snapshot.gate)
    facts: dict[str, dg.MetadataValue | str | bool | int] = {
        "promoted": outcome.is_champion,
        "version": outcome.version,
        "analysis": outcome.decision.analysis,
        "report": dg.MetadataValue.path(outcome.page),
        **metadata.describe_checks(outcome.decision.checks),
    }
    if snapshot.change is not None:
        facts["fine_tuned_from_version"] = snapshot.change.version
        if (page := finish_record(setup.workspace, snapshot.key, outcome.version)) is not None:
            facts["story"] = dg.MetadataValue.path(page)
    if outcome.dossier is not None:
        if outcome.dossier.pool_change:
            facts["pool_change"] = outcome.dossier.pool_change
        for opponent in outcome.dossier.opponents:
            if opponent.pairings:
                shown = make_comparison_table(opponent, outcome.dossier.confidence)
                picture = render_png(draw_differences(opponent, outcome.dossier.confidence))
                facts[f"against_the_{opponent.name}"] = metadata.fold_table(shown.head, shown.rows)
                facts[f"differences_to_the_{opponent.name}"] = metadata.embed_png("paired differences", picture)
    return dg.MaterializeResult(metadata=facts)
