"""The job `retraining`: execute the plan of a pool's change.

Its steps are always the same. `champion_standing` scores the champion on the current pool and decides. If nothing is to
be trained, `training_mix` yields nothing and Dagster skips the later steps. A retry continues after a crash: answers,
scores and checkpoints are kept.
"""

from __future__ import annotations

import dagster as dg

from assets.resources import RETRAINING
from pipelines.lifecycle import EVALUATION, RELEASE, asset_job

ASSETS = (
    "worker_pool",
    "worker_responses",
    "worker_profiles",
    "champion_standing",
    "training_mix",
    "conductor",
    "adaptive_conductor",
    "recursive_conductor",
    *EVALUATION,
    *RELEASE,
)


def retraining_job() -> dg.UnresolvedAssetJobDefinition:
    """Return the job over `ASSETS`."""
    about = "Execute what a change of the champion's pool requires: precache, evaluate, fine-tune where needed"
    return asset_job(RETRAINING, ASSETS, about)
