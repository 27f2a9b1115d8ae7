"""`podium doctor` and `.env`: what the machine has, and which variables a command starts with."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.planning import doctor
from ops.planning.doctor import Diagnosis, diagnose
from pipelines.environment_file import read_environment_file
from tests.command import podium

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
    return {each.what: each for each in diagnose(Workspace(root))}


def test_everything_is_looked_at_and_each_lack_has_a_remedy(root: Path) -> None:
    every = found(root)
    assert list(every) == ["Python", "git", "disk", "sandbox", "MY_KEY", "GPUs", "vllm", "deepspeed"]
    assert all(each.remedy for each in every.values() if each.state != "ok")
    assert (every["MY_KEY"].state, every["MY_KEY"].said) == ("optional", "is not set; for mine")
    os.environ["MY_KEY"] = "abc"
    assert (found(root)["MY_KEY"].state, found(root)["MY_KEY"].remedy) == ("ok", "")


def test_what_every_recipe_needs_decides_the_exit_status(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LEAST_GIB", 0.0)
    assert podium("doctor") == 0
    assert "optional  MY_KEY     is not set; for mine. Write it into .env" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "LEAST_GIB", 1e9)
    assert podium("doctor", "--json") == 1
    told = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["disk"]["state"] == "missing" and "Free" in told["disk"]["remedy"]


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


def test_a_line_that_assigns_nothing_is_refused_without_its_text(root: Path) -> None:
    (root / ".env").write_text("MY_KEY=a\n\n'sk secret\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\.env: line 3: is no assignment\. Write NAME=VALUE") as refused:
        read_environment_file(Workspace(root))
    assert "secret" not in str(refused.value)
