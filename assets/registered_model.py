"""`registered_model`: the Conductor as a version in MLflow, with where it came from."""

import dagster as dg

from assets.conductor import conductor, run_folder
from assets.leaderboard import leaderboard
from assets.resources import Podium
from ops import registry, versioning
from ops.errors import PodiumError
from ops.evaluation.stage import compare
from ops.training.plan import RunResult


@dg.asset(deps=[leaderboard, conductor], group_name="release", kinds={"mlflow"})
def registered_model(podium: Podium) -> dg.MaterializeResult:
    """A version in MLflow, first as challenger; the same policy with the same scores is the same version."""
    setup = podium.load()
    workspace, recipe, pool = setup
    folder = run_folder(setup)
    trained = RunResult.read(folder)
    if trained is None:
        raise PodiumError(f"{folder}: holds no finished training. Materialize conductor first")
    lineage = registry.Lineage(
        git_commit=versioning.git_commit(workspace),
        dvc_revision=versioning.revision(workspace),
        pool_fingerprint=pool.fingerprint,
        recipe=recipe.name,
        training_cost_usd=round(trained.cost_usd, 6),
    )
    rows = compare(*setup).conductor
    found = registry.register(workspace, folder / "policy", pool, rows, lineage, tags={"seed": str(recipe.seed)})
    return dg.MaterializeResult(
        data_version=dg.DataVersion(found.version),
        metadata={"version": found.version, "aliases": ", ".join(found.aliases), "tags": dict(found.tags)},
    )
