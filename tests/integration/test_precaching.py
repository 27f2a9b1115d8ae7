"""Precaching in Dagster: a new worker is one more column, a rehearsal of it calls no worker, a cap stops it cleanly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from assets import partitions
from assets.resources import Podium
from ops.benchmarks.registry import training_benchmarks
from ops.config import PoolChange, Setup, load_pool, load_recipe
from ops.core.errors import OverBudget
from ops.core.workspace import Workspace
from ops.precaching.opening import open_client
from ops.spending.ledger import Ledger
from ops.stages.curation import materialize_shortlist
from ops.stages.problems import materialize_raw
from ops.stages.responses import estimate_responses, materialize_profiles, materialize_responses
from pipelines.definitions import definitions
from tests.command import PODIUM
from tests.setups import without_workers

PER_DOMAIN = 3
RESPONSES = dg.AssetKey("worker_responses")
COLUMN = PER_DOMAIN * len(training_benchmarks())
RECIPE: dict[str, Any] = {
    "name": "small",
    "pool": "few",
    "grading": {"isolation": "resource_limits"},  # programs of our own: see the quickstart
    "benchmarks": {name: {"train": 12, "test": 2} for name in training_benchmarks()},
    "curation": {"per_domain": PER_DOMAIN, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
    "policy": {"kind": "scratch", "max_tokens": 4096},
    "cold_start": {},
    "grpo": {"steps": 1, "questions_per_step": 1, "rollouts_per_question": 4, "micro_batch": 4},
}


def tool(name: str) -> dict[str, Any]:
    price = {"input": 10.0, "output": 10.0}
    return {"name": name, "model": f"local/{name}", "price": price, "latency_s": 0.1, "max_tokens": 200}


def write_pool(workspace: Workspace, *names: str) -> None:
    text = yaml.safe_dump({"name": "few", "workers": [tool(name) for name in names]})
    (workspace.config / "pools" / "few.yaml").write_text(text, encoding="utf-8")


def write_recipe(workspace: Workspace, **changes: Any) -> None:
    text = yaml.safe_dump(RECIPE | changes)
    (workspace.config / "recipes" / "small.yaml").write_text(text, encoding="utf-8")


@pytest.fixture
def shortlisted(project: Workspace) -> Workspace:
    """A project with a shortlist, without DVC, which other files test."""
    shutil.rmtree(project.root / ".dvc")
    write_recipe(project)
    write_pool(project, "librarian", "guesser")
    recipe = load_recipe(project.config, "small")
    for benchmark in recipe.benchmarks:
        materialize_raw(without_workers(project, recipe), benchmark)
    materialize_shortlist(without_workers(project, recipe))
    return project


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as dagster:
        yield dagster


def materialize(workspace: Workspace, instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """Materialize `asset`, over every benchmark of the recipe; its metadata."""
    podium = Podium(root=str(workspace.root), recipe="small")
    job = definitions(podium).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(asset)],
        run_config=podium.run_config(),
        tags=partitions.of_recipe(podium.load().recipe),
    )
    assert done.success
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.long
def test_a_new_worker_is_one_more_column_and_nothing_else(
    shortlisted: Workspace, instance: dg.DagsterInstance
) -> None:
    materialize(shortlisted, instance, "worker_pool")
    first = materialize(shortlisted, instance, "worker_responses")
    assert first["calls_live"] == 2 * COLUMN
    assert instance.get_materialized_partitions(RESPONSES) == set(training_benchmarks())
    tables = sorted((shortlisted.data / "responses").rglob("*.parquet"))
    before = {file: file.read_bytes() for file in tables}

    write_pool(shortlisted, "librarian", "guesser", "algebraist")
    materialize(shortlisted, instance, "worker_pool")
    second = materialize(shortlisted, instance, "worker_responses")
    assert (second["calls_live"], second["calls_cached"]) == (COLUMN, 2 * COLUMN)
    assert [record.data["worker"] for record in second["workers"].records] == ["librarian", "guesser", "algebraist"]
    assert {file: file.read_bytes() for file in tables} == before

    profiles = materialize(shortlisted, instance, "worker_profiles")
    columns = {column.name for column in profiles["by_domain"].schema.columns}
    assert columns >= {"librarian", "guesser", "algebraist"}
    assert "data:image/png;base64," in profiles["accuracy_against_cost"]
    assert "±" in profiles["oracle"]


@pytest.mark.long
def test_the_table_again_costs_nothing_and_says_so(shortlisted: Workspace, instance: dg.DagsterInstance) -> None:
    materialize(shortlisted, instance, "worker_pool")
    materialize(shortlisted, instance, "worker_responses")
    again = materialize(shortlisted, instance, "worker_responses")
    assert (again["calls_live"], again["calls_cached"], again["spent_usd"]) == (0, 0, 0)
    assert again["unchanged"].startswith("since run ")


@pytest.mark.long
def test_a_change_without_a_worker_to_ask_sets_the_removed_ones_answers_aside(
    shortlisted: Workspace, instance: dg.DagsterInstance
) -> None:
    materialize(shortlisted, instance, "worker_responses")
    before = load_pool(shortlisted.config, "few")
    write_pool(shortlisted, "librarian")
    podium = Podium(root=str(shortlisted.root), recipe="small")
    change = PoolChange(version="1", policy="none", before=before)
    made = podium.of(podium.snapshot().model_copy(update={"change": change}))
    done = definitions(podium).resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[RESPONSES], run_config=podium.run_config(), tags=made.launch_tags()
    )  # fmt: skip
    assert done.success and all(check.passed for check in done.get_asset_check_evaluations())
    [event] = done.asset_materializations_for_node("worker_responses")[:1]
    assert event.metadata["calls_live"].value == event.metadata["calls_cached"].value == 0
    shown = {
        record.data["worker"]
        for each in done.asset_materializations_for_node("worker_responses")
        for record in (each.metadata["workers"].records if "workers" in each.metadata else ())
    }
    assert shown == {"librarian"}, "the page shows what is stored, not what this run asked"
    assert [folder.name for folder in (shortlisted.data / "responses").iterdir()] == ["librarian"]


def test_at_the_cap_it_states_progress_and_remaining_cost_and_continues_later(shortlisted: Workspace) -> None:
    recipe, pool = load_recipe(shortlisted.config, "small"), load_pool(shortlisted.config, "few")
    poor = recipe.model_copy(update={"budget": recipe.budget.model_copy(update={"run_usd": 0.01})})
    client = open_client(Setup(shortlisted, poor, pool), "precache")
    before = estimate_responses(Setup(shortlisted, poor, pool), client)
    assert (before.to_make, before.measured) == (2 * COLUMN, 0)
    notes: list[tuple[int, int, str]] = []
    with pytest.raises(OverBudget, match=rf"of {2 * COLUMN} calls are done.*would cost about \$"):
        materialize_responses(Setup(shortlisted, poor, pool), client, on_progress=lambda *note: notes.append(note))
    done = client.counts.live
    assert 0 < done < 2 * COLUMN
    assert client.counts.usd <= 0.01
    assert notes[-1][1] == 2 * COLUMN
    assert re.fullmatch(r"\d+ asked, 0 cached(, \d+ failed)?, \$0\.00\d\d", notes[-1][2])
    assert not list((shortlisted.data / "responses").rglob("*.parquet"))

    client = open_client(Setup(shortlisted, recipe, pool), "precache")
    assert estimate_responses(Setup(shortlisted, recipe, pool), client).cached == done
    materialize_responses(Setup(shortlisted, recipe, pool), client)
    assert (client.counts.live, client.counts.cached) == (2 * COLUMN - done, done)


def test_profiles_know_domains_subjects_and_what_a_call_uses(shortlisted: Workspace) -> None:
    recipe, pool = load_recipe(shortlisted.config, "small"), load_pool(shortlisted.config, "few")
    setup = Setup(shortlisted, recipe, pool)
    materialize_responses(setup, open_client(setup, "precache"))
    workers = {worker.worker: worker for worker in materialize_profiles(setup).workers}
    librarian = workers["librarian"]
    assert set(librarian.by_domain) == {"math", "mmlu", "rlpr", "code"}
    assert sum(score.n for score in librarian.by_subject.values()) == COLUMN
    assert all(key.partition("/")[0] in librarian.by_domain for key in librarian.by_subject)
    assert set(librarian.usage) == set(training_benchmarks())


@pytest.mark.long
def test_a_rehearsal_of_the_whole_table_calls_no_worker(shortlisted: Workspace, instance: dg.DagsterInstance) -> None:
    materialize(shortlisted, instance, "worker_pool")
    materialize(shortlisted, instance, "worker_responses")
    before = {file: file.read_bytes() for file in Path(shortlisted.data / "responses").rglob("*.parquet")}
    write_recipe(shortlisted, replay={"match": "prompt"})
    again = materialize(shortlisted, instance, "worker_responses")
    assert (again["calls_live"], again["calls_cached"]) == (0, 0)
    assert {file: file.read_bytes() for file in before} == before
    setup = Podium(root=str(shortlisted.root), recipe="small").load()
    assert setup.workspace.rehearsal
    client = open_client(setup, "training")
    for file in before:
        file.unlink()
    materialize_responses(setup, client)
    assert (client.counts.replayed, client.counts.live, client.counts.usd) == (2 * COLUMN, 0, 0.0)
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.soak  # `make test` rehearses the whole table, and runs two other whole pipelines
@pytest.mark.timeout(900)
def test_a_rehearsal_goes_from_problems_to_a_model_without_a_call_and_apart(shortlisted: Workspace) -> None:
    recipe, pool = load_recipe(shortlisted.config, "small"), load_pool(shortlisted.config, "few")
    paid = open_client(Setup(shortlisted, recipe, pool), "precache")
    materialize_responses(Setup(shortlisted, recipe, pool), paid)
    write_recipe(
        shortlisted,
        replay={"match": "problem"},
        policy={"kind": "scratch", "vocabulary": 800, "hidden": 96, "layers": 2, "heads": 4, "max_tokens": 384},
        cold_start={"steps": 80, "batch": 16, "learning_rate": 3e-3},
        grpo={
            "steps": 2, "questions_per_step": 2, "rollouts_per_question": 8, "max_completion_tokens": 64,
            "schedule": "constant", "micro_batch": 16, "checkpoint_every": 1,
        },
    )  # fmt: skip
    run = subprocess.run(
        [*PODIUM, "run", "small"],
        env=os.environ | {"PODIUM_ROOT": str(shortlisted.root), "COLUMNS": "120"},
        cwd=shortlisted.root,
        capture_output=True,
        text=True,
        check=False, timeout=720,
    )
    assert run.returncode == 3, run.stdout + run.stderr  # the gate keeps back a policy that solves nothing
    summary = re.search(r"Workers\s+no call made, (\d+) replayed.*\$0 spent", run.stdout)
    assert summary, run.stdout
    assert int(summary[1]) > 0
    ledger = Ledger(shortlisted.ledger)
    assert sum(spent.calls for spent in ledger.by_run().values()) == paid.counts.live
    left = {path.name for path in shortlisted.state.iterdir()}
    assert not left & {"policies", "runs", "scores", "mlflow"}
    apart = {path.name for path in (shortlisted.state / "rehearsal").iterdir()}
    assert apart >= {"policies", "runs", "scores", "mlflow"}
