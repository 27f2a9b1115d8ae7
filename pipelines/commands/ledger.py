"""`ledger`: what was spent, by run, purpose, worker and month. The sums are `ops.spending.ledger`'s."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from ops.cache import open_cache
from ops.core.workspace import Workspace
from ops.spending.books import Call, Spent
from ops.spending.ledger import Ledger
from ops.workers.booking import BookingDesk


def add(commands: _SubParsersAction[Any]) -> None:
    """Add `ledger`."""
    parser = commands.add_parser("ledger", help="what was spent, by run, purpose, worker and month")
    parser.add_argument("--run", dest="of_run", help="of one run only")
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="the last N calls as well, one by one")
    parser.set_defaults(run=_ledger)


def _ledger(workspace: Workspace, arguments: Namespace) -> None:
    ledger, console, run = Ledger(workspace.ledger), Console(), arguments.of_run
    if ledger.unmeasured():
        BookingDesk(open_cache(workspace.cache), ledger).measure_lost()
    if run is None:
        console.print(_table("run", ledger.by_run()))
    console.print(_table("purpose", ledger.by_purpose(run)))
    console.print(_table("worker", ledger.by_worker(run)))
    console.print(_table("month", ledger.by_month(run)))
    if arguments.calls:
        console.print(_calls(ledger.latest(arguments.calls, run)))
    for name, spent in ledger.by_run().items():
        if spent.lost and run in (None, name):
            console.print(_lost(name, spent), highlight=False)
    for name, usd in ledger.open_reservations().items():
        if run in (None, name):
            console.print(f"reserved by running processes: ${usd:.4f} of run {name}", highlight=False)


def _lost(run: str, spent: Spent) -> str:
    return (
        f"lost: {spent.lost:,} calls of run {run} were sent and not answered (killed, cancelled, timed out); "
        f"${spent.lost_usd:.4f} of its USD counts them at what they cost at worst, or as measured since"
    )


def _calls(calls: Iterable[Call]) -> Table:
    table = Table("at (UTC)", "run", "purpose", "worker", "prompt tokens", "completion tokens", "USD")
    for call in calls:
        at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        tokens = (f"{call.prompt_tokens:,}", f"{call.completion_tokens:,}")
        table.add_row(at, call.run, call.purpose, call.worker, *tokens, f"{call.usd:.6f}")
    return table


def _table(what: str, spent: Mapping[str, Spent]) -> Table:
    columns = {"calls": ",", "lost": ",", "prompt_tokens": ",", "completion_tokens": ",", "usd": ".4f"}
    if not any(sums.lost for sums in spent.values()):
        del columns["lost"]
    table = Table(what, *("USD" if name == "usd" else name.replace("_", " ") for name in columns))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, sums in spent.items():
        table.add_row(name, *(format(getattr(sums, column), form) for column, form in columns.items()))
    if len(spent) > 1:
        table.add_section()
        totals = {column: sum(getattr(sums, column) for sums in spent.values()) for column in columns}
        table.add_row("in all", *(format(totals[column], form) for column, form in columns.items()))
    return table
