"""Precaching by a team, with a killed step and real latencies over HTTP; the server counts the requests.

The data that the run writes are pushed to DVC's remote, an S3 store.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from ops.config import load_recipe
from ops.core.rows import ResponseRow, load_responses
from ops.core.workspace import Workspace
from ops.spending.books import Spent
from ops.spending.ledger import Ledger
from ops.spending.shared import SharedStore
from ops.stages.curation import materialize_shortlist
from ops.stages.problems import materialize_raw
from tests.faults.remote import FaultServer
from tests.setups import without_workers
from tests.team.fleet import Fleet
from tests.team.servers import S3, Postgres, Redis, until
from tests.team.versions import pulled, remote_in

BENCHMARKS = ("math500", "mmlu")
WORKERS = ("first", "second")
CONCURRENCY = 2


@dataclass(frozen=True)
class Outcome:
    """The results of a run with a killed step.

    These are the requests that reached the server, by question; the ledger's sums; the rows in `data/responses`, and
    those that another checkout pulls from the S3 store; and the status of the run and of its retry.
    """

    came: Counter[str]
    spent: Spent
    rows: int
    pulled: int
    attempts: list[dg.DagsterRunStatus]


def prepared(workspace: Workspace, url: str, store: S3, per_domain: int) -> Workspace:
    """Make a checkout with a shortlist, two workers behind HTTP, and DVC's remote in the S3 store."""
    recipe: dict[str, Any] = {
        "name": "team", "pool": "remote", "grading": {"isolation": "resource_limits"},
        "benchmarks": {name: {"train": 4 * per_domain, "test": 2} for name in BENCHMARKS},
        "curation": {"per_domain": per_domain, "near_duplicate_jaccard": 1.0},
        "prompting": {"style": "compact", "few_shots": "none"},
        "policy": {"kind": "scratch", "max_tokens": 4096}, "cold_start": {},
        "grpo": {"steps": 1, "questions_per_step": 1, "rollouts_per_question": 4, "micro_batch": 4},
        "versions": {"push": True},
    }  # fmt: skip
    workers = [
        {
            "name": name, "model": "openai/some-model", "api_base": f"{url}/{name}/v1", "max_tokens": 64,
            "price": {"input": 1.0, "output": 2.0}, "timeout_s": 20, "concurrency": CONCURRENCY,
        }
        for name in WORKERS
    ]  # fmt: skip
    (workspace.config / "recipes" / "team.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    pool = yaml.safe_dump({"name": "remote", "workers": workers})
    (workspace.config / "pools" / "remote.yaml").write_text(pool, encoding="utf-8")
    remote_in(store, workspace, workspace.root.parent.name)
    loaded = load_recipe(workspace.config, "team")
    for benchmark in loaded.benchmarks:
        materialize_raw(without_workers(workspace, loaded), benchmark)
    materialize_shortlist(without_workers(workspace, loaded))
    return workspace


def engines(postgres: Postgres, redis: Redis, store: S3) -> dict[str, str]:
    """Give addresses of empty services, and the keys of the S3 store."""
    redis.empty()
    return store.environment | {
        "PODIUM_DAGSTER_URL": postgres.database().replace("://", "+psycopg2://"),
        "PODIUM_LEDGER_URL": postgres.database(),
        "PODIUM_CACHE_URL": redis.url, "PODIUM_LIMITS_URL": redis.url,
    }  # fmt: skip


def precache(workspace: Workspace, folder: Path, at: dict[str, str], server: FaultServer) -> Outcome:
    """Precache with a team, and kill the step while calls are in flight."""
    already = len(_came(server))
    with Fleet(workspace, folder, at) as fleet:
        named = fleet.start("team", "precache")
        until(lambda: len(_came(server)) == already + CONCURRENCY * len(WORKERS), "calls are under way", 600)
        step = fleet.step_process(named, "worker_responses")
        assert "multiprocessing.forkserver" in str((step.parent() or step).cmdline()), "it imported nothing again"
        step.kill()
        attempts = fleet.finished(named)
    ledger = Ledger(Path("none"), SharedStore(at["PODIUM_LEDGER_URL"]))
    # The killed step's lease must run out.
    until(lambda: ledger.open_reservations() == {}, "nothing is reserved any more")
    [spent] = ledger.by_run().values()
    ledger.close()
    came = Counter(_came(server)[already:])
    rows = load_responses(workspace.data / "responses")
    assert all(row.status == "ok" for row in rows)
    elsewhere = load_responses(pulled(workspace, folder / "elsewhere", "worker_responses", at).data / "responses")
    assert sorted(elsewhere, key=_place) == sorted(rows, key=_place)
    return Outcome(came, spent, len(rows), len(elsewhere), [run.dagster_run.status for run in attempts])


def _place(row: ResponseRow) -> tuple[object, ...]:
    return row.worker, row.benchmark, row.problem_id, row.sample


def _came(server: FaultServer) -> list[str]:
    """Return the questions that reached the server."""
    return [entry["prompt"] for entry in server.log() if entry["event"] == "came"]
