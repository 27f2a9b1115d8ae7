"""`podium ledger`: what was spent, by run, purpose, worker and month. The sums are `ops.spending.ledger`'s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ops.core.workspace import Workspace

if TYPE_CHECKING:
    from rich.table import Table

    from ops.spending.books import Call, Spent


@click.command()
@click.option("--run", metavar="RUN", help="Of one run only.")
@click.option("--calls", type=int, default=0, metavar="N", help="The last N calls as well, one by one.")
def ledger(run: str | None, calls: int) -> None:
    """Show what was spent, by run, purpose, worker, month."""
    from rich.console import Console

    from ops.cache import open_cache
    from ops.spending.ledger import open_ledger
    from ops.workers.booking import BookingDesk

    workspace, console = Workspace.find(), Console()
    books = open_ledger(workspace.ledger)
    if books.unmeasured():
        BookingDesk(open_cache(workspace.cache), books).measure_lost()
    if run is None:
        console.print(_table("run", books.by_run()))
    console.print(_table("purpose", books.by_purpose(run)))
    console.print(_table("worker", books.by_worker(run)))
    console.print(_table("month", books.by_month(run)))
    if calls:
        console.print(_calls(books.latest(calls, run)))
    for name, spent in books.by_run().items():
        if spent.lost and run in (None, name):
            console.print(_lost(name, spent), highlight=False)
    for name, usd in books.open_reservations().items():
        if run in (None, name):
            console.print(f"reserved by running processes: ${usd:.4f} of run {name}", highlight=False)


def _lost(run: str, spent: Spent) -> str:
    return (
        f"lost: {spent.lost:,} calls of run {run} were sent and not answered (killed, cancelled, timed out); "
        f"${spent.lost_usd:.4f} of its USD counts them at what they cost at worst, or as measured since"
    )


def _calls(calls: Iterable[Call]) -> Table:
    from datetime import UTC, datetime

    from rich.table import Table

    table = Table("at (UTC)", "run", "purpose", "worker", "prompt tokens", "completion tokens", "USD")
    for call in calls:
        at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        tokens = (f"{call.prompt_tokens:,}", f"{call.completion_tokens:,}")
        table.add_row(at, call.run, call.purpose, call.worker, *tokens, f"{call.usd:.6f}")
    return table


def _table(what: str, spent: Mapping[str, Spent]) -> Table:
    from rich.table import Table

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
