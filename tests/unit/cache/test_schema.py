"""Files of the cache and of the ledger have one schema: those of another version are refused and left as they are."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.cache import ResponseCache
from ops.core import sqlite
from ops.core.errors import DataError
from ops.core.sqlite import SqliteFile
from ops.spending.ledger import Ledger

OPENED: dict[str, Callable[[Path], object]] = {
    "responses.sqlite": lambda folder: ResponseCache(folder).get("key"),
    "claims.sqlite": lambda folder: ResponseCache(folder).backend.claim("key"),
    "ledger.sqlite": lambda folder: Ledger(folder / "ledger.sqlite").spent("run"),
}
_OPEN = """
    import sys
    from pathlib import Path
    from ops.cache import ResponseCache
    print(len(ResponseCache(Path(sys.argv[1]))))
"""


@pytest.mark.parametrize("version", [0, 2, 99])
@pytest.mark.parametrize("name", OPENED)
def test_a_file_of_another_version_is_refused_and_not_touched(tmp_path: Path, name: str, version: int) -> None:
    with sqlite3.connect(tmp_path / name) as connection:
        connection.execute("CREATE TABLE something (else_ TEXT)")
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    with pytest.raises(
        DataError, match=rf"{name}: schema: is version {version}, and this version of Podium uses .*move the file"
    ):
        OPENED[name](tmp_path)
    connection = sqlite3.connect(tmp_path / name)
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("something",)]
    connection.close()
    assert list(tmp_path.glob("*damaged*")) == []


def test_processes_that_meet_no_file_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_OPEN), str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=100)[0].strip() for process in running] == ["0"] * 4


def test_a_file_that_another_process_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite._has_tables

    def meanwhile(connection: sqlite3.Connection) -> bool:
        monkeypatch.setattr(sqlite, "_has_tables", real)
        with SqliteFile(tmp_path / "x", 1, ["CREATE TABLE one (a TEXT)"]).writing() as other:
            other.execute("INSERT INTO one VALUES ('kept')")
        return real(connection)

    monkeypatch.setattr(sqlite, "_has_tables", meanwhile)
    with SqliteFile(tmp_path / "x", 1, ["CREATE TABLE one (a TEXT)"]).writing() as connection:
        assert connection.execute("SELECT a FROM one").fetchall() == [("kept",)]


def test_a_schema_that_fails_leaves_an_empty_file(tmp_path: Path) -> None:
    statements = ("CREATE TABLE one (a TEXT)", "CREATE TABLE one (a TEXT)")
    file = SqliteFile(tmp_path / "x", 1, statements)
    with pytest.raises(sqlite3.OperationalError, match="already exists"), file.writing():
        pass
    with SqliteFile(tmp_path / "x", 1, statements[:1]).writing() as connection:
        assert connection.execute("SELECT count(*) FROM one").fetchone() == (0,)
