"""The registry on MLflow's server over Postgres and an S3 store: an outage of the store, and a restart of Postgres."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from ops.config import Pool
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.ask import ask_champion
from ops.release.mlflow_store import RegistryError, check_stores_all_characters, connect
from ops.results.table import iterate_records
from tests.integration.test_registry import (  # noqa: F401  (fixtures)
    QUESTION,
    ROOT,
    WORKFLOW,
    YES,
    policy,
    pool,
    register,
    rows,
)
from tests.team.servers import S3, Mlflow, Postgres


@pytest.fixture
def workspace(tmp_path: Path, mlflow_server: Mlflow, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server.url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    shutil.copytree(ROOT / "mlflow", tmp_path / "mlflow")
    (tmp_path / "config").mkdir()
    (tmp_path / "dvc.yaml").touch()
    return Workspace(tmp_path)


@pytest.mark.long  # `make test` tests the same on a store in SQLite (tests/integration/test_registry.py)
@pytest.mark.timeout(900)
def test_a_champion_on_a_server_loads_anywhere_and_a_partial_upload_is_not_a_version(
    workspace: Workspace, policy: Path, pool: Pool, store: S3, postgres: Postgres, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    check_stores_all_characters(workspace)
    store.pause()
    with pytest.raises(RegistryError, match=r"MLflow.*did not accept the model.*run the same"):
        register(workspace, policy, pool, right=6)
    store.go_on()
    assert registry.find_challenger(workspace) is None, "half a model is no version"

    first = register(workspace, policy, pool, right=6)
    assert aliases.promote_version(workspace, first.version, YES)
    assert registry.find_champion(workspace) is not None
    assert not list(workspace.state.rglob("*.db")), "nothing of the registry lies in the checkout"
    with connect(workspace) as client:
        assert client.get_run(first.run_id).info.artifact_uri.startswith("mlflow-artifacts:")
    answer = ask_champion(workspace, QUESTION, {})
    assert answer["custom_outputs"]["workflow"] == WORKFLOW

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")  # the default value
    restarted = threading.Thread(target=lambda: (postgres.stop(), time.sleep(1), postgres.start()))
    restarted.start()
    second = register(workspace, policy, pool, right=8)
    restarted.join(720)
    assert second.version != first.version and second.aliases == ("challenger",)
    assert len(list(iterate_records(registry.load_scores(workspace, second)))) == len(rows(8))


@pytest.mark.long
def test_a_server_whose_database_lacks_characters_is_refused_and_one_that_is_down_is_left_to_others(
    tmp_path: Path, postgres: Postgres, store: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres.database("SQL_ASCII").replace("://", "+psycopg2://")
    server = Mlflow(tmp_path, database, store.artifacts, **store.environment)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI: is a server that does not store every text.*UTF8"):
        check_stores_all_characters(Workspace(tmp_path))
    server.stop()
    check_stores_all_characters(Workspace(tmp_path))
