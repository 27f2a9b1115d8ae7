"""A workspace whose ledger, cache or registry is gone: each command says so in one line and stops before it spends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ops.config import load_serving
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.core.workspace_parts import ACCEPT_OPTION, accept_missing_parts, check_parts
from ops.serving.engine import ServingEngine
from pipelines.commands.main import podium
from tests.unit.core.test_parts import DAMAGES, empty, logs_of, pay, register, remove

PAYING = (
    "run --yes", "train --yes", "evaluate --yes", "retrain --yes", "drift --yes", "reproduce --yes",
    "pools ping quickstart --yes", "data responses quickstart --yes", "study one_worker --yes",
    "init --pool quickstart --yes",
)  # fmt: skip
PAYING_ALSO = ("team start", "data gold", "ask", "serve")
"""Commands that need a server, a judge or a champion before they would pay; they have the option, too."""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace in which calls were paid."""
    made = Workspace(tmp_path / "project")
    assert CliRunner().invoke(podium, ["init", str(made.root)]).exit_code == 0
    pay(made, 20)
    check_parts(made)
    monkeypatch.chdir(made.root)
    return made


def command(line: str) -> Result:
    return CliRunner().invoke(podium, line.split())


@pytest.mark.parametrize("line", PAYING)
def test_a_command_that_pays_stops_before_it_does(workspace: Workspace, line: str) -> None:
    remove(workspace.ledger)
    done = command(line)
    assert done.exit_code == 1
    [said] = [said for said in done.output.splitlines() if ACCEPT_OPTION in said]
    assert f"{workspace.ledger}: is missing, and it held 20 calls before" in said
    assert not workspace.ledger.exists(), "nothing was spent"


@pytest.mark.parametrize("line", [*PAYING, *PAYING_ALSO])
def test_each_command_that_pays_has_the_option(line: str) -> None:
    words = [word for word in line.split() if not word.startswith("-")]
    if words[0] not in ("pools", "data", "team"):
        words = words[:1]
    assert ACCEPT_OPTION in CliRunner().invoke(podium, [*words[:2], "--help"]).output


def test_a_server_and_a_question_stop_before_the_first_call(workspace: Workspace) -> None:
    remove(workspace.ledger)
    engine = ServingEngine(workspace, load_serving(workspace.config))
    with pytest.raises(PodiumError, match=rf"ledger\.sqlite: is missing.*{ACCEPT_OPTION}"):
        engine.replace_version(None)  # type: ignore[arg-type]  # it is not looked at
    accept_missing_parts(workspace)
    engine.replace_version(None)  # type: ignore[arg-type]
    assert not workspace.ledger.exists()


def test_a_person_accepts_it_once(workspace: Workspace) -> None:
    empty(workspace.ledger)
    assert command("pools ping quickstart --yes").exit_code == 1
    done = command(f"pools ping quickstart {ACCEPT_OPTION} --yes")
    assert (done.exit_code, "Podium begins a new one" in done.output) == (0, True), done.output
    assert command("pools ping quickstart --yes").exit_code == 0
    assert command("ledger").exit_code == 0


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_commands_that_read_say_so_and_make_nothing(workspace: Workspace, damage: Callable[[Path], None]) -> None:
    damage(workspace.ledger)
    said = command("status")
    assert said.exit_code == 0
    assert f"Missing     {workspace.ledger}: " in said.output
    assert "Spent" not in said.output
    facts = json.loads(command("status --json").output)
    assert facts["usd_in_all"] is None
    assert len(facts["missing"]) == 1
    books = command("ledger")
    assert books.exit_code == 1
    assert str(workspace.ledger) in books.output
    plan = command("plan quickstart")
    assert plan.exit_code == 1
    assert str(workspace.ledger) in plan.output.replace("\n", "")
    assert workspace.ledger.exists() == (damage is not remove)


def test_an_empty_registry_is_not_taken_for_a_new_one(workspace: Workspace) -> None:
    register(workspace)
    check_parts(workspace)
    empty(registry := workspace.state / "mlflow" / "mlflow.db")
    for line in ("ask What?", "promote --by Ada --reason why", "rollback --reason why", "verdict"):
        done = command(line)
        assert done.exit_code == 1
        assert f"{registry}: is empty, and it held 2 runs and versions before" in done.output
        assert registry.stat().st_size == 0
    assert f"Missing     {registry}: " in command("status").output


@pytest.mark.parametrize("name", ["dagster.yaml", "dvc.yaml", "config/recipes", "config/promotion.yaml"])
def test_init_brings_back_what_is_missing(workspace: Workspace, name: str) -> None:
    """The remedy of messages about these files."""
    file = workspace.root / name
    before = {path: path.read_bytes() for path in [file, *file.rglob("*")] if path.is_file()}
    shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert command(f"init {workspace.root}").exit_code == 0
    assert {path: path.read_bytes() for path in before} == before
    assert command("plan quickstart").exit_code == 0


def test_a_damaged_file_that_was_moved_away_is_begun_anew_by_the_option(workspace: Workspace) -> None:
    """The other remedy of a damaged ledger; the message that follows names the option."""
    workspace.ledger.rename(workspace.state / "elsewhere")
    for log in logs_of(workspace.ledger):
        log.unlink(missing_ok=True)
    said = command("pools ping quickstart --yes").output
    assert said.count("\n") == 1
    assert ACCEPT_OPTION in said
    assert command(f"pools ping quickstart --yes {ACCEPT_OPTION}").exit_code == 0
