"""The parts of a workspace know of each other: one that is gone, empty or foreign is named before anything is spent."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ops.core.errors import PodiumError
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.core.workspace_parts import (
    ACCEPT_OPTION,
    CACHE,
    LEDGER,
    REGISTRY,
    WorkspacePart,
    accept_missing_parts,
    check_parts,
    find_lost_records,
    find_missing_parts,
    record_parts,
)
from ops.spending.ledger import Bill, Ledger
from ops.store import ResponseCache

RESPONSE = Response("Answer: 4", Usage(10, 5), 0.25, 0.25, "stop")


def pay(workspace: Workspace, count: int = 5, *, first: int = 0, stored: bool = True) -> None:
    """Book calls, and store their responses."""
    ledger, cache = Ledger(workspace.ledger), ResponseCache(workspace.cache)
    for number in range(first, first + count):
        ledger.settle(Bill(ledger.reserve("run", 1.0, 1e9), "test", "w", 0.25, Usage(10, 5), f"key-{number}"))
        if stored:
            cache.put_many([(f"key-{number}", "{}", RESPONSE)])
    ledger.close()
    cache.close()


def register(workspace: Workspace, runs: int = 2) -> None:
    """Lay a store of MLflow with these runs and an artifact of each in place, as far as this module looks at it."""
    file = workspace.state / REGISTRY.relative_path
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE runs (id TEXT)")
        connection.executemany("INSERT INTO runs VALUES (?)", [(str(number),) for number in range(runs)])
    for number in range(runs):
        artifact = file.with_name("artifacts") / str(number) / "policy"
        artifact.parent.mkdir(parents=True)
        artifact.touch()


def logs_of(file: Path) -> list[Path]:
    return [file.with_name(file.name + suffix) for suffix in ("-wal", "-shm")]


def files_of(workspace: Workspace) -> list[Path]:
    """Return the files of a workspace, without the logs with which SQLite reads a database."""
    return sorted(file for file in workspace.state.rglob("*") if not file.name.endswith(("-wal", "-shm")))


def remove(file: Path) -> None:
    for path in (file, *logs_of(file)):
        path.unlink(missing_ok=True)


def empty(file: Path) -> None:
    remove(file)
    file.touch()


def overwrite(file: Path) -> None:
    content = file.read_bytes()
    remove(file)
    file.write_bytes(b"x" * 100 + content[100:])


def put_a_folder(file: Path) -> None:
    remove(file)
    file.mkdir()


def cut(file: Path) -> None:
    content = file.read_bytes()
    remove(file)
    file.write_bytes(content[: len(content) // 2 + 7])


DAMAGES = (remove, empty, overwrite, put_a_folder, cut)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "project")


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "from before"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("part", [LEDGER, CACHE, REGISTRY], ids=lambda part: part.name)
def test_a_damaged_part_is_named_in_one_line_until_a_person_accepts_it(
    workspace: Workspace, part: WorkspacePart, damage: Callable[[Path], None], noted: bool
) -> None:
    pay(workspace, 200)
    register(workspace)
    if noted:
        check_parts(workspace)
    damage(file := workspace.state / part.relative_path)
    before = files_of(workspace)
    with pytest.raises(PodiumError) as raised:
        check_parts(workspace)
    said = str(raised.value)
    assert said.startswith(f"{file}: ") and "\n" not in said
    assert ACCEPT_OPTION in said and "`podium restore FILE`" in said and part.loss in said
    assert files_of(workspace) == before, "to look makes nothing"
    assert [str(error) for error in find_missing_parts(workspace)] == [said]

    aside = accept_missing_parts(workspace)
    assert len(aside) == (damage in (overwrite, put_a_folder, cut))
    assert all(path.exists() for path in aside)
    check_parts(workspace)
    pay(workspace, 3, first=1000)
    check_parts(workspace)


def test_what_is_no_loss_is_none(workspace: Workspace) -> None:
    check_parts(workspace)  # a fresh checkout
    pay(workspace, 2, stored=False)  # only blank replies so far
    check_parts(workspace)
    pay(workspace)
    check_parts(workspace)
    (workspace.state / "parts.json").unlink()  # a workspace from before
    check_parts(workspace)
    register(workspace)
    record_parts(workspace)
    shutil.rmtree(workspace.state / "mlflow")  # `make clean`
    (workspace.state / "parts.json").unlink()
    check_parts(workspace)
    ResponseCache(workspace.cache).delete([f"key-{number}" for number in range(5)])
    accept_missing_parts(workspace, CACHE)  # `podium cache prune`
    check_parts(workspace)


@pytest.mark.parametrize("content", ["", "[1]", '{"ledger": "many"}', "\0" * 40, None])
def test_a_damaged_note_is_as_none(workspace: Workspace, content: str | None) -> None:
    pay(workspace)
    check_parts(workspace)
    note = workspace.state / "parts.json"
    note.unlink()
    if content is not None:
        note.write_text(content, encoding="utf-8")
    check_parts(workspace)
    remove(workspace.ledger)
    assert [error.file for error in find_missing_parts(workspace)] == [str(workspace.ledger)]


def test_a_part_that_was_begun_anew_behind_the_commands_back_is_found(workspace: Workspace) -> None:
    pay(workspace, 20)
    check_parts(workspace)
    remove(workspace.ledger)
    pay(workspace, 3, first=100)
    with pytest.raises(PodiumError, match=r"ledger\.sqlite: holds 3 calls, and it held 20 calls before"):
        check_parts(workspace)


def test_a_first_run_that_was_killed_leaves_no_gap(workspace: Workspace) -> None:
    check_parts(workspace)  # at its start; it was killed before it could write the note again
    pay(workspace)
    remove(workspace.ledger)
    with pytest.raises(PodiumError, match=r"ledger\.sqlite: is missing, and .*responses\.sqlite holds 5 responses"):
        check_parts(workspace)


@pytest.mark.parametrize(
    ("variable", "part"),
    [("PODIUM_LEDGER_URL", LEDGER), ("PODIUM_CACHE_URL", CACHE), ("MLFLOW_TRACKING_URI", REGISTRY)],
)
def test_what_a_teams_server_has_is_the_servers_to_keep(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, variable: str, part: WorkspacePart
) -> None:
    pay(workspace)
    register(workspace)
    check_parts(workspace)
    remove(workspace.state / part.relative_path)
    monkeypatch.setenv(variable, "https://example.org/somewhere")
    check_parts(workspace)


def test_reading_makes_no_file(workspace: Workspace) -> None:
    ledger, cache = Ledger(workspace.ledger), ResponseCache(workspace.cache)
    assert (ledger.by_run(), ledger.latest_calls(3), ledger.open_reservations(), ledger.lost_keys_without_cost()) == (
        {},
        [],
        {},
        [],
    )
    assert (len(cache), cache.get("key"), cache.find_existing(["key"]), list(cache.backend.iterate_entries())) == (
        0,
        None,
        set(),
        [],
    )
    ledger.close()
    cache.close()
    assert not workspace.state.exists()
    pay(workspace, 1)
    assert (len(cache), ledger.by_run()["run"].calls) == (1, 1)


@pytest.mark.parametrize(("damage", "state"), [
    (lambda file: file.unlink(), "is missing"),
    (lambda file: file.write_text(""), "holds 0 readable alerts"),
    (lambda file: file.write_text(file.read_text()[:-5]), "holds 1 readable alerts"),
])  # fmt: skip
def test_alerts_that_are_lost_are_told_until_a_person_agrees(
    tmp_path: Path, damage: Callable[[Path], None], state: str
) -> None:
    workspace = Workspace(tmp_path)
    file = workspace.state / "alerts.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"at": 1}\n{"at": 2}\n')
    assert not find_lost_records(workspace)
    record_parts(workspace)
    damage(file)
    [lost] = find_lost_records(workspace)
    assert f"alerts.jsonl: {state}, and it held 2 before" in str(lost) and ACCEPT_OPTION in str(lost)
    check_parts(workspace)  # nothing that spends stops
    assert find_lost_records(workspace)
    accept_missing_parts(workspace)
    assert not find_lost_records(workspace)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_lost_list_of_runs_is_told_and_a_deleted_run_is_not(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    workspace = Workspace(tmp_path)
    file = workspace.dagster_home / "history" / "runs.db"
    file.parent.mkdir(parents=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE runs (id); INSERT INTO runs VALUES (1), (2), (3);")
    record_parts(workspace)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM runs WHERE id = 1")
        connection.commit()
    assert not find_lost_records(workspace)
    damage(file)
    [lost] = find_lost_records(workspace)
    assert str(file) in str(lost) and "held 3 before" in str(lost)
    check_parts(workspace)
