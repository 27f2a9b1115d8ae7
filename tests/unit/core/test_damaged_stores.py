"""Damaged SQLite files: what only saves time is made again, no damaged entry is ever given, and nothing sound of the
response cache is lost or paid for again before a person has agreed."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ops.cache import ResponseCache, cache_key, cache_material
from ops.cache.admin import verify
from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.sqlite import Damaged, SqliteFile
from ops.core.value_store import ValueStore
from ops.evaluation.journal import RowJournal
from ops.results.rows import OutcomeRow
from tests.builders import make_outcome
from tests.unit.cache.conftest import take

Damage = Callable[[Path], None]
VALUES = {f"{number:064x}": f"text {number} " * 20 for number in range(300)}
ORIGIN = {"policy": "p"}


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
EACH = pytest.mark.parametrize("damage", [*WHOLE, *PLACES], ids=lambda damage: damage.__name__)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of values."""
    file = tmp_path_factory.mktemp("values") / "values.sqlite"
    store = ValueStore(file)
    store.put(VALUES)
    store.close()
    return file.read_bytes()


@EACH
def test_values_are_right_or_missing_and_can_be_stored_again(tmp_path: Path, values: bytes, damage: Damage) -> None:
    file = tmp_path / "values.sqlite"
    file.write_bytes(values)
    damage(file)
    store = ValueStore(file)
    found = store.get(list(VALUES))
    assert found.items() <= VALUES.items()
    assert store.put(VALUES) == VALUES
    assert store.get(list(VALUES)) == VALUES
    store.close()
    assert ValueStore(file).get(list(VALUES)) == VALUES


def test_a_file_that_cannot_be_used_is_renamed_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "values.sqlite"
    put_garbage(file)
    with caplog.at_level(logging.WARNING):
        store = ValueStore(file)
        store.put(VALUES)
        assert store.get(list(VALUES)) == VALUES
    [aside] = tmp_path.glob("values.sqlite.damaged-*")
    assert aside.read_bytes() == b"garbage " * 1000
    [line] = caplog.messages
    assert str(file) in line and "not a database" in line and aside.name in line


def test_threads_that_meet_a_damaged_file_together_rename_it_once(tmp_path: Path, values: bytes) -> None:
    file = tmp_path / "values.sqlite"
    file.write_bytes(values)
    store, begin = ValueStore(file), threading.Barrier(8)
    store.get(list(VALUES))
    put_garbage(file)
    stores = [ValueStore(file) for _ in range(8)]

    def work(number: int) -> None:
        begin.wait(60)
        stores[number].put({f"key {number}": "text"})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ValueStore(file).get([f"key {number}" for number in range(8)]) == {f"key {n}": "text" for n in range(8)}
    assert len([aside for aside in tmp_path.glob("values.sqlite.damaged-*") if aside.name[-1].isdigit()]) == 1


def test_a_file_that_this_user_may_not_write_is_no_damaged_one(tmp_path: Path, values: bytes) -> None:
    """It is left alone: the message says what to do."""
    file = tmp_path / "values.sqlite"
    file.write_bytes(values)
    held = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly") as raised:
        held.execute("DELETE FROM entries")
    held.close()
    sqlite_file = SqliteFile(file, 2, ())
    with (
        pytest.raises(DataError, match=r"values\.sqlite: attempt to write a readonly database\. Make the file and"),
        sqlite_file.connection(),
    ):
        raise raised.value
    assert not list(tmp_path.glob("*.damaged-*"))


# ── journals ─────────────────────────────────────────────────────────────────


def rows() -> list[OutcomeRow]:
    return [make_outcome(problem=f"p{number:03}", answer="long " * 30, cost_usd=number / 7) for number in range(200)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A journal of an evaluation that was stopped."""
    folder = tmp_path_factory.mktemp("journal")
    made = RowJournal(folder / "mmlu.parquet", ORIGIN)
    made.add(rows())
    made.close()
    return (folder / "mmlu.unfinished.sqlite").read_bytes()


@EACH
def test_an_evaluation_continues_with_sound_rows_alone(tmp_path: Path, journal: bytes, damage: Damage) -> None:
    file = tmp_path / "mmlu.unfinished.sqlite"
    file.write_bytes(journal)
    damage(file)
    continued = RowJournal(tmp_path / "mmlu.parquet", ORIGIN)
    kept = list(continued)
    assert set(kept) <= set(rows())
    lacking = [row for row in rows() if continued.lacks(row.problem_id, row.repeat)]
    assert set(kept) | set(lacking) == set(rows()) and len(kept) + len(lacking) == len(rows())
    continued.add(lacking)
    assert list(continued) == rows()


def test_a_row_that_is_damaged_while_the_journal_is_open_is_never_written_down(tmp_path: Path) -> None:
    made = RowJournal(tmp_path / "mmlu.parquet", ORIGIN)
    made.add(rows()[:3])
    with sqlite3.connect(tmp_path / "mmlu.unfinished.sqlite") as connection:
        connection.execute("UPDATE rows SET fields = replace(fields, 'p001', 'p009')")
    connection.close()
    with pytest.raises(DataError, match=r"mmlu\.unfinished\.sqlite: a row was damaged.*Give the same command again"):
        made.finish()
    assert not (tmp_path / "mmlu.parquet").exists()
    made.close()
    again = RowJournal(tmp_path / "mmlu.parquet", ORIGIN)
    assert [row.problem_id for row in again] == ["p000", "p002"]
    assert again.lacks("p001", 0)


def test_the_flag_of_a_row_that_does_not_count_is_protected_too(tmp_path: Path) -> None:
    made = RowJournal(tmp_path / "mmlu.parquet", ORIGIN)
    made.add([replace(rows()[0], unscorable=True)])
    made.close()
    with sqlite3.connect(tmp_path / "mmlu.unfinished.sqlite") as connection:
        connection.execute("UPDATE rows SET unscorable = 0")
    connection.close()
    assert len(RowJournal(tmp_path / "mmlu.parquet", ORIGIN)) == 0


# ── the response cache ───────────────────────────────────────────────────────


def entry(number: int) -> tuple[str, str, Response]:
    messages = [{"role": "user", "content": f"Question {number}? {'so ' * 100}"}]
    response = Response(f"Answer: {number} {'long ' * 50}", 10, 5, 2e-5, 0.25, "stop")
    return cache_key({"model": "m"}, messages, 0), cache_material({"model": "m"}, messages, 0), response


PAID = {key: response.text for key, _, response in map(entry, range(200))}


@pytest.fixture(scope="module")
def responses(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of paid responses."""
    folder = tmp_path_factory.mktemp("responses")
    cache = ResponseCache(folder)
    cache.put_many([entry(number) for number in range(200)])
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
        cache.close()
        return found

    try:
        found = read()
    except DataError as error:
        assert "podium cache verify --repair" in str(error) and str(file) in str(error)
        assert not list(tmp_path.glob("*.damaged-*")), "a person decides"
    else:
        assert found.items() <= PAID.items()
    verify(ResponseCache(tmp_path), repair=True)
    kept = read()
    assert kept.items() <= PAID.items()
    assert verify(ResponseCache(tmp_path)).damaged == ()
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
        connection.execute("UPDATE responses SET key = CAST(x'FF00FE' AS TEXT) WHERE key = ?", (entry(1)[0],))
    connection.close()
    assert len(verify(cache).damaged) == 1
    assert verify(cache, repair=True).entries == 3
    assert verify(cache) == (2, ())


def test_a_damaged_file_of_responses_stops_the_next_call(tmp_path: Path) -> None:
    put_garbage(tmp_path / "responses.sqlite")
    cache = ResponseCache(tmp_path)
    for use in (lambda: cache.get("key"), lambda: cache.put_many([entry(1)]), lambda: cache.holds(["key"])):
        with pytest.raises(Damaged, match="file is not a database"):
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
