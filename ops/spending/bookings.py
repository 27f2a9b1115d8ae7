"""Read the ledger: every settled or lost call, and sums by run, purpose, worker and month."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ops.core.usage import Usage
from ops.spending.ledger_store import LedgerStore
from ops.spending.sqlite_ledger import LocalLedgerStore

_COUNTS = ("calls", "prompt_tokens", "completion_tokens", "lost")
_SUMS = ", ".join([
    "coalesce(sum(usd), 0.0)",
    *(f"CAST(coalesce(sum({count}), 0) AS BIGINT)" for count in _COUNTS),
    "coalesce(sum(lost_usd), 0.0)",
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpendingSum:
    """The sum of spending over `calls` that were settled and `lost` calls, in USD and tokens.

    A call is lost if it was sent and its answer never arrived, because its process was killed, or because it was
    cancelled, timed out or lost its connection. The provider may bill such a call. `usd` therefore includes `lost_usd`,
    which counts each lost call at its highest possible cost, or at the cost of the same question's answer once that is
    known.
    """

    usd: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    lost: int = 0
    lost_usd: float = 0.0


class SettledCall(NamedTuple):
    """A settled call: its time in seconds since the epoch, run, purpose, worker, tokens and cost in USD."""

    at: float
    run: str
    purpose: str
    worker: str
    prompt_tokens: int
    completion_tokens: int
    usd: float


class LedgerReader:
    """Read-only access to the spending on workers, in the SQLite file at `path` or in another `store`."""

    def __init__(self, path: Path, store: LedgerStore | None = None) -> None:
        self.path = path
        self._store: LedgerStore = store or LocalLedgerStore(path)

    def total_usd(self, run: str) -> float:
        """Return the USD that all processes have spent for a run, on settled and lost calls."""
        return self._sum("run = ?", (run,)).usd

    def by_purpose(self, run: str | None = None) -> dict[str, SpendingSum]:
        """Return the spending by purpose, for one run or for all."""
        return self._by("purpose", run)

    def by_worker(self, run: str | None = None) -> dict[str, SpendingSum]:
        """Return the spending by the worker's name, for one run or for all."""
        return self._by("worker", run)

    def by_run(self) -> dict[str, SpendingSum]:
        """Return the spending by run."""
        return self._by("run", None)

    def by_month(self, run: str | None = None) -> dict[str, SpendingSum]:
        """Return the spending by calendar month ("2026-01", UTC), for one run or for all."""
        return self._by("month", run)

    def latest_calls(self, count: int, run: str | None = None) -> list[SettledCall]:
        """Return the latest `count` settled calls of one run or of all, newest first."""
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        query = f"SELECT {', '.join(SettledCall._fields)} FROM calls {where} ORDER BY id DESC LIMIT ?"
        rows = self._store.read(lambda connection: connection.execute(query, (*values, count)).fetchall())
        return [SettledCall(*row) for row in rows]

    def mean_usage(self, purpose: str) -> dict[str, Usage]:
        """Return by worker the mean prompt and completion tokens of a settled call with this purpose, over all runs."""
        query = (
            "SELECT worker, CAST(sum(prompt_tokens) AS DOUBLE PRECISION) / sum(calls), "
            "CAST(sum(completion_tokens) AS DOUBLE PRECISION) / sum(calls) "
            "FROM spending WHERE purpose = ? GROUP BY worker"
        )
        rows = self._store.read(lambda connection: connection.execute(query, (purpose,)).fetchall())
        return {worker: Usage(prompt, answer) for worker, prompt, answer in rows}

    def _sum(self, where: str, values: tuple[str, ...]) -> SpendingSum:
        query = f"SELECT {_SUMS} FROM spent WHERE {where}"
        return SpendingSum(*self._store.read(lambda connection: connection.execute(query, values).fetchone()))

    def _by(self, column: str, run: str | None) -> dict[str, SpendingSum]:
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        query = f"SELECT {column}, {_SUMS} FROM spent {where} GROUP BY {column} ORDER BY {column}"
        rows = self._store.read(lambda connection: connection.execute(query, values).fetchall())
        return {name: SpendingSum(*sums) for name, *sums in rows}


def current_month() -> str:
    """Return the present calendar month in UTC, for example "2026-01"."""
    return datetime.now(UTC).isoformat()[:7]


def format_usd(amount: float) -> str:
    """Return an amount in USD with cents, or with two significant digits and no exponent below ten cents, for example
    "$0.00042"; a dash for NaN."""
    if math.isnan(amount):
        return "–"
    if amount == 0:
        return "$0"
    digits = max(2, 1 - math.floor(math.log10(abs(amount))))
    return f"${amount:,.{digits}f}"
