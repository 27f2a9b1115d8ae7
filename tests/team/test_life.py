"""A complete team deployment by the commands of docs/deployment.md, from empty services to a served champion.

The test runs a code server, a daemon and a web server; Postgres for Dagster, the ledger and MLflow's server; Redis; and
an S3 store for MLflow's artifacts and DVC's remote. It takes minutes, mostly for imports: every step is a process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import pytest
import yaml

from assets.resources import SNAPSHOT_TAG
from ops.config import load_pool
from ops.core.response_rows import load_responses
from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.mlflow_store import connect
from ops.spending.bookings import SpendingSum
from ops.spending.ledger import open_ledger
from ops.store import Kind, open_cache
from pipelines.lifecycle import JOBS
from pipelines.retraining.launch import POOL_CHANGED
from tests.command import PODIUM
from tests.conftest import make_project
from tests.serving.running import Running
from tests.team.fleet import LONG_S, PROGRAMS, Fleet
from tests.team.servers import S3, Mlflow, Postgres, Process, Redis, answers, engines, free_port, until
from tests.team.versions import pulled, remote_in

WORKERS = ("algebraist", "librarian")
TRAINED, UNSEEN = ("math500",), "gpqa_diamond"
SHORTER: dict[str, Any] = {
    "benchmarks": {**{name: {"train": 40, "test": 6} for name in TRAINED}, UNSEEN: {"test": 4}},
    "curation": {"per_domain": 10, "shortlist_factor": 1.25, "near_duplicate_jaccard": 1.0},
    "policy": {"kind": "scratch", "vocabulary": 800, "hidden": 96, "layers": 2, "heads": 4, "max_tokens": 384},
    "cold_start": {"steps": 150, "batch": 16, "learning_rate": 3e-3, "least_valid": 0},
    "grpo": {
        "steps": 3, "questions_per_step": 2, "rollouts_per_question": 8, "max_completion_tokens": 64,
        "learning_rate": 1e-4, "schedule": "constant", "micro_batch": 16, "checkpoint_every": 1,
    },
    "evaluation": {"batch": 32},
    "versions": {"push": True},
}  # fmt: skip
"""Settings that shorten the quickstart to minutes."""
GATE = {"min_format_compliance": 0.0, "min_gain_over_best_worker": -1.0}
"""Thresholds of the gate that a briefly trained policy passes; the gate only requires that scores exist."""
QUESTION = "What is the density of iron?"


def shortened(workspace: Workspace, settings: Mapping[str, Any] = SHORTER) -> Workspace:
    """Make a checkout whose quickstart takes minutes."""
    recipe, pool = workspace.config / "recipes" / "quickstart.yaml", workspace.config / "pools" / "quickstart.yaml"
    values = yaml.safe_load(recipe.read_text(encoding="utf-8")) | dict(settings)
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    offered = yaml.safe_load(pool.read_text(encoding="utf-8"))
    offered["workers"] = [worker for worker in offered["workers"] if worker["name"] in WORKERS]
    pool.write_text(yaml.safe_dump(offered, sort_keys=False), encoding="utf-8")
    (workspace.config / "promotion.yaml").write_text(yaml.safe_dump(GATE), encoding="utf-8")
    (workspace.config / "retraining.yaml").write_text(yaml.safe_dump({"settle_s": 5}), encoding="utf-8")
    return workspace


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_a_team_goes_from_empty_databases_to_a_champion_that_answers_on_another_machine(
    tmp_path: Path,
    postgres: Postgres,
    redis_server: Redis,
    store: S3,
    mlflow_server: Mlflow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = shortened(make_project(tmp_path / "project"))
    remote_in(store, project)
    at = engines(postgres, redis_server, store) | {"MLFLOW_TRACKING_URI": mlflow_server.url}
    with Fleet(project, tmp_path / "fleet", at) as fleet:
        with web(fleet) as page:
            named = fleet.start("quickstart")
            beside = f"lifecycle run {named[:8]} is not finished"
            assert beside in fleet.podium("run", "quickstart", status=1), "no second run beside it"
            until(lambda: fleet.reached(named, "base_policy"), "the pipeline run trains", 1200, LONG_S)
            until(lambda: fleet.reached(named, "baselines"), "the pipeline run evaluates", 1200)
            fleet.step_process(named, "baselines").kill()
            records = fleet.finished(named)
            dearer(project)
            retraining = launched(page, "retraining")
            said = fleet.podium("team", "start", "quickstart", status=1)
            assert f"retraining run {retraining[:8]} is not finished" in said, said
            assert planned(fleet, retraining) == "another price: algebraist (costs)"
            switched_on(page, "pool_changed")
            dearer(project)
            assert planned(fleet, noticed(fleet)) == "another price: algebraist (costs)"
        runs = [record.dagster_run for record in records]
        assert [run.status for run in runs] == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
        assert {run.tags[SNAPSHOT_TAG] for run in runs} == {runs[0].tags[SNAPSHOT_TAG]}
        done = fleet.reached(named, "conductor", dg.DagsterEventType.STEP_SUCCESS)
        assert "conductor" not in (runs[1].step_keys_to_execute or ()) or not done
        with fleet.instance() as instance:
            for name in JOBS["lifecycle"].assets:
                assert instance.get_latest_materialization_event(dg.AssetKey(name)), name
        for name, value in at.items():
            monkeypatch.setenv(name, value)

        # The results are where docs/deployment.md says.
        champion = registry.find_champion(project)
        assert champion is not None and champion.version == "1"
        with connect(project) as client:
            assert client.get_run(champion.run_id).info.artifact_uri.startswith("mlflow-artifacts:")
        assert any(key.endswith("model.safetensors") for key in store.objects("mlflow")), "artifacts are in the store"
        spent, cache = account(project), open_cache(project.cache)
        assert spent.calls == cache.backend.count(Kind.RESPONSE) > 0 and spent.lost == 0
        cache.close()
        sqlite = [file for file in project.root.rglob("*") if file.is_file() and is_sqlite(file)]
        assert sqlite == [], "no SQLite file lies on the volume"
        there = pulled(project, tmp_path / "data", "worker_responses", at)
        rows = load_responses(there.data / "responses")
        assert {row.worker for row in rows} == set(WORKERS) and {row.benchmark for row in rows} == set(TRAINED)

        # Stored answers are not requested again.
        fleet.finished(fleet.start("quickstart", "evaluate"))
        assert account(project) == spent

    # Another machine: a checkout without data and state, with only the addresses of the services.
    elsewhere = shortened(make_project(tmp_path / "elsewhere"))
    environment = at | {"PODIUM_ROOT": str(elsewhere.root)}
    said = subprocess.run(
        [*PODIUM, "ask", QUESTION], cwd=elsewhere.root, env=os.environ | environment,
        capture_output=True, text=True, check=False, timeout=2880,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    with Running(tmp_path / "serve", load_pool(elsewhere.config, "quickstart"), serve(), **environment) as server:
        assert server.version_in_service() == champion.version
        body = {"model": "conductor", "messages": [{"role": "user", "content": QUESTION}]}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120, trust_env=False)
        assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"], answer.text


@contextmanager
def web(fleet: Fleet) -> Iterator[str]:
    """Start Dagster's web server and return its address."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = ("-w", str(fleet.workspace.config / "team" / "workspace.yaml"), "--port", str(port))
    process = Process([str(PROGRAMS / "dagster-webserver"), *options], fleet.folder / "web.log", fleet.environment)
    try:
        until(lambda: answers(f"{url}/server_info"), "the web server answers")
        yield url
    finally:
        process.stop()


def graphql(page: str, query: str, **variables: Any) -> Any:
    """Ask Dagster's web server."""
    asked = {"query": query, "variables": variables}
    return httpx.post(f"{page}/graphql", json=asked, timeout=120, trust_env=False).raise_for_status().json()["data"]


REPOSITORY = {"repositoryLocationName": "podium", "repositoryName": "__repository__"}
LAUNCH = """mutation($params: ExecutionParams!) {
    launchRun(executionParams: $params) {... on LaunchRunSuccess {run {runId}} ... on PythonError {message}}}"""


def launched(page: str, job: str) -> str:
    """Start a run of the job as the launchpad does; return its id."""
    selector = REPOSITORY | {"jobName": job}
    answer = graphql(page, LAUNCH, params={"selector": selector, "runConfigData": {}})
    return str(answer["launchRun"]["run"]["runId"])


SWITCH_ON = """mutation($sensor: SensorSelector!) {
    startSensor(sensorSelector: $sensor) {... on Sensor {sensorState {status}} ... on PythonError {message}}}"""


def switched_on(page: str, sensor: str) -> None:
    """Turn on the sensor or schedule, as its switch in the web UI does."""
    answer = graphql(page, SWITCH_ON, sensor=REPOSITORY | {"sensorName": sensor})
    assert answer["startSensor"] == {"sensorState": {"status": "RUNNING"}}, answer


def noticed(fleet: Fleet) -> str:
    """Return the id of the run that the sensor requested, executed by the daemon."""
    with fleet.instance() as instance:

        def asked() -> list[dg.DagsterRun]:
            return list(instance.get_runs(dg.RunsFilter(tags={"dagster/sensor_name": POOL_CHANGED})))

        until(lambda: bool(asked()), "the sensor asked for a run", 600, LONG_S)
        [run] = asked()
        return run.run_id


def planned(fleet: Fleet, run_id: str) -> str:
    """Return the plan that the run executed, after its success."""
    fleet.finished(run_id)
    with fleet.instance() as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        return run.tags["plan"]


def dearer(workspace: Workspace) -> None:
    """Write another price into the pool's file."""
    file = workspace.config / "pools" / "quickstart.yaml"
    pool = yaml.safe_load(file.read_text(encoding="utf-8"))
    pool["workers"][0]["price"]["output"] += 1
    file.write_text(yaml.safe_dump(pool, sort_keys=False), encoding="utf-8")


def account(workspace: Workspace) -> SpendingSum:
    """Return the spending of the only run in the ledger, and check that nothing is still reserved."""
    ledger = open_ledger(workspace.ledger)
    try:
        assert ledger.open_reservations() == {}
        [spent] = ledger.by_run().values()
        return spent
    finally:
        ledger.close()


def serve() -> list[str]:
    return [*PODIUM, "serve", "--port", str(free_port())]


def is_sqlite(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(16) == b"SQLite format 3\0"
