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

from assets import partitions
from assets.resources import RunResource
from ops.benchmarks.registry import training_benchmarks
from ops.config import PoolChange, Setup, load_pool
from ops.core.errors import OverBudget
from ops.core.workspace import Workspace
from ops.precaching.client_setup import open_client
from ops.spending.ledger import Ledger
from ops.stages.profiles import materialize_profiles
from ops.stages.responses import estimate_responses, materialize_responses
from tests.command import PODIUM
from tests.integration import checkouts
from tests.integration.checkouts import SHORT, UNTRAINED, configure, metadata, shortlisted, sizes

PER_DOMAIN = 3
COLUMN = PER_DOMAIN * len(training_benchmarks())
RECIPE: dict[str, Any] = UNTRAINED | {
    "name": "small",
    "pool": "few",
    "benchmarks": sizes(12, 2, training_benchmarks()),
    "curation": {"per_domain": PER_DOMAIN, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
}


def pool(*names: str, usd: float = 10.0) -> dict[str, Any]:
    shared = {"price": {"input": usd, "output": usd}, "latency_s": 0.1, "max_tokens": 200}
    return {"name": "few", "workers": [shared | {"name": name, "model": f"local/{name}"} for name in names]}


@pytest.fixture
def small(project: Workspace) -> Workspace:
    """A project with a shortlist, without DVC, which other files test."""
    shutil.rmtree(project.root / ".dvc")
    configure(project, {"recipes/small": RECIPE, "pools/few": pool("librarian", "guesser")})
    shortlisted(Setup.read(project, "small"))
    return project


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as dagster:
        yield dagster


def materialize(workspace: Workspace, instance: dg.DagsterInstance, *assets: str) -> dict[str, Any]:
    """Materialize `assets`, one after the other, over every benchmark of the recipe; the last one's metadata."""
    podium = RunResource(root=str(workspace.root), recipe="small")
    settings = {
        "run_config": podium.make_run_config(),
        "tags": partitions.tag_recipe_benchmarks(podium.load_setup().recipe),
    }
    for asset in assets:
        assert checkouts.materialize(podium, instance, asset, **settings).success
    return metadata(instance, assets[-1])


@pytest.mark.long
def test_a_new_worker_is_one_more_column_and_nothing_else(small: Workspace, instance: dg.DagsterInstance) -> None:
    assert materialize(small, instance, "worker_pool", "worker_responses")["calls_live"] == 2 * COLUMN
    assert instance.get_materialized_partitions(dg.AssetKey("worker_responses")) == set(training_benchmarks())
    tables = sorted((small.data / "responses").rglob("*.parquet"))
    before = {file: file.read_bytes() for file in tables}

    configure(small, {"pools/few": pool("librarian", "guesser", "algebraist")})
    second = materialize(small, instance, "worker_pool", "worker_responses")
    assert (second["calls_live"], second["calls_cached"]) == (COLUMN, 0), "the other files are made already"
    assert [record.data["worker"] for record in second["workers"].records] == ["librarian", "guesser", "algebraist"]
    assert {file: file.read_bytes() for file in tables} == before

    profiles = materialize(small, instance, "worker_profiles")
    columns = {column.name for column in profiles["by_domain"].schema.columns}
    assert columns >= {"librarian", "guesser", "algebraist"}
    assert "data:image/png;base64," in profiles["accuracy_against_cost"]
    assert "by chance alone" in profiles["oracle"]


@pytest.mark.long
def test_the_table_again_costs_nothing_and_says_so(small: Workspace, instance: dg.DagsterInstance) -> None:
    again = materialize(small, instance, "worker_pool", "worker_responses", "worker_responses")
    assert (again["calls_live"], again["calls_cached"], again["spent_usd"]) == (0, 0, 0)
    assert again["unchanged"].startswith("since run ")


@pytest.mark.long
def test_a_change_without_a_worker_to_ask_sets_the_removed_ones_answers_aside(
    small: Workspace, instance: dg.DagsterInstance
) -> None:
    materialize(small, instance, "worker_responses")
    before = load_pool(small.config, "few")
    configure(small, {"pools/few": pool("librarian")})
    podium = RunResource(root=str(small.root), recipe="small")
    change = PoolChange(version="1", policy="none", before=before)
    tags = podium.bind_snapshot(podium.get_snapshot().model_copy(update={"change": change})).make_launch_tags()
    done = checkouts.materialize(podium, instance, "worker_responses", run_config=podium.make_run_config(), tags=tags)
    assert done.success and all(check.passed for check in done.get_asset_check_evaluations())
    events = done.asset_materializations_for_node("worker_responses")
    assert events[0].metadata["calls_live"].value == events[0].metadata["calls_cached"].value == 0
    tables = [event.metadata["workers"].records for event in events if "workers" in event.metadata]
    shown = {record.data["worker"] for records in tables for record in records}
    assert shown == {"librarian"}, "the page shows what is stored, not what this run asked"
    assert [folder.name for folder in (small.data / "responses").iterdir()] == ["librarian"]


def test_at_the_cap_it_states_progress_and_remaining_cost_and_continues_later(small: Workspace) -> None:
    configure(small, {"recipes/small": RECIPE | {"budget": {"run_usd": 0.01}}})
    poor = Setup.read(small, "small")
    client = open_client(poor, "precache")
    before = estimate_responses(poor, client)
    assert (before.paid_calls, before.measured_calls) == (2 * COLUMN, 0)
    notes: list[tuple[int, int, str]] = []
    with pytest.raises(OverBudget, match=rf"of {2 * COLUMN} calls are done.*would cost about \$"):
        materialize_responses(poor, client, on_progress=lambda *note: notes.append(note))
    done = client.counts.live
    assert 0 < done < 2 * COLUMN
    assert client.counts.usd <= 0.01
    assert notes[-1][1] == 2 * COLUMN
    assert re.fullmatch(r"\d+ asked, 0 cached(, \d+ failed)?, \$0\.00\d\d", notes[-1][2])
    assert not list((small.data / "responses").rglob("*.parquet"))

    configure(small, {"recipes/small": RECIPE})
    client = open_client(setup := Setup.read(small, "small"), "precache")
    assert estimate_responses(setup, client).cached_calls == done
    materialize_responses(setup, client)
    assert (client.counts.live, client.counts.cached) == (2 * COLUMN - done, done)


def test_profiles_know_domains_subjects_and_what_a_call_uses(small: Workspace) -> None:
    setup = Setup.read(small, "small")
    materialize_responses(setup, open_client(setup, "precache"))
    workers = {worker.worker: worker for worker in materialize_profiles(setup).workers}
    librarian = workers["librarian"]
    assert set(librarian.by_domain) == {"math", "mmlu", "rlpr", "code"}
    assert sum(score.n for score in librarian.by_subject.values()) == COLUMN
    assert all(key.partition("/")[0] in librarian.by_domain for key in librarian.by_subject)
    assert set(librarian.usage) == set(training_benchmarks())


@pytest.mark.long
def test_a_rehearsal_of_the_whole_table_calls_no_worker(small: Workspace, instance: dg.DagsterInstance) -> None:
    materialize(small, instance, "worker_pool", "worker_responses")
    before = {file: file.read_bytes() for file in Path(small.data / "responses").rglob("*.parquet")}
    configure(small, {"recipes/small": RECIPE | {"replay": {"match": "prompt"}}})
    again = materialize(small, instance, "worker_responses")
    assert (again["calls_live"], again["calls_cached"]) == (0, 0)
    assert {file: file.read_bytes() for file in before} == before
    setup = RunResource(root=str(small.root), recipe="small").load_setup()
    assert setup.workspace.rehearsal
    client = open_client(setup, "training")
    for file in before:
        file.unlink()
    materialize_responses(setup, client)
    assert (client.counts.replayed, client.counts.live, client.counts.usd) == (2 * COLUMN, 0, 0.0)
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.soak  # `make test` rehearses the whole table, and runs two other whole pipelines
@pytest.mark.timeout(900)
def test_a_rehearsal_goes_from_problems_to_a_model_without_a_call_and_apart(small: Workspace) -> None:
    setup = Setup.read(small, "small")
    paid = open_client(setup, "precache")
    materialize_responses(setup, paid)
    trained = {name: SHORT[name] for name in ("policy", "cold_start", "grpo")}
    configure(small, {"recipes/small": RECIPE | trained | {"replay": {"match": "problem"}}})
    run = subprocess.run(
        [*PODIUM, "run", "small"], env=os.environ | {"PODIUM_ROOT": str(small.root), "COLUMNS": "120"},
        cwd=small.root, capture_output=True, text=True, check=False, timeout=720,
    )  # fmt: skip
    assert run.returncode == 3, run.stdout + run.stderr  # the gate keeps back a policy that solves nothing
    summary = re.search(r"Workers\s+no call made, (\d+) replayed.*\$0 spent", run.stdout)
    assert summary, run.stdout
    assert int(summary[1]) > 0
    ledger = Ledger(small.ledger)
    assert sum(spent.calls for spent in ledger.by_run().values()) == paid.counts.live
    left = {path.name for path in small.state.iterdir()}
    assert not left & {"policies", "runs", "scores", "mlflow"}
    apart = {path.name for path in (small.state / "rehearsal").iterdir()}
    assert apart >= {"policies", "runs", "scores", "mlflow"}
