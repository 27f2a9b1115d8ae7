"""The response cache on this machine: keys, round trips, damage; and the schema of its files and the ledger's."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core import sqlite
from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.sqlite import SqliteFile
from ops.core.usage import Usage
from ops.spending.ledger import Ledger
from ops.store import Kind, ResponseCache, ValueStore, cache_key, cache_material, canonical_json
from ops.store.admin import list_contents, verify_entries
from ops.store.responses import ENTRY_OVERHEAD_CHARS
from ops.store.sqlite_file import SqliteBackend
from tests.unit.store.conftest import RESPONSE


@given(text=st.text(st.characters(), max_size=50), cost=st.floats(0, 1e3), latency=st.floats(0, 1e5))
def test_any_text_survives_also_lone_surrogates(
    tmp_path_factory: pytest.TempPathFactory, text: str, cost: float, latency: float
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_text"
    response = Response(text + "\ud800", Usage(1, 1), cost, latency, "length")
    messages = [{"role": "user", "content": text + "\udfff"}]
    key, material = cache_key({}, messages, 0), cache_material({}, messages, 0)
    ResponseCache(folder).put_many([(key, material, response)])
    stored = ResponseCache(folder).get(key)
    assert (stored.text, stored.cost_usd, stored.latency_s) == (response.text, cost, latency)


MESSAGES = st.lists(st.fixed_dictionaries({"role": st.text(max_size=4), "content": st.text(max_size=8)}), max_size=3)


@given(a=MESSAGES, b=MESSAGES, i=st.integers(0, 2), j=st.integers(0, 2))
def test_keys_are_equal_exactly_when_everything_is(a: Any, b: Any, i: int, j: int) -> None:
    same = cache_key({"model": "m"}, a, i) == cache_key({"model": "m"}, b, j)
    assert same == (a == b and i == j)


def test_the_order_of_settings_does_not_change_a_key() -> None:
    assert cache_key({"a": 1, "b": {"c": 2, "d": 3}}, [], 0) == cache_key({"b": {"d": 3, "c": 2}, "a": 1}, [], 0)
    assert cache_key({"a": 1}, [], 0) != cache_key({"a": 2}, [], 0)


def test_memory_is_bounded_and_what_it_forgets_is_on_disk(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path, memory_chars=3 * (ENTRY_OVERHEAD_CHARS + 40))
    for number in range(50):
        cache.put_many([(str(number), "{}", Response(f"{number:040}", Usage(1, 1), 0.0, 0.0, "stop"))])
    assert len(cache._memory) == 3
    assert all((response := cache.get(str(n))) and response.text == f"{n:040}" for n in range(50))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET value = replace(value, 'Answer', 'Anser')",
        "UPDATE entries SET value = '['",
        "UPDATE entries SET value = CAST(X'FF00FE' AS TEXT)",
        "UPDATE entries SET value = X'00'",
        "UPDATE entries SET checksum = ''",
    ],
)
def test_a_damaged_row_is_dropped_and_missed(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    writer = ResponseCache(tmp_path)
    writer.put_many([("key", "{}", RESPONSE)])
    writer.close()
    with sqlite3.connect(tmp_path / "responses.sqlite") as connection:
        connection.execute(damage)
    connection.close()
    cache = ResponseCache(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert cache.get("key") is None
    assert "key" in caplog.text
    assert len(cache) == 0
    cache.put_many([("key", "{}", RESPONSE)])
    assert cache.get("key") is not None


def test_put_many_is_all_or_nothing(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    bad: Any = object()
    with pytest.raises(sqlite3.Error):
        cache.put_many([("a", "{}", RESPONSE), (bad, "{}", RESPONSE)])
    assert len(cache) == 0
    assert cache.get("a") is None


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    cache.put_many([("parent", "{}", RESPONSE)])
    child = multiprocessing.get_context("fork").Process(target=cache.put_many, args=([("child", "{}", RESPONSE)],))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert cache.get("child") is not None


# ── schema ───────────────────────────────────────────────────────────────────

OPENED: dict[str, Callable[[Path], object]] = {
    "responses.sqlite": lambda folder: ResponseCache(folder).get("key"),
    "ledger.sqlite": lambda folder: Ledger(folder / "ledger.sqlite").total_usd("run"),
}
_OPEN = """
import sys
from pathlib import Path
from ops.store import ResponseCache
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


@pytest.mark.parametrize(
    ("version", "table", "value", "kind"),
    [(3, "responses", "response", ""), (4, "entries", "value", ", kind TEXT NOT NULL DEFAULT 'response'")],
)
def test_paid_responses_of_an_earlier_version_are_carried_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int, table: str, value: str, kind: str
) -> None:
    """The file as Podium wrote it when the store had responses only (3), and when similar entries were indexed (4)."""
    messages = [{"role": "user", "content": "Question?"}]
    key, material = cache_key({"model": "m"}, messages, 0), cache_material({"model": "m"}, messages, 0)
    body = canonical_json(["Answer: 4", 10, 5, 2e-5, 0.25, "stop"])
    with sqlite3.connect(tmp_path / "responses.sqlite") as connection:
        connection.execute(
            f"CREATE TABLE {table} (key TEXT PRIMARY KEY, {value} TEXT NOT NULL, checksum TEXT NOT NULL, "
            f"material TEXT NOT NULL, created REAL NOT NULL, worker INTEGER NOT NULL, messages INTEGER NOT NULL{kind})"
        )
        if kind:
            connection.execute(f"CREATE INDEX kinds ON {table} (kind)")
        connection.execute("CREATE TABLE identities (worker INTEGER PRIMARY KEY, identity TEXT NOT NULL)")
        connection.execute(f"CREATE INDEX near ON {table} (substr(material, 13, 96), messages)")
        checksum = hashlib.blake2b(body.encode(), digest_size=8).hexdigest()
        row = (key, body, checksum, material)
        connection.execute(
            f"INSERT INTO {table} (key, {value}, checksum, material, created, worker, messages) "
            "VALUES (?, ?, ?, ?, 1.0, 2, 3)", row
        )  # fmt: skip
        connection.execute("INSERT INTO identities VALUES (2, '{}')")
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    before = (tmp_path / "responses.sqlite").read_bytes()
    with caplog.at_level(logging.WARNING):
        cache = ResponseCache(tmp_path)
        response = cache.get(key)
    assert (response, len(cache)) == (replace(RESPONSE, retries=0, cached=True), 1)
    assert [text for text in caplog.messages if "carried over" in text] == caplog.messages[:1]
    assert [(each.model, each.entries) for each in list_contents(cache.backend)] == [("m", 1)]
    values = ValueStore(cache.backend, Kind.COMPLETION, str)
    values.put({"a": "a text"})
    assert (values.get(["a"]), len(cache), verify_entries(cache.backend)) == ({"a": "a text"}, 1, (2, ()))
    cache.close()

    damaged = tmp_path / "damaged"  # a damaged file of that version is repaired, too
    damaged.mkdir()
    (damaged / "responses.sqlite").write_bytes(before[: len(before) - 4096] + b"garbage " * 512)
    verify_entries(SqliteBackend(damaged), repair=True)
    repaired = ResponseCache(damaged)
    assert (len(repaired), verify_entries(repaired.backend).damaged) in [(1, ()), (0, ())]


def test_processes_that_meet_no_file_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPEN, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=100)[0].strip() for process in running] == ["0"] * 4


def test_a_file_that_another_process_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, statements = sqlite._has_tables, ["CREATE TABLE one (a TEXT)"]

    def meanwhile(connection: sqlite3.Connection) -> bool:
        monkeypatch.setattr(sqlite, "_has_tables", real)
        with SqliteFile(tmp_path / "x", 1, statements).writing() as other:
            other.execute("INSERT INTO one VALUES ('kept')")
        return real(connection)

    monkeypatch.setattr(sqlite, "_has_tables", meanwhile)
    with SqliteFile(tmp_path / "x", 1, statements).writing() as connection:
        assert connection.execute("SELECT a FROM one").fetchall() == [("kept",)]


def test_a_schema_that_fails_leaves_an_empty_file(tmp_path: Path) -> None:
    statements = ("CREATE TABLE one (a TEXT)",) * 2
    failing = SqliteFile(tmp_path / "x", 1, statements)
    with pytest.raises(sqlite3.OperationalError, match="already exists"), failing.writing():
        pass
    with SqliteFile(tmp_path / "x", 1, statements[:1]).writing() as connection:
        assert connection.execute("SELECT count(*) FROM one").fetchone() == (0,)
