"""The environment of a command: addresses of servers, `.env`, and what `podium doctor` finds on the machine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ops.core.errors import ConfigError
from ops.core.servers import check_addresses, find_invalid_addresses
from ops.core.workspace import Workspace
from ops.planning import doctor
from ops.planning.doctor import Diagnosis, diagnose_machine
from ops.spending.ledger import open_ledger
from pipelines.environment_file import read_environment_file
from tests.command import podium, tried

VARIABLES = ("PODIUM_CACHE_URL", "PODIUM_LIMITS_URL", "PODIUM_LEDGER_URL", "MLFLOW_TRACKING_URI")
GARBAGE = (
    "garbage", "localhost:6379", "ftp://host/x", "http//host", "redis:host", "secret-word@host", "://x", "http://[x",
)  # fmt: skip
OF_ANOTHER_KIND = {
    "PODIUM_CACHE_URL": (
        "redis://host:notaport/0", "redis://host:99999/0", "redis://host:0/0", "redis://ho st:6379/0",
    ),
    "PODIUM_LEDGER_URL": ("redis://host:6379/0", "postgresql:db"),
    "MLFLOW_TRACKING_URI": ("http://", "http://host:port"),
}  # fmt: skip
ACCEPTED = {
    "PODIUM_CACHE_URL": ("redis://host", "redis:///0", "rediss://:password@host:6380/1"),
    "PODIUM_LIMITS_URL": ("unix:///run/redis.sock?db=0",),
    "PODIUM_LEDGER_URL": (
        "postgresql://me:password@host:5432/db", "postgres://host/db", "postgresql://one:1,two:2/db",
        "postgresql:///db?host=/run/postgresql",
    ),
    "MLFLOW_TRACKING_URI": (
        "http://127.0.0.1:5000", "sqlite:////var/mlflow.db", "postgresql+psycopg2://me:password@host/db",
        "file:/srv/mlruns", "/srv/mlruns", "databricks", "databricks://profile",
    ),
}  # fmt: skip


def each(values: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(variable, value) for variable, own in values.items() for value in own]


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


@pytest.mark.parametrize(("variable", "value"), each(OF_ANOTHER_KIND))
def test_an_address_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert [error.file for error in find_invalid_addresses()] == [variable]


@pytest.mark.parametrize(("variable", "value"), each(ACCEPTED))
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


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_run_checks_every_address_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODIUM_ROOT", raising=False)
    monkeypatch.setenv(variable, "garbage")
    assert podium("run") == 1
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if variable in line] == [lines[-1]]
    assert not any("Traceback" in line for line in lines)
    assert not list(tmp_path.rglob("ledger.sqlite*")) and not list(tmp_path.rglob("mlflow.db"))


# ── podium doctor and .env ───────────────────────────────────────────────────


POOL = "name: mine\nworkers:\n  - {name: a, model: openai/m, api_key_env: MY_KEY}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ |= {"PODIUM_ROOT": str(tmp_path)}
    os.environ.pop("MY_KEY", None)
    (tmp_path / "config" / "pools").mkdir(parents=True)
    (tmp_path / "config" / "pools" / "mine.yaml").write_text(POOL, encoding="utf-8")
    return tmp_path


def found(root: Path) -> dict[str, Diagnosis]:
    return {each.what: each for each in diagnose_machine(Workspace(root))}


def test_everything_is_looked_at_and_each_lack_has_a_remedy(root: Path) -> None:
    every = found(root)
    assert list(every) == ["Python", "git", "disk", "sandbox", "MY_KEY", "GPUs", "vllm", "deepspeed"]
    assert all(each.remedy for each in every.values() if each.state != "ok")
    assert (every["MY_KEY"].state, every["MY_KEY"].said) == ("optional", "is not set; needed by the pool mine")
    os.environ["MY_KEY"] = "abc"
    assert (found(root)["MY_KEY"].state, found(root)["MY_KEY"].remedy) == ("ok", "")


def test_what_every_recipe_needs_decides_the_exit_status(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MIN_FREE_GIB", 0.0)
    well = tried("doctor")
    assert well.exit_code == 0
    assert "optional  MY_KEY     is not set; needed by the pool mine. Write it into .env" in well.stdout
    monkeypatch.setattr(doctor, "MIN_FREE_GIB", 1e9)
    ill = tried("doctor", "--json")
    told = {each["what"]: each for each in json.loads(ill.stdout)}
    assert ill.exit_code == 1 and told["disk"]["state"] == "missing" and "Free" in told["disk"]["remedy"]


def test_without_git_no_run_can_note_its_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert found(root)["git"].state == "missing"


def test_the_environment_file_adds_what_is_not_set(root: Path) -> None:
    os.environ["KEPT"] = "mine"
    text = '# keys\nMY_KEY="from the file"\nKEPT=theirs\nEMPTY_VARIABLE=\nexport OTHER=x\n'
    (root / ".env").write_text(text, encoding="utf-8")
    read_environment_file(Workspace(root))
    names = ("MY_KEY", "KEPT", "EMPTY_VARIABLE", "OTHER")
    assert [os.environ.get(name) for name in names] == ["from the file", "mine", None, "x"]


@pytest.mark.parametrize(("text", "said"), [
    ("MY_KEY=a\n\n'sk secret\n", "line 3: is not an assignment. Write NAME=VALUE"),
    ("MY_KEY=a\nsecret\n", "line 2: is not an assignment. Write NAME=VALUE"),
    ("# keys\nMY_KEY=secret\0\n", "line 2: contains a NUL byte. Write the line again"),
    ("MY_KEY='a\0secret'\n", "line 1: contains a NUL byte"),
    (None, "is a folder, not a text file. Put a text file there"),
])  # fmt: skip
def test_a_broken_environment_file_is_one_line_without_its_text(root: Path, text: str | None, said: str) -> None:
    file = root / ".env"
    if text is None:
        file.mkdir()
    else:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_environment_file(Workspace(root))
    assert str(refused.value).startswith(f"{file}: {said}")
    assert "\n" not in str(refused.value) and "secret" not in str(refused.value)
