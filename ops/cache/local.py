"""Rows in one SQLite file: the default, for any number of processes of one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ops.cache.backend import OPENING, CacheRow, Head, Marks, marks
from ops.cache.claims import LocalClaim, LocalClaims
from ops.core.sqlite import Damaged, SqliteFile, batched, placeholders

log = logging.getLogger(__name__)
T = TypeVar("T")

_PAGE = 2000
"""Rows per page of a full read: no transaction stays open in between, so that writers' WAL can shrink."""


# An index on an expression stores the prompt's beginning once, not twice.
_OPENING = f"substr(material, 13, {OPENING})"
_VERSION = 3
_SCHEMA = (
    """CREATE TABLE responses (
        key TEXT PRIMARY KEY, response TEXT NOT NULL, checksum TEXT NOT NULL, material TEXT NOT NULL,
        created REAL NOT NULL, worker INTEGER NOT NULL, messages INTEGER NOT NULL
    )""",
    "CREATE TABLE identities (worker INTEGER PRIMARY KEY, identity TEXT NOT NULL)",
    f"CREATE INDEX near ON responses ({_OPENING}, messages)",
)
_INSERT = """
INSERT OR REPLACE INTO responses (key, response, checksum, material, created, worker, messages)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
# As bytes, so that invalid UTF-8 is reported as damage and not as a reading error.
_COLUMNS = "CAST(response AS BLOB), CAST(checksum AS BLOB), CAST(material AS BLOB), created"


class LocalBackend:
    """`responses.sqlite` in a folder, and the claims beside it.

    A file that is not a database any more is renamed, with a warning, and a new one begun.
    """

    def __init__(self, folder: Path) -> None:
        self._file = SqliteFile(folder / "responses.sqlite", _VERSION, _SCHEMA)
        self._claims = LocalClaims(folder)
        self._known: set[int] = set()
        self.name = str(self._file.path)

    def select(self, key: str) -> tuple[bytes, str] | None:
        query = "SELECT CAST(response AS BLOB), CAST(checksum AS BLOB) FROM responses WHERE key = ?"
        row = _saving(lambda: self._one(query, key), self._set_aside)
        return None if row is None else (row[0], _text(row[1]))

    def insert(self, rows: Sequence[CacheRow]) -> None:
        _saving(lambda: self._insert(rows), self._set_aside)
        keys = [row.key for row in rows]
        _saving(lambda: self._claims.end(keys), self._claims.set_aside)

    def delete(self, keys: Sequence[str]) -> None:
        with self._file.writing() as connection:
            connection.executemany("DELETE FROM responses WHERE key = ?", [(key,) for key in keys])

    def holds(self, keys: Sequence[str]) -> set[str]:
        stored_keys: set[str] = set()
        with self._file.reading() as connection:
            for some in batched(keys):
                query = f"SELECT key FROM responses WHERE key IN ({placeholders(some)})"
                stored_keys.update(key for (key,) in connection.execute(query, some))
        return stored_keys

    def count(self) -> int:
        row = self._one("SELECT count(*) FROM responses")
        return int(row[0]) if row else 0

    def heads(self) -> Iterator[Head]:
        query = "key, worker, created, length(CAST(response AS BLOB)) + length(CAST(material AS BLOB))"
        return (Head(*row) for row in self._all(query))

    def rows(self) -> Iterator[CacheRow]:
        return (_row(*row) for row in self._all(f"key, {_COLUMNS}"))

    def row(self, prefix: str) -> CacheRow | None:
        between = (prefix, prefix + "\x7f")  # keys are ASCII
        row = self._one(f"SELECT key, {_COLUMNS} FROM responses WHERE key >= ? AND key < ? ORDER BY key", *between)
        return None if row is None else _row(*row)

    def identities(self) -> dict[int, str]:
        with self._file.reading() as connection:
            return dict(connection.execute("SELECT worker, identity FROM identities"))

    def near(self, marks: Marks, limit: int) -> Iterator[str]:
        # After a prompt shorter than the opening comes text that is not part of it.
        same = (marks.opening, marks.opening + "\x7f", marks.messages)
        queries: tuple[tuple[str, tuple[Any, ...]], ...] = (
            (f"{_OPENING} = ? AND messages = ?", same[::2])
            if len(marks.opening) == OPENING
            else (f"{_OPENING} >= ? AND {_OPENING} < ? AND messages = ?", same),
            (f"{_OPENING} >= ? ORDER BY {_OPENING}", (marks.opening,)),
            (f"{_OPENING} < ? ORDER BY {_OPENING} DESC", (marks.opening,)),
        )
        for where, values in queries:
            query = f"SELECT CAST(material AS BLOB) FROM responses WHERE {where} LIMIT ?"
            with self._file.reading() as connection:
                rows = connection.execute(query, (*values, limit)).fetchall()
            yield from (_text(material) for (material,) in rows)

    def claim(self, *keys: str) -> list[LocalClaim | None]:
        return _saving(lambda: self._claims.take(keys), self._claims.set_aside)

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        return _saving(lambda: self._claims.mark_sent(seconds), self._claims.set_aside)

    def close(self) -> None:
        self._file.close()
        self._claims.close()

    # ── reading and writing ──────────────────────────────────────────────────

    def _insert(self, rows: Sequence[CacheRow]) -> None:
        values, new = [], {}
        for row in rows:
            mark = marks(row.material)
            values.append(
                (row.key, row.body.decode(), row.checksum, row.material, row.created, mark.worker, mark.messages)
            )
            if mark.worker not in self._known and mark.worker:
                new[mark.worker] = mark.identity
        with self._file.writing() as connection:
            connection.executemany(_INSERT, values)
            if new:
                connection.executemany("INSERT OR IGNORE INTO identities VALUES (?, ?)", list(new.items()))
        self._known |= new.keys()

    def _one(self, query: str, *values: str) -> tuple[Any, ...] | None:
        with self._file.reading() as connection:
            row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        return row

    def _all(self, columns: str) -> Iterator[tuple[Any, ...]]:
        # Rows replaced meanwhile get numbers past the end; following them would never end.
        end = self._one("SELECT max(rowid) FROM responses")
        query = f"SELECT rowid, {columns} FROM responses WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT {_PAGE}"
        last = 0
        while True:
            with self._file.reading() as connection:
                page = connection.execute(query, (last, end and end[0])).fetchall()
            if not page:
                return
            yield from (row[1:] for row in page)
            last = page[-1][0]

    def _set_aside(self, why: Exception) -> None:
        self._known = set()
        self._file.set_aside(why)


def _saving(work: Callable[[], T], set_aside: Callable[[Exception], None]) -> T:
    """Run the write; if the file is not a database any more, begin a new one and repeat."""
    try:
        return work()
    except Damaged as error:  # not for a locked, full or read-only file, which is intact
        set_aside(error)
        return work()


def _row(key: str, body: bytes, checksum: bytes, material: bytes, created: float) -> CacheRow:
    return CacheRow(key, body, _text(checksum), _text(material), created)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
