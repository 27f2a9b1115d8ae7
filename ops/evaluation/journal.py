"""The rows of an evaluation in progress, on disk: a killed evaluation continues where it stopped."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from ops.benchmarks.graded import GRADED_AGAIN, GRADER
from ops.core.errors import counted
from ops.core.problem import Problem
from ops.core.rows import Origin
from ops.core.sqlite import SqliteFile, checksum, of_this_machine
from ops.results.rows import OutcomeRow, Usage
from ops.results.table import veiled, write_rows

log = logging.getLogger(__name__)

_VERSION = 2
_SCHEMA = (
    """CREATE TABLE rows (
        problem TEXT NOT NULL, repeat INTEGER NOT NULL, unscorable INTEGER NOT NULL, fields TEXT NOT NULL,
        checksum TEXT NOT NULL, UNIQUE (problem, repeat)
    )""",
    "CREATE TABLE origin (material TEXT NOT NULL)",
)
_NAMES = tuple(column.name for column in fields(OutcomeRow))
_FIELDS = attrgetter(*_NAMES)
_ORIGIN = "SELECT CAST(material AS BLOB) FROM origin"
_ROW = "CAST(problem AS BLOB), repeat, unscorable, CAST(fields AS BLOB), CAST(checksum AS BLOB)"
"""As bytes, because damaged text may be no UTF-8."""
_USAGE, _WORKERS = _NAMES.index("usage"), _NAMES.index("workers")


class RowSink(Protocol):
    """Receives the rows of an evaluation as they come."""

    def missing(self, problems: Sequence[Problem], repeat: int) -> list[Problem]:
        """Return the problems without a row at this repeat."""
        ...

    def add(self, rows: Sequence[OutcomeRow]) -> None:
        """Store the rows of one set of problems."""
        ...


class RowList(list[OutcomeRow]):
    """Rows in memory."""

    def missing(self, problems: Sequence[Problem], repeat: int) -> list[Problem]:
        """Return all problems."""
        return list(problems)

    add = list.extend


class RowJournal:
    """The rows of one system on one benchmark: `BENCHMARK.unfinished.sqlite` beside the score file (`of_this_machine`).

    Rows of another `origin` or other `weights`, and rows of unreachable workers, are removed at the start: their
    questions are asked again. So are those whose row is damaged; a file that is no sound database is renamed, and a new
    one begun. `finish` writes the score file; `delete` then removes the journal. One process at a time writes a
    journal. Raises `DataError` for a file that cannot be used now, or was damaged since it was opened.
    """

    def __init__(self, scores: Path, origin: Origin, weights: str = "") -> None:
        self._scores, self._origin = scores, origin
        file = of_this_machine(scores.with_name(f"{scores.stem}.unfinished.sqlite"))
        self._file = SqliteFile(file, _VERSION, _SCHEMA, only_saves_time=True)
        material = json.dumps([dict(origin), weights], sort_keys=True)
        self._file.saving(lambda: self._begin(material))

    def _begin(self, material: str) -> None:
        """Remove every row that does not count. Raises `Damaged`."""
        with self._file.writing() as connection:
            stored = [bytes(text).decode(errors="replace") for (text,) in connection.execute(_ORIGIN)]
            if stored != [material]:
                deleted = connection.execute("DELETE FROM rows").rowcount
                if deleted and _grader(stored) != self._origin.get(GRADER):
                    said = "Another version of the grader judged %d rows of %s: %s"
                    log.warning(said, deleted, self._file.path, GRADED_AGAIN)
                connection.execute("DELETE FROM origin")
                connection.execute("INSERT INTO origin VALUES (?)", (material,))
                return
            connection.execute("DELETE FROM rows WHERE unscorable")
            # A damaged index gives false answers to `lacks`, and rows twice.
            if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise self._file.damaged(" ".join(str(found).split()))
            rows = connection.execute(f"SELECT rowid, {_ROW} FROM rows")
            damaged = [(number,) for number, *row in rows if not _is_sound(*row)]
            if damaged:
                said = counted(len(damaged), "row is", "rows are")
                log.warning("%s: %s damaged, and asked again", self._file.path, said)
                connection.executemany("DELETE FROM rows WHERE rowid = ?", damaged)

    def __len__(self) -> int:
        with self._file.connection() as connection:
            return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])

    def __iter__(self) -> Iterator[OutcomeRow]:
        """Give all rows, sorted by problem, then by repeat."""
        with self._file.connection() as connection:
            for row in connection.execute(f"SELECT {_ROW} FROM rows ORDER BY problem, repeat"):
                if not _is_sound(*row):
                    raise self._file.damaged("a row was damaged after it was written")
                yield _row(row[3])

    def lacks(self, problem: str, repeat: int) -> bool:
        """Return whether the problem has no row at this repeat."""
        query = "SELECT 1 FROM rows WHERE problem = ? AND repeat = ?"
        with self._file.connection() as connection:
            return connection.execute(query, (problem, repeat)).fetchone() is None

    def add(self, rows: Sequence[OutcomeRow]) -> None:
        """Store the rows in one transaction; a row replaces an earlier one of its problem and repeat."""
        values = [_values(row) for row in veiled(rows)]
        with self._file.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)

    def finish(self) -> None:
        """Write all rows into the score file."""
        write_rows(self, self._scores, origin=self._origin)

    def close(self) -> None:
        """Close the file; its rows stay."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file."""
        self._file.delete()


class RowJournals:
    """The journals of one system on several benchmarks, as a context that closes them."""

    def __init__(self, origins: Mapping[str, tuple[Path, Origin]], weights: str = "") -> None:
        """Open the journals of benchmark → (score file, origin)."""
        self._of = {name: RowJournal(file, origin, weights) for name, (file, origin) in origins.items()}

    def __enter__(self) -> RowJournals:
        return self

    def __exit__(self, *_: object) -> None:
        for journal in self._of.values():
            journal.close()

    def __iter__(self) -> Iterator[OutcomeRow]:
        """Give all rows, benchmark by benchmark."""
        return chain.from_iterable(self._of.values())

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def missing(self, problems: Sequence[Problem], repeat: int) -> list[Problem]:
        """Return the problems without a row at this repeat, in their order."""
        return [problem for problem in problems if self._of[problem.benchmark].lacks(problem.id, repeat)]

    def add(self, rows: Sequence[OutcomeRow]) -> None:
        """Store the rows, in one transaction per benchmark."""
        for name in dict.fromkeys(row.benchmark for row in rows):
            self._of[name].add([row for row in rows if row.benchmark == name])

    def finish(self) -> None:
        """Write all score files; only then remove the journals, so that a kill in between loses no row."""
        for journal in self._of.values():
            journal.finish()
        for journal in self._of.values():
            journal.delete()


def _values(row: OutcomeRow) -> tuple[str, int, int, str, str]:
    key, text = (row.problem_id, row.repeat, int(row.unscorable)), json.dumps(_FIELDS(row))
    return *key, text, checksum(*map(str, key), text)


def _is_sound(problem: bytes, repeat: int, unscorable: int, text: bytes, own: bytes) -> bool:
    """Return whether a row of `_ROW` is what was written."""
    parts = problem.decode(errors="replace"), str(repeat), str(unscorable), text.decode(errors="replace")
    return checksum(*parts).encode() == own


def _row(text: bytes) -> OutcomeRow:
    values = json.loads(text)
    values[_WORKERS] = tuple(values[_WORKERS])
    values[_USAGE] = tuple(Usage(*use) for use in values[_USAGE])
    return OutcomeRow(*values)


def _grader(stored: Sequence[str]) -> str | None:
    """Return the graders' key in the stored origin; None if the file has none that can be read."""
    try:
        return str(json.loads(stored[0])[0][GRADER])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
