"""Damaged SQLite files: a file that only saves time is made again, no damaged entry is ever given, and nothing sound of
the store is lost or paid for again before a person has agreed."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.sqlite import DamagedDatabaseError, SqliteFile
from ops.core.usage import Usage
from ops.store import Kind, ResponseCache, ValueStore, cache_key, cache_material
from ops.store.admin import verify_entries
from ops.store.sqlite_file import SqliteBackend
from tests.unit.store.conftest import take

Damage = Callable[[Path], None]
VALUES = {f"{number:064x}": f"text {number} " * 20 for number in range(100)}


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def put_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def put_garbage(file: Path) -> None:
    file.write_bytes(b"garbage " * 1000)


def use_another_version(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def overwrite_at(share: float) -> Damage:
    """Overwrite 100 bytes at that share of the file."""

    def overwrite(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.seek(int(share * (file.stat().st_size - 100)))
            opened.write(random.Random(share).randbytes(100))

    overwrite.__name__ = f"overwrite at {share:.3f}"
    return overwrite


WHOLE: list[Damage] = [cut, empty, Path.unlink, put_folder, put_garbage, use_another_version]
PLACES: list[Damage] = [overwrite_at(number / 40) for number in range(41)]


# ── a file that only saves time ──────────────────────────────────────────────


def numbers(file: Path) -> SqliteFile:
    return SqliteFile(file, 2, ("CREATE TABLE numbers (number INTEGER PRIMARY KEY)",), is_disposable=True)


def note(file: SqliteFile, number: int) -> list[int]:
    """Store a number, and return all that are there."""

    def write() -> list[int]:
        with file.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO numbers VALUES (?)", (number,))
            return [each for (each,) in connection.execute("SELECT number FROM numbers ORDER BY number")]

    return file.run_or_recreate(write)


def test_a_file_that_cannot_be_used_is_renamed_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "numbers.sqlite"
    put_garbage(file)
    with caplog.at_level(logging.WARNING):
        used = numbers(file)
        assert [note(used, 1), note(used, 2)] == [[1], [1, 2]]
    [aside] = tmp_path.glob("numbers.sqlite.damaged-*")
    assert aside.read_bytes() == b"garbage " * 1000
    [line] = caplog.messages
    assert str(file) in line and "not a database" in line and aside.name in line


def test_threads_that_meet_a_damaged_file_together_rename_it_once(tmp_path: Path) -> None:
    file, begin = tmp_path / "numbers.sqlite", threading.Barrier(8)
    put_garbage(file)
    used = [numbers(file) for _ in range(8)]

    def work(number: int) -> None:
        begin.wait(60)
        note(used[number], number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert note(numbers(file), 0) == list(range(8))
    assert len([aside for aside in tmp_path.glob("numbers.sqlite.damaged-*") if aside.name[-1].isdigit()]) == 1


def test_a_file_that_this_user_may_not_write_is_no_damaged_one(tmp_path: Path) -> None:
    """It is left alone: the message says what to do."""
    file = tmp_path / "numbers.sqlite"
    note(numbers(file), 1)
    held = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly") as raised:
        held.execute("DELETE FROM numbers")
    held.close()
    with (
        pytest.raises(DataError, match=r"numbers\.sqlite: attempt to write a readonly database\. Make the file and"),
        numbers(file).connection(),
    ):
        raise raised.value
    assert not list(tmp_path.glob("*.damaged-*"))


# ── the store ───────────────────────────────────────────────────────


def entry(number: int) -> tuple[str, str, Response]:
    messages = [{"role": "user", "content": f"Question {number}? {'so ' * 100}"}]
    response = Response(f"Answer: {number} {'long ' * 50}", Usage(10, 5), 2e-5, 0.25, "stop")
    return cache_key({"model": "m"}, messages, 0), cache_material({"model": "m"}, messages, 0), response


def completions(cache: ResponseCache) -> ValueStore[str]:
    return ValueStore(cache.backend, Kind.COMPLETION, str)


PAID = {key: response.text for key, _, response in map(entry, range(200))}


@pytest.fixture(scope="module")
def responses(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of paid responses, with completions."""
    folder = tmp_path_factory.mktemp("responses")
    cache = ResponseCache(folder)
    cache.put_many([entry(number) for number in range(200)])
    completions(cache).put(VALUES)
    cache.close()
    return (folder / "responses.sqlite").read_bytes()


@pytest.mark.parametrize("damage", [cut, put_folder, put_garbage, *PLACES], ids=lambda damage: damage.__name__)
def test_paid_responses_are_right_or_missing_and_a_damaged_file_is_repaired(
    tmp_path: Path, responses: bytes, damage: Damage
) -> None:
    file = tmp_path / "responses.sqlite"
    file.write_bytes(responses)
    damage(file)

    def read() -> dict[str, str]:
        cache = ResponseCache(tmp_path)
        found = {key: response.text for key in PAID if (response := cache.get(key)) is not None}
        assert completions(cache).get(list(VALUES)).items() <= VALUES.items()
        cache.close()
        return found

    try:
        found = read()
    except DataError as error:
        assert "podium cache verify --repair" in str(error) and str(file) in str(error)
        assert not list(tmp_path.glob("*.damaged-*")), "a person decides"
    else:
        assert found.items() <= PAID.items()
    verify_entries(SqliteBackend(tmp_path), repair=True)
    kept = read()
    assert kept.items() <= PAID.items()
    assert verify_entries(SqliteBackend(tmp_path)).damaged == ()
    ResponseCache(tmp_path).put_many([entry(number) for number in range(200)])
    assert read() == PAID
    if damage in PLACES[1:]:
        assert len(kept) >= 180, "100 bytes damage one page of some rows"
    if damage is cut:
        assert len(kept) >= 60


def test_an_entry_whose_key_is_no_text_is_dropped(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    cache.put_many([entry(number) for number in range(3)])
    with sqlite3.connect(tmp_path / "responses.sqlite") as connection:
        connection.execute("UPDATE entries SET key = CAST(x'FF00FE' AS TEXT) WHERE key = ?", (entry(1)[0],))
    connection.close()
    assert len(verify_entries(cache.backend).damaged) == 1
    assert verify_entries(cache.backend, repair=True).entries == 3
    assert verify_entries(cache.backend) == (2, ())


def test_a_damaged_file_of_responses_stops_the_next_call(tmp_path: Path) -> None:
    put_garbage(tmp_path / "responses.sqlite")
    cache = ResponseCache(tmp_path)
    for use in (lambda: cache.get("key"), lambda: cache.put_many([entry(1)]), lambda: cache.find_existing(["key"])):
        with pytest.raises(DamagedDatabaseError, match="file is not a database"):
            use()


@pytest.mark.parametrize("damage", WHOLE, ids=lambda damage: damage.__name__)
def test_claims_are_taken_from_a_new_file(tmp_path: Path, damage: Damage) -> None:
    before = ResponseCache(tmp_path)
    take(before, "key").release()
    before.close()
    damage(tmp_path / "claims.sqlite")
    cache = ResponseCache(tmp_path)
    claim = take(cache, "key")
    assert cache.mark_sent({"key": 60.0}) == {"key"}
    claim.release()


def test_claims_that_are_no_claims_are_not_believed(tmp_path: Path) -> None:
    before = ResponseCache(tmp_path)
    held = take(before, "key")
    with sqlite3.connect(tmp_path / "claims.sqlite") as connection:
        connection.execute("UPDATE claims SET pid = 'x'")
    connection.close()
    assert take(ResponseCache(tmp_path), "key") is not None
    held.release()
