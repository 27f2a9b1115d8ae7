"""The store in a SQLite file, which is the default and serves any number of processes on one machine."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ops.core.errors import format_count
from ops.core.sqlite import DamagedDatabaseError, SqliteFile, placeholders, split_into_batches
from ops.core.workspace_parts import EARLIER_STORES, STORE_VERSION
from ops.store.claims import LocalClaim, LocalClaims
from ops.store.entries import (
    Entry,
    Kind,
    StoredValue,
    claim_name,
)

log = logging.getLogger(__name__)

_PAGE = 2000
"""Rows for each query of a full read. No transaction stays open between the queries, so that the write-ahead log can
shrink."""


_SCHEMA = (
    """CREATE TABLE entries (
        key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL, material TEXT NOT NULL,
        created REAL NOT NULL, kind TEXT NOT NULL DEFAULT 'response'
    )""",
    "CREATE INDEX kinds ON entries (kind)",
)
_INSERT = """
INSERT OR REPLACE INTO entries (key, value, checksum, material, created, kind) VALUES (?, ?, ?, ?, ?, ?)
"""
# Texts are read as bytes, so that invalid UTF-8 is reported as damage and not as an error of reading.
_COLUMNS = (
    "CAST(kind AS BLOB), CAST(key AS BLOB), CAST(value AS BLOB), CAST(checksum AS BLOB), CAST(material AS BLOB), "
    "created"
)
_DELETE = "DELETE FROM entries WHERE key = CAST(? AS TEXT) AND kind = CAST(? AS TEXT)"


_REPAIR = (
    "Run `podium cache verify --repair`, which keeps every entry that can still be read, or restore the file from a "
    "backup (`podium restore FILE`)"
)
_MAX_ROW_NUMBER = 2**40
"""An upper bound of the row numbers of a file that is repaired."""
_MAX_FAILURES = 50_000
"""The number of failed reads after which a repair gives up on the rest of the file."""


class SqliteBackend:
    """A `Backend` in a folder's file `responses.sqlite`, with the claims in a file beside it. The interface documents
    the methods.

    A file of an earlier version is upgraded when it is opened. A damaged file raises
    `DamagedDatabaseError`, so that no response is paid for again before a user has decided to `repair` it.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "responses.sqlite"
        self._file = SqliteFile(file, STORE_VERSION, _SCHEMA, earlier=EARLIER_STORES, remedy=_REPAIR)
        self._claims = LocalClaims(folder)
        self.name = str(self._file.path)

    def select(self, kind: Kind, keys: Sequence[str]) -> dict[str, StoredValue]:
        stored_values = {}
        with self._file.reading() as connection:
            for batch in split_into_batches(keys):
                query = f"""SELECT key, CAST(value AS BLOB), CAST(checksum AS BLOB) FROM entries
                    WHERE key IN ({placeholders(batch)}) AND kind = ?"""
                for key, body, checksum in connection.execute(query, (*batch, kind)):
                    stored_values[key] = StoredValue(body, _decode_text(checksum))
        return stored_values

    def insert(self, entries: Sequence[Entry]) -> None:
        self._insert(entries)
        self._claims.release_stored([claim_name(Kind(entry.kind), entry.key) for entry in entries])

    def delete(self, kind: str, keys: Sequence[str]) -> None:
        with self._file.writing() as connection:
            connection.executemany(_DELETE, [(_encode_text(key), _encode_text(kind)) for key in keys])

    def find_existing(self, kind: Kind, keys: Sequence[str]) -> set[str]:
        stored_keys: set[str] = set()
        with self._file.reading() as connection:
            for batch in split_into_batches(keys):
                query = f"SELECT key FROM entries WHERE key IN ({placeholders(batch)}) AND kind = ?"
                stored_keys.update(key for (key,) in connection.execute(query, (*batch, kind)))
        return stored_keys

    def count(self, kind: Kind) -> int:
        row = self._one("SELECT count(*) FROM entries WHERE kind = ?", kind)
        return int(row[0]) if row else 0

    def iterate_entries(self) -> Iterator[Entry]:
        # A row that is replaced meanwhile gets a number beyond the end. Reading those as well might never end.
        end = self._one("SELECT max(rowid) FROM entries")
        query = f"SELECT rowid, {_COLUMNS} FROM entries WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT {_PAGE}"
        last = 0
        while True:
            with self._file.reading() as connection:
                page = connection.execute(query, (last, end and end[0])).fetchall()
            if not page:
                return
            yield from (_make_entry(*row[1:]) for row in page)
            last = page[-1][0]

    def find(self, prefix: str) -> Entry | None:
        between = (prefix, prefix + "\x7f")  # keys are ASCII
        row = self._one(f"SELECT {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key", *between)
        return None if row is None else _make_entry(*row)

    def claim(self, kind: Kind, keys: Sequence[str]) -> list[LocalClaim | None]:
        return self._claims.try_claim([claim_name(kind, key) for key in keys])

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        return self._claims.mark_sent(seconds)

    def close(self) -> None:
        self._file.close()
        self._claims.close()

    def check(self) -> None:
        """Check that tables and indexes are consistent, which takes about a second for each gigabyte.

        Raises `DamagedDatabaseError` if they are not.
        """
        with self._file.connection() as connection:
            report = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if report != "ok":
            raise self._file.damaged_error(" ".join(str(report).split()))

    def repair(self, why: DamagedDatabaseError) -> int:
        """Rename a damaged file, copy all of its undamaged entries into a new one, and return their number.

        No other process may use the store meanwhile.
        """
        aside = self._file.set_aside(why)
        if aside is None or not aside.is_file():
            return 0
        page: list[Entry] = []
        for entry in _iterate_readable_entries(aside):
            if entry.is_sound:
                page.append(entry)
            if len(page) == _PAGE:
                self._insert(page)
                page = []
        self._insert(page)
        kept = sum(map(self.count, Kind))
        log.warning(
            "%s could be read in %s, and the new file has them", format_count(kept, "entry", "entries"), aside.name
        )
        return kept

    # ── reading and writing ──────────────────────────────────────────────────

    def _insert(self, entries: Sequence[Entry]) -> None:
        values = [
            (key, body.decode(), checksum, material, created, kind)
            for kind, key, body, checksum, material, created in entries
        ]
        with self._file.writing() as connection:
            connection.executemany(_INSERT, values)

    def _one(self, query: str, *values: str) -> tuple[Any, ...] | None:
        with self._file.reading() as connection:
            row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        return row


def _iterate_readable_entries(file: Path) -> Iterator[Entry]:
    """Yield the entries of a damaged database that SQLite can still read, some of them more than once.

    Rows are read forwards from the first one to the first damaged place, and backwards from the last one to the last
    damaged place. In between, ranges of row numbers are read, and a range that cannot be read is divided into halves.
    """
    failures = 0
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA writable_schema=ON")  # lets SQLite read what is left of a file that was cut
        query = _entry_query(connection)
        ends = [0, _MAX_ROW_NUMBER]
        for end, order in enumerate(("", " ORDER BY rowid DESC")):
            try:
                for number, *values in connection.execute(query + order):
                    entry = _make_entry(*values)
                    ends[end] = number if entry.is_sound else ends[end]
                    yield entry
                return
            except sqlite3.DatabaseError:
                failures += 1
        ranges = [(ends[0], ends[1])]
        while ranges and failures < _MAX_FAILURES:
            low, high = ranges.pop()
            try:
                for _, *values in connection.execute(f"{query} WHERE rowid >= ? AND rowid < ?", (low, high)):
                    yield _make_entry(*values)
            except sqlite3.DatabaseError:
                failures += 1
                if high - low > 1:
                    ranges += [((low + high) // 2, high), (low, (low + high) // 2)]


def _entry_query(connection: sqlite3.Connection) -> str:
    """Return the query for all entries of a file, which may be of an earlier version."""
    query = f"SELECT rowid, {_COLUMNS} FROM entries"
    try:
        connection.execute(f"{query} WHERE rowid = 0")
    except sqlite3.DatabaseError as error:
        if "no such" in str(error):
            earlier = _COLUMNS.replace("(kind ", "('response' ").replace("(value ", "(response ")
            return f"SELECT rowid, {earlier} FROM responses"
    return query


def _make_entry(kind: bytes, key: bytes, body: bytes, checksum: bytes, material: bytes, created: float) -> Entry:
    return Entry(
        kind.decode(errors="surrogateescape"), key.decode(errors="surrogateescape"), body, _decode_text(checksum),
        _decode_text(material), created,
    )  # fmt: skip


def _decode_text(value: bytes) -> str:
    return value.decode(errors="replace")


def _encode_text(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
