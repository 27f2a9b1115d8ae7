"""The books of the ledger: every settled or lost call, and sums by run, purpose, worker and month."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ops.core.sqlite import SqliteFile, statements

_STEPS = (
    statements(
        """CREATE TABLE IF NOT EXISTS spending (
            run TEXT, purpose TEXT, worker TEXT, month TEXT,
            calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
            usd REAL NOT NULL, PRIMARY KEY (run, purpose, worker, month)
        ) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS blocks (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL, usd REAL NOT NULL
        )""",
    ),
    statements(  # every call; the sums stay, since each reservation needs them at once
        """CREATE TABLE calls (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
            prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, usd REAL NOT NULL
        )""",
    ),
    statements(  # calls that have left, and those of them of which nobody here will ever hear: spent until it is known
        """CREATE TABLE sent (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
            month TEXT NOT NULL, key TEXT NOT NULL, usd REAL NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL,
            lost INTEGER NOT NULL DEFAULT 0, measured INTEGER NOT NULL DEFAULT 0
        )""",
        "CREATE INDEX lost_by_key ON sent (key) WHERE lost = 1",
        """CREATE VIEW spent AS
            SELECT run, purpose, worker, month, usd, calls, prompt_tokens, completion_tokens,
                0 AS lost, 0.0 AS lost_usd FROM spending
            UNION ALL SELECT run, purpose, worker, month, usd, 0, 0, 0, 1, usd FROM sent WHERE lost = 1""",
    ),
)
_SUMS = (
    "coalesce(sum(usd), 0.0), coalesce(sum(calls), 0), coalesce(sum(prompt_tokens), 0), "
    "coalesce(sum(completion_tokens), 0), coalesce(sum(lost), 0), coalesce(sum(lost_usd), 0.0)"
)


@dataclass(frozen=True, slots=True)
class Spent:
    """A sum of what was spent (USD, tokens): `calls` that were settled, and `lost` ones.

    A call is lost when it was sent and nobody heard the answer: its process was killed, it was cancelled,
    it timed out, its connection broke. Its provider may bill it all the same, so `usd` includes `lost_usd`:
    the worst case of each, or the cost of the same question's answer once that is known.
    """

    usd: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    lost: int = 0
    lost_usd: float = 0.0


class Call(NamedTuple):
    """One settled call: when (seconds since the epoch), whose and what for, tokens, USD."""

    at: float
    run: str
    purpose: str
    worker: str
    prompt_tokens: int
    completion_tokens: int
    usd: float


class Books:
    """What was spent on workers; nothing here changes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SqliteFile(path, _STEPS)

    def spent(self, run: str) -> float:
        """USD spent for a run, by all processes: settled and lost calls."""
        return self._sum("run = ?", (run,)).usd

    def by_purpose(self, run: str | None = None) -> dict[str, Spent]:
        """What was spent by purpose, of one run or of all."""
        return self._by("purpose", run)

    def by_worker(self, run: str | None = None) -> dict[str, Spent]:
        """What was spent by worker name, of one run or of all."""
        return self._by("worker", run)

    def by_run(self) -> dict[str, Spent]:
        """What was spent by run."""
        return self._by("run", None)

    def by_month(self, run: str | None = None) -> dict[str, Spent]:
        """What was spent by calendar month (UTC), of one run or of all."""
        return self._by("month", run)

    def latest(self, count: int, run: str | None = None) -> list[Call]:
        """The last settled calls, of one run or of all, the newest first."""
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        query = f"SELECT {', '.join(Call._fields)} FROM calls {where} ORDER BY id DESC LIMIT ?"
        with self._file.connection() as connection:
            return [Call(*row) for row in connection.execute(query, (*values, count))]

    def mean_tokens(self, purpose: str) -> dict[str, tuple[float, float]]:
        """Worker → prompt and completion tokens of a settled call of that purpose, over all runs."""
        query = (
            "SELECT worker, sum(prompt_tokens) * 1.0 / sum(calls), sum(completion_tokens) * 1.0 / sum(calls) "
            "FROM spending WHERE purpose = ? GROUP BY worker"
        )
        with self._file.connection() as connection:
            return {worker: (prompt, answer) for worker, prompt, answer in connection.execute(query, (purpose,))}

    def _sum(self, where: str, values: tuple[str, ...]) -> Spent:
        with self._file.connection() as connection:
            return Spent(*connection.execute(f"SELECT {_SUMS} FROM spent WHERE {where}", values).fetchone())

    def _by(self, column: str, run: str | None) -> dict[str, Spent]:
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        query = f"SELECT {column}, {_SUMS} FROM spent {where} GROUP BY {column} ORDER BY {column}"
        with self._file.connection() as connection:
            return {name: Spent(*sums) for name, *sums in connection.execute(query, values)}


def this_month() -> str:
    """The calendar month ("2026-01", UTC)."""
    return datetime.now(UTC).isoformat()[:7]
