"""The jobs over the assets: `lifecycle` (a complete pipeline run), its parts, `costs`, `retraining`, and studies.

Each is an asset job: one run, whose page shows every step, and which a retry continues at the failed step. The executor
decides where the steps run (`assets/placement.py`): in this process, in one process per step, or in pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import dagster as dg

from assets import partitions
from assets.resources import EXCLUSIVE_RUN_TAGS, RETRAINING_JOB
from assets.studies import make_asset_name
from ops.core.errors import PodiumError
from ops.evaluation.study import STUDIES

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

DATA_ASSETS = ("raw_problems", "worker_pool", "shortlist", "worker_responses")
TRAINING_ASSETS = (
    "worker_profiles",
    "training_mix",
    "signal_forecast",
    "base_policy",
    "conductor",
    "adaptive_conductor",
    "recursive_conductor",
)
EVALUATION_ASSETS = ("baselines", "benchmark_scores", "leaderboard")
RELEASE_ASSETS = ("registered_model", "promotion")
RETRAINING_ASSETS = (
    "worker_pool",
    "worker_responses",
    "worker_profiles",
    "champion_standing",
    "training_mix",
    "conductor",
    "adaptive_conductor",
    "recursive_conductor",
    *EVALUATION_ASSETS,
    *RELEASE_ASSETS,
    "report",
)


class JobPart(NamedTuple):
    """The assets that a job materializes, and its description."""

    assets: tuple[str, ...]
    description: str


JOBS = {
    "lifecycle": JobPart(
        (*DATA_ASSETS, *TRAINING_ASSETS, *EVALUATION_ASSETS, *RELEASE_ASSETS, "report"),
        "Run the whole pipeline: prepare the data, ask the workers, and train, evaluate and promote a Conductor.",
    ),
    "precache": JobPart(
        DATA_ASSETS, "Load the questions, choose the candidates for training, and ask every worker all candidates."
    ),
    "train": JobPart(TRAINING_ASSETS, "Train a Conductor with the questions and responses that exist."),
    "evaluate": JobPart(
        EVALUATION_ASSETS, "Compare the trained Conductor with the other systems. Nothing is registered or promoted."
    ),
    "costs": JobPart(
        ("worker_pool", "worker_profiles", "signal_forecast", "leaderboard", "promotion"),
        "Compute the costs again after a change of prices. No worker is asked, and nothing is trained.",
    ),
}
"""The parts of a pipeline run that a command or a person starts."""


def make_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs of `JOBS`."""
    return [make_asset_job(name, *part) for name, part in JOBS.items()]


def make_asset_job(name: str, assets: Sequence[str], description: str) -> dg.UnresolvedAssetJobDefinition:
    """Make a job over every benchmark, of which only one run is active at a time."""
    return dg.define_asset_job(
        name, list(assets), description=description, tags=EXCLUSIVE_RUN_TAGS | partitions.tag_all_benchmarks()
    )


def describe_unfinished_run(instance: dg.DagsterInstance) -> str:
    """Describe the unfinished run of one of these jobs; empty if there is none."""
    runs = instance.get_runs(dg.RunsFilter(tags=EXCLUSIVE_RUN_TAGS, statuses=_UNFINISHED), limit=1)
    return f"{runs[0].job_name} run {runs[0].run_id[:8]} is not finished" if runs else ""


def require_no_unfinished_run(instance: dg.DagsterInstance) -> None:
    """Raise `PodiumError` while a run of one of these jobs is unfinished."""
    if said := describe_unfinished_run(instance):
        raise PodiumError(f"{said}. Wait for its end, or cancel it under Runs")


def make_study_jobs(configured: Sequence[dg.AssetsDefinition]) -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the asset jobs of the assets outside `lifecycle`, which a person starts: the report and the studies."""
    about = "Run every study of the trained policy that trains nothing itself."
    jobs: dict[str, tuple[Sequence[str | dg.AssetKey], str]] = {
        "write_report": (["report"], "Write the report on all results. No worker is asked."),
        "study_policy": ([make_asset_name(name) for name in STUDIES], about),
    }
    for asset in configured:
        jobs[f"study_{asset.key.path[-1]}"] = ([asset.key], str(asset.specs_by_key[asset.key].description))
    return [dg.define_asset_job(name, list(chosen), description=about) for name, (chosen, about) in jobs.items()]


def make_retraining_job() -> dg.UnresolvedAssetJobDefinition:
    """Return the job that executes the plan of a pool's change.

    Its steps are always the same. `champion_standing` scores the champion on the current pool and decides. If nothing
    is to be trained, `training_mix` yields nothing and Dagster skips the later steps. A retry continues after a crash:
    answers, scores and checkpoints are kept.
    """
    about = "Do the work that a change of the champion's pool requires: ask new workers, evaluate, and train if needed."
    return make_asset_job(RETRAINING_JOB, RETRAINING_ASSETS, about)
