"""Texts under the hash of everything that determines them, in a file that only saves time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.core.errors import counted
from ops.core.sqlite import SqliteFile, batched, checksum, of_this_machine, placeholders

log = logging.getLogger(__name__)

_VERSION = 2
_SCHEMA = ("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL) WITHOUT ROWID",)


class ValueStore:
    """The texts of one SQLite file (`of_this_machine`), for any number of processes and threads.

    An entry that is damaged counts as missing. A file that is damaged, or of another version of Podium, is renamed, and
    a new one is begun. Raises `DataError` for a file that cannot be used now.
    """

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(of_this_machine(path), _VERSION, _SCHEMA, only_saves_time=True)

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the stored text of each key that has a sound entry."""

        def read() -> dict[str, str]:
            with self._file.connection() as connection:
                return self._sound(connection, keys)

        return self._file.saving(read)

    def put(self, values: Mapping[str, str]) -> dict[str, str]:
        """Store the texts of keys without a sound entry, in one transaction, and return the stored text of every key.

        Another process may have stored another text first, which then applies.
        """

        def write() -> dict[str, str]:
            with self._file.writing() as connection:
                stored = self._sound(connection, list(values))
                rows = [(key, text, checksum(key, text)) for key, text in values.items() if key not in stored]
                connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            return {**values, **stored}

        return self._file.saving(write)

    def delete(self, key: str) -> None:
        """Remove the entry of a key, whose text is of no use."""

        def write() -> None:
            with self._file.writing() as connection:
                connection.execute("DELETE FROM entries WHERE key = ?", (key,))

        self._file.saving(write)

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        self._file.close()

    def _sound(self, connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, str]:
        # As bytes, because damaged text may be no UTF-8.
        query = "SELECT key, CAST(value AS BLOB), CAST(checksum AS BLOB) FROM entries WHERE key IN ({})"
        stored: dict[str, str] = {}
        damaged = 0
        for some in batched(keys):
            for key, value, own in connection.execute(query.format(placeholders(some)), some):
                text = bytes(value).decode(errors="replace")
                if checksum(key, text).encode() == own:
                    stored[key] = text
                else:
                    damaged += 1
        if damaged:
            log.warning("%s: %s damaged, and made again", self._file.path, counted(damaged, "entry is", "entries are"))
        return stored
