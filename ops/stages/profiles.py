"""The data stage `worker_profiles`, which summarises the precached responses of each worker."""

from __future__ import annotations

import json

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import read_problems
from ops.config import Setup
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.precaching.profiles import find_best_worker, forecast_signal, profile_workers, score_oracle
from ops.precaching.stored_profiles import Profiles
from ops.workers.pool import reprice_responses


def materialize_profiles(setup: Setup) -> Profiles:
    """Compute `data/profiles.json` from the responses in `data/responses`, at the pool's prices.

    Raises `DataError` if there are no responses.
    """
    workspace = setup.workspace
    every = read_graded_responses(workspace.data / "responses")
    rows = reprice_responses([row for row in every if row.worker in setup.pool.names], setup.pool)
    if not rows:
        raise DataError(workspace.data / "responses", "", "holds no responses", "Materialize worker_responses")
    workers = profile_workers(rows, read_problems(workspace.data / "shortlist.jsonl"))
    shares = forecast_signal(rows, setup.recipe.grpo.rollouts_per_question, setup.recipe.curation.rescued)
    profiles = Profiles(workers, score_oracle(rows), find_best_worker(rows).worker, shares)
    text = json.dumps(
        {
            "workers": [worker.as_row() for worker in profiles.workers],
            "oracle": {name: score._asdict() for name, score in profiles.oracle.items()},
            "best_single": profiles.best_worker,
            "signal_forecast": round(profiles.signal_forecast, 6),  # further digits differ between processors
        },
        indent=1,
        ensure_ascii=False,
    )
    write_text(workspace.data / "profiles.json", text + "\n")
    return profiles
