"""Addresses of servers in the environment: a wrong one stops a run before anything is spent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ops.core.errors import ConfigError
from ops.core.servers import check_addresses, wrong_addresses
from ops.spending.ledger import open_ledger
from tests.command import PODIUM, podium

VARIABLES = ("PODIUM_CACHE_URL", "PODIUM_LIMITS_URL", "PODIUM_LEDGER_URL", "MLFLOW_TRACKING_URI")
GARBAGE = ("garbage", "localhost:6379", "ftp://host/x", "http//host", "redis:host", "secret-word@host", "://x", "http://[x")


@pytest.fixture(autouse=True)
def none_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_is_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        check_addresses()
    said = str(caught.value)
    assert said.startswith(f"{variable}: ") and "unset it" in said and "\n" not in said
    assert "secret-word" not in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PODIUM_CACHE_URL", "redis://host:notaport/0"),
        ("PODIUM_CACHE_URL", "redis://host:99999/0"),
        ("PODIUM_CACHE_URL", "redis://host:0/0"),
        ("PODIUM_CACHE_URL", "redis://ho st:6379/0"),
        ("PODIUM_LEDGER_URL", "redis://host:6379/0"),
        ("PODIUM_LEDGER_URL", "postgresql:db"),
        ("MLFLOW_TRACKING_URI", "http://"),
        ("MLFLOW_TRACKING_URI", "http://host:port"),
    ],
)
def test_an_address_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert [error.file for error in wrong_addresses()] == [variable]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PODIUM_CACHE_URL", "redis://host"),
        ("PODIUM_CACHE_URL", "redis:///0"),
        ("PODIUM_CACHE_URL", "rediss://:password@host:6380/1"),
        ("PODIUM_LIMITS_URL", "unix:///run/redis.sock?db=0"),
        ("PODIUM_LEDGER_URL", "postgresql://me:password@host:5432/db"),
        ("PODIUM_LEDGER_URL", "postgres://host/db"),
        ("PODIUM_LEDGER_URL", "postgresql://one:1,two:2/db"),
        ("PODIUM_LEDGER_URL", "postgresql:///db?host=/run/postgresql"),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"),
        ("MLFLOW_TRACKING_URI", "sqlite:////var/mlflow.db"),
        ("MLFLOW_TRACKING_URI", "postgresql+psycopg2://me:password@host/db"),
        ("MLFLOW_TRACKING_URI", "file:/srv/mlruns"),
        ("MLFLOW_TRACKING_URI", "/srv/mlruns"),
        ("MLFLOW_TRACKING_URI", "databricks"),
        ("MLFLOW_TRACKING_URI", "databricks://profile"),
    ],
)
def test_an_address_of_its_kind_is_accepted(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    check_addresses()


def test_a_rehearsal_does_not_read_mlflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "garbage")
    check_addresses(mlflow=False)


def test_a_wrong_ledger_is_refused_when_it_is_opened_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PODIUM_LEDGER_URL", "garbage")
    with pytest.raises(ConfigError, match="PODIUM_LEDGER_URL"):
        open_ledger(tmp_path / "ledger.sqlite")
    assert list(tmp_path.iterdir()) == []


def assert_one_line(said: str, variable: str, folder: Path) -> None:
    assert [line for line in said.splitlines() if variable in line] == [said.splitlines()[-1]]
    assert "Traceback" not in said
    assert not list(folder.rglob("ledger.sqlite*")) and not list(folder.rglob("mlflow.db"))


def test_a_run_ends_in_one_line_before_anything_is_spent(tmp_path: Path) -> None:
    root, variable = Path(__file__).parents[2], VARIABLES[0]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": str(tmp_path), variable: "garbage"}
    ended = subprocess.run(
        [*PODIUM, "run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout
    assert_one_line(ended.stderr, variable, tmp_path)


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_run_checks_every_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODIUM_ROOT", raising=False)
    monkeypatch.setenv(variable, "garbage")
    assert podium("run") == 1
    assert_one_line(capfd.readouterr().err, variable, tmp_path)
