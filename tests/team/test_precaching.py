"""A step of a team's run is killed while it precaches with real latencies over HTTP; a retry goes on from what is
stored. The server counts the requests. The data that the run writes are pushed to DVC's remote, an S3 store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from ops.config import load_recipe
from ops.core.response_rows import ResponseRow, load_responses
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.spending.postgres_ledger import SharedLedgerStore
from ops.stages.curation import materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from tests.conftest import make_project
from tests.faults.clients import server  # noqa: F401  (a fixture)
from tests.faults.remote import FaultServer
from tests.setups import without_workers
from tests.team.fleet import Fleet
from tests.team.servers import S3, Postgres, Redis, engines, until
from tests.team.versions import pulled, remote_in

BENCHMARKS = ("math500", "mmlu")
WORKERS = ("first", "second")
CONCURRENCY = 2
PER_DOMAIN = 6
QUESTIONS = PER_DOMAIN * len(BENCHMARKS) * len(WORKERS)


def prepared(workspace: Workspace, url: str, store: S3) -> Workspace:
    """Make a checkout with a shortlist, two workers behind HTTP, and DVC's remote in the S3 store."""
    recipe: dict[str, Any] = {
        "name": "team", "pool": "remote", "grading": {"isolation": "resource_limits"},
        "benchmarks": {name: {"train": 4 * PER_DOMAIN, "test": 2} for name in BENCHMARKS},
        "curation": {"per_domain": PER_DOMAIN, "near_duplicate_jaccard": 1.0},
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


def place(row: ResponseRow) -> tuple[object, ...]:
    return row.worker, row.benchmark, row.problem_id, row.sample


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_what_a_killed_step_had_is_taken_over_and_no_answer_is_paid_for_twice(
    tmp_path: Path, server: FaultServer, postgres: Postgres, redis_server: Redis, store: S3  # noqa: F811
) -> None:
    workspace = prepared(make_project(tmp_path / "project"), server.url, store)
    at = engines(postgres, redis_server, store)
    server.order(latency_s=5.0)
    with Fleet(workspace, tmp_path / "fleet", at) as fleet:
        named = fleet.start("team", "precache")
        until(lambda: len(server.came()) == CONCURRENCY * len(WORKERS), "calls are under way", 600)
        step = fleet.step_process(named, "worker_responses")
        assert "multiprocessing.forkserver" in str((step.parent() or step).cmdline()), "it imported nothing again"
        step.kill()
        attempts = [run.dagster_run.status for run in fleet.finished(named)]
    assert attempts == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    rows = load_responses(workspace.data / "responses")
    assert [row.status for row in rows] == ["ok"] * QUESTIONS, "every answer is there"
    there = pulled(workspace, tmp_path / "elsewhere", "worker_responses", at)
    assert sorted(load_responses(there.data / "responses"), key=place) == sorted(rows, key=place)
    ledger = Ledger(Path("none"), SharedLedgerStore(at["PODIUM_LEDGER_URL"]))
    # The killed step's lease must run out.
    until(lambda: ledger.open_reservations() == {}, "nothing is reserved any more")
    [spent] = ledger.by_run().values()
    ledger.close()
    assert spent.calls == QUESTIONS, "every answer was settled once"
    again = len(server.came()) - QUESTIONS
    assert 0 <= again <= spent.lost <= again + 2, "asked again was only what the killed step had sent"
