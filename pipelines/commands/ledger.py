"""`podium ledger`: costs by run, purpose, worker and month, from `ops.spending.ledger`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON, wide_option
from pipelines.commands.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from ops.spending.bookings import SettledCall, SpendingSum
    from ops.spending.ledger import Ledger

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
@wide_option
def ledger(run: str | None, calls: int, as_json: bool, wide: bool) -> None:
    """Show how much the calls of workers have cost.

    The ledger records every call with its tokens and its price in US dollars. The command adds them up by run, by
    purpose, by worker and by month. A call is lost if it was sent and no response arrived. It is counted at the highest
    price that it can have.
    """
    from ops.core.workspace_parts import LEDGER, find_missing_parts
    from ops.spending.bookings import format_usd
    from ops.spending.ledger import open_ledger
    from ops.store import open_cache
    from ops.workers.live_call import CallRecorder

    workspace = Workspace.find()
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
            _print_sums(what, spent, wide)
    if calls:
        _print_calls(books.latest_calls(calls, run), wide)
    if not parts["purpose"]:
        print_text(_describe_no_calls(books, run))
    for name, spent in books.by_run().items():
        if spent.lost and run in (None, name):
            print_text(_describe_lost_calls(name, spent))
    for name, usd in books.open_reservations().items():
        if run in (None, name):
            print_text(f"Running processes have reserved {format_usd(usd)} for run {name}.")


def _describe_no_calls(books: Ledger, run: str | None) -> str:
    from ops.core.errors import suggest_name

    if run is None:
        return "The ledger has no calls yet."
    return f"The ledger has no call of a run {run}. {suggest_name(run, books.by_run(), 'runs', 'podium ledger')}"


def _describe_lost_calls(run: str, spent: SpendingSum) -> str:
    from ops.core.errors import format_count
    from ops.spending.bookings import format_usd

    return (
        f"Run {run}: {format_count(spent.lost, 'call')} sent without a response (killed, cancelled or timed out). The "
        f"run's USD contain {format_usd(spent.lost_usd)} for them: the most that each can have cost, or what was "
        "measured since."
    )


def _print_calls(calls: Iterable[SettledCall], wide: bool) -> None:
    """Print one table per run, with the run's name as title to keep the table narrow."""
    from datetime import UTC, datetime

    rows: dict[str, list[tuple[str, ...]]] = {}
    for call in calls:
        at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        tokens = (f"{call.prompt_tokens:,}", f"{call.completion_tokens:,}")
        rows.setdefault(call.run, []).append((at, call.purpose, call.worker, *tokens, f"{call.usd:.6f}"))
    for run, own in rows.items():
        head = ("at (UTC)", "purpose", "worker", *_TOKENS.values(), "USD")
        print_table(head, own, head[3:], f"calls of run {run}", optional=tuple(_TOKENS.values()), wide=wide)
        print_text("")


def _print_sums(what: str, spent: Mapping[str, SpendingSum], wide: bool) -> None:
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
        rows.append(("total", *(format(totals[column], form) for column, form in columns.items())))
    print_table((what, *heads), rows, heads, optional=tuple(_TOKENS.values()), wide=wide)
    print_text("")
