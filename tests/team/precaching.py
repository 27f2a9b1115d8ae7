"""Partitions of precaching on machines of a team, one of which is killed. Real latencies, over HTTP; what was asked is
counted where it arrives. What each run has written is pushed to DVC's remote, an S3 store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Outcome:
    """What came of it: wall time from the first run's start to the last one's end (seconds), requests that came to the
    server, by question; the ledger's sums; rows in `data/responses`, and in what another checkout pulls from the S3
    store; and how many runs failed on the way."""

    seconds: float
    came: Counter[str]
    spent: Spent
    rows: int
    pulled: int
    runs: int
    failed: int


def prepared(workspace: Workspace, url: str, store: S3, per_domain: int, concurrency: int) -> Workspace:
    """A checkout with a shortlist, two workers behind HTTP, and DVC's remote in the S3 store."""
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
            "price": {"input": 1.0, "output": 2.0}, "timeout_s": 20, "concurrency": concurrency,
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
    """Addresses of empty ones, and the keys of the S3 store."""
    redis.empty()
    return store.environment | {
        "PODIUM_DAGSTER_URL": postgres.database().replace("://", "+psycopg2://"),
        "PODIUM_LEDGER_URL": postgres.database(),
        "PODIUM_CACHE_URL": redis.url, "PODIUM_LIMITS_URL": redis.url,
    }  # fmt: skip


def precache(workspace: Workspace, folder: Path, at: dict[str, str], server: FaultServer, *, machines: int) -> Outcome:
    """Have a fleet precache every partition. The second machine is lost while its calls are under way."""
    already = len(server.log())
    with Fleet(workspace, folder, at, machines, at_once=machines) as fleet:
        named = fleet.start("team", "precaching")
        until(lambda: len(fleet.running()) == machines, "every machine executes a run", 600)
        until(lambda: _callers(at) == machines, "every machine has calls under way", 600)
        fleet.kill_machine(1)
        records = fleet.finished(named)
    began = min(record.start_time for record in records if record.start_time)
    ended = max(record.end_time for record in records if record.end_time)
    ledger = Ledger(Path("none"), SharedStore(at["PODIUM_LEDGER_URL"]))
    # The lost machine's lease runs out.
    until(lambda: ledger.open_reservations() == {}, "nothing is reserved any more")
    [spent] = ledger.by_run().values()
    ledger.close()
    came = Counter(entry["prompt"] for entry in server.log()[already:] if entry["event"] == "came")
    rows = load_responses(workspace.data / "responses")
    assert all(row.status == "ok" for row in rows)
    elsewhere = load_responses(pulled(workspace, folder / "elsewhere", "worker_responses", at).data / "responses")
    assert sorted(elsewhere, key=_place) == sorted(rows, key=_place)
    failed = sum(record.dagster_run.status.value == "FAILURE" for record in records)
    return Outcome(ended - began, came, spent, len(rows), len(elsewhere), len(records), failed)


def _place(row: ResponseRow) -> tuple[object, ...]:
    return row.worker, row.benchmark, row.problem_id, row.sample


def _callers(at: dict[str, str]) -> int:
    """How many processes have calls under way."""
    import psycopg

    with psycopg.connect(at["PODIUM_LEDGER_URL"]) as connection:
        row = connection.execute("SELECT count(DISTINCT pid) FROM podium_ledger.sent WHERE lost = 0").fetchone()
    return int(row[0]) if row else 0
