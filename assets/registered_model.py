"""`registered_model`: the Conductor as a version in MLflow, with its lineage."""

import math

import dagster as dg

from assets.leaderboard import leaderboard
from assets.recursive_conductor import get_final_policy_folder, list_training_runs
from assets.resources import RunResource
from ops import versioning
from ops.core.errors import PodiumError
from ops.evaluation.comparison import read_comparison
from ops.release import registry
from ops.release.lineage import COST_TAGS, FINE_TUNED_FROM, Lineage, format_keys
from ops.spending.ledger import open_ledger
from ops.training.run.tracking import find_tracked_checkpoint, find_tracked_run
from ops.training.run.training_run import RunResult


@dg.asset(deps=[leaderboard], group_name="release", kinds={"mlflow"})
def registered_model(podium: RunResource) -> dg.MaterializeResult:
    """Register the Conductor in MLflow as a version with the alias challenger. The same policy with the same scores is
    not registered twice."""
    setup = podium.load_setup()
    workspace, recipe, pool = setup.workspace, setup.recipe, setup.pool
    policy = get_final_policy_folder(podium)
    runs = list_training_runs(podium)
    results = [RunResult.read(each) for each in runs.values()]
    trained = [result for result in results if result is not None]
    if len(trained) < len(results):
        raise PodiumError(f"{policy}: holds no finished training. Materialize {', '.join(runs)} first")
    comparison = read_comparison(setup, policy)
    paid = {purpose: spent.usd for purpose, spent in open_ledger(workspace.ledger).by_purpose(setup.run).items()}
    lineage = Lineage(
        git_commit=podium.get_snapshot().git_commit,
        dvc_revision=versioning.compute_revision(workspace),
        policy=comparison.policy,
        pool_answers_key=pool.answers_key,
        pool_prices_key=pool.prices_key,
        recipe=recipe.name,
        ledger_run=setup.run,
        paid_usd=round(math.fsum(paid.values()), 6),
        training_paid_usd=round(paid.get("training", 0.0), 6),
        rollouts_usd=round(math.fsum(result.rollouts_usd for result in trained), 6),
        evaluation=comparison.scores_key,
        questions=format_keys(comparison.questions),
        graders=format_keys(comparison.graders),
    )
    change = podium.get_snapshot().change
    tags = {"seed": str(recipe.seed), "snapshot": podium.get_snapshot().key}
    if change is not None:
        tags |= {FINE_TUNED_FROM: change.version, "ledger_run": setup.run}
    tracked = {stage: find_tracked_run(run, workspace.mlflow_uri) for stage, run in runs.items()}
    version = registry.register_version(
        workspace, policy, pool, comparison.conductor, lineage, tags=tags, recipe=recipe,
        training_runs={stage: run for stage, run in tracked.items() if run is not None},
        checkpoint=find_tracked_checkpoint(list(runs.values())[-1], workspace.mlflow_uri) if runs else None,
    )  # fmt: skip
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version.version),
        metadata={
            "version": version.version,
            "aliases": ", ".join(version.aliases),
            **{name: float(version.tags[name]) for name in COST_TAGS if name in version.tags},
            "tags": dict(version.tags),
        },
    )
