"""`podium ledger`: costs by run, purpose, worker and month, from `ops.spending.ledger`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON
from pipelines.commands.output import print_json

if TYPE_CHECKING:
    from rich.table import Table

    from ops.spending.bookings import SettledCall, SpendingSum

_TOKENS = {"prompt_tokens": "tokens in", "completion_tokens": "tokens out"}


@click.command(
    cls=Command,
    examples=(
        ("Show what has been spent in this workspace.", "podium ledger"),
        ("Also show the last ten calls.", "podium ledger --calls 10"),
    ),
)
@click.option("--run", metavar="RUN", help="Show the calls of this run only. The first table lists the names of runs.")
@click.option("--calls", type=int, default=0, metavar="N", help="Also list the last N calls.")
@AS_JSON
def ledger(run: str | None, calls: int, as_json: bool) -> None:
    """Show how much the calls of workers have cost.

    The ledger records every call with its tokens and its price in US dollars. The command adds them up by run, by
    purpose, by worker and by month. A call is lost if it was sent and no response arrived. It is counted at the highest
    price that it can have.
    """
    from ops.core.workspace_parts import LEDGER, find_missing_parts
    from ops.spending.ledger import open_ledger
    from ops.store import open_cache
    from ops.workers.live_call import CallRecorder
    from pipelines.commands.output import make_console as shown

    workspace, console = Workspace.find(), shown()
    for missing in find_missing_parts(workspace, LEDGER):
        raise missing
    books = open_ledger(workspace.ledger)
    if books.lost_keys_without_cost():
        CallRecorder(open_cache(workspace.cache), books).book_lost_calls()
    parts = {
        "run": books.by_run() if run is None else {},
        "purpose": books.by_purpose(run),
        "worker": books.by_worker(run),
        "month": books.by_month(run),
    }
    if as_json:
        latest = [call._asdict() for call in books.latest_calls(calls, run)] if calls else []
        print_json({**parts, "reserved": books.open_reservations(), "calls": latest})
        return
    for what, spent in parts.items():
        if spent:
            console.print(_table(what, spent))
            console.print()
    if calls:
        for call in _calls(books.latest_calls(calls, run)):
            console.print(call)
            console.print()
    if not parts["purpose"]:
        console.print(f"no call of run {run} is booked" if run else "no call is booked", markup=False)
    for name, spent in books.by_run().items():
        if spent.lost and run in (None, name):
            console.print(_lost(name, spent), highlight=False)
    for name, usd in books.open_reservations().items():
        if run in (None, name):
            console.print(f"reserved by running processes: ${usd:.4f} of run {name}", highlight=False)


def _lost(run: str, spent: SpendingSum) -> str:
    from ops.core.errors import format_count

    return (
        f"lost: {format_count(spent.lost, 'call')} of run {run} sent and not answered (killed, cancelled, timed out); "
        f"${spent.lost_usd:.4f} of its USD counts them at what they cost at worst, or as measured since"
    )


def _calls(calls: Iterable[SettledCall]) -> Iterator[Table]:
    """Return one table per run, with the run's name as title to keep the table narrow."""
    from datetime import UTC, datetime

    from pipelines.commands.output import make_table

    rows: dict[str, list[tuple[str, ...]]] = {}
    for call in calls:
        at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        tokens = (f"{call.prompt_tokens:,}", f"{call.completion_tokens:,}")
        rows.setdefault(call.run, []).append((at, call.purpose, call.worker, *tokens, f"{call.usd:.6f}"))
    for run, own in rows.items():
        yield make_table(
            ("at (UTC)", "purpose", "worker", *_TOKENS.values(), "USD"), own, (*_TOKENS.values(), "USD"),
            title=f"calls of run {run}",
        )  # fmt: skip


def _table(what: str, spent: Mapping[str, SpendingSum]) -> Table:
    from pipelines.commands.output import make_table

    columns = {"calls": ",", "lost": ",", "prompt_tokens": ",", "completion_tokens": ",", "usd": ".4f"}
    if not any(sums.lost for sums in spent.values()):
        del columns["lost"]
    heads = [(_TOKENS | {"usd": "USD"}).get(name, name) for name in columns]
    rows = [
        (name, *(format(getattr(sums, column), form) for column, form in columns.items()))
        for name, sums in spent.items()
    ]
    if len(spent) > 1:
        totals = {column: sum(getattr(sums, column) for sums in spent.values()) for column in columns}
        rows.append(("in all", *(format(totals[column], form) for column, form in columns.items())))
    return make_table((what, *heads), rows, heads)
