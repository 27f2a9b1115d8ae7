"""Compare a policy with every other system and write the table of outcomes, unless both are stored already."""

from __future__ import annotations

from pathlib import Path

from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.once import Key, add_code_version, data_version, make_once
from ops.core.processes import lock_files
from ops.core.response_rows import response_file
from ops.evaluation.comparison import (
    Comparison,
    compare_systems,
    comparison_file,
    grader_keys,
    outcomes_file,
    question_keys,
    write_outcomes,
)
from ops.evaluation.stored_baselines import list_baseline_stores
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, list_solo_workers, score_file
from ops.precaching.stored_profiles import evaluation_folder


def compare_once(setup: Setup, policy: Path, base_policy: Path | None, *, force: bool = False) -> Comparison | None:
    """Compare the policy with all other systems and write the table of outcomes.

    Returns the comparison, or None if comparison and table are already stored for these scores, prices and settings.
    With `force` both are made again. Raises `DataError` if scores are missing or stale.
    """
    workspace = setup.workspace
    files = [comparison_file(workspace, policy_key(policy)), outcomes_file(workspace, policy)]

    def make() -> Comparison:
        made = compare_systems(setup, policy, base_policy)
        write_outcomes(setup, policy, base_policy)
        return made

    with lock_files(workspace, *files):
        return make_once(files, _key(setup, policy, base_policy), make, always=force)


def _key(setup: Setup, policy: Path, base_policy: Path | None) -> Key:
    """Return the versions of all tables that a comparison reads, and of prices, settings, questions and graders."""
    workspace, questions, graders = setup.workspace, question_keys(setup), grader_keys(setup)
    alone_folder, taught = evaluation_folder(workspace), base_policy if setup.recipe.cold_start else None
    tables = {
        "conductor": [score_file(workspace, CONDUCTOR, policy, name) for name in questions],
        "cold start": [score_file(workspace, COLD_START, taught, name) for name in questions] if taught else [],
        "baselines": [store.file(name) for store in list_baseline_stores(setup) for name in questions],
        "workers": [
            response_file(alone_folder, worker, name) for worker in list_solo_workers(setup) for name in questions
        ],
        "responses": [workspace.data / "responses"],
    }
    prices = [pool.prices_key for pool in (setup.pool, *setup.pools.values())]
    key = {name: data_version(*files) for name, files in tables.items()} | {
        "policies": digest([policy_key(policy), taught and policy_key(taught)]),
        "pools": digest([pool.answers_key for pool in (setup.pool, *setup.pools.values())]),
        "prices": digest(prices),
        "questions": digest(questions),
        "graders": digest(graders),
        "settings": digest(setup.recipe.evaluation.model_dump(mode="json")),
    }
    modules = [f"ops.evaluation.baselines.{name}" for name in setup.recipe.evaluation.baselines or ()]
    return add_code_version(key, "ops.evaluation.comparison", *modules)
