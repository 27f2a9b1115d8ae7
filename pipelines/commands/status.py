"""`podium status` and `podium runs`: the champion, the runs, the money and the alerts of a workspace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command, OrderedGroup
from pipelines.commands.options import AS_JSON, wide_option
from pipelines.commands.output import print_fact, print_json, print_table, print_text

if TYPE_CHECKING:
    import dagster as dg

SHOWN_ALERTS = 3
"""Number of the newest alerts that the status shows."""


@click.command(
    cls=Command,
    examples=(
        ("Show the state of the workspace of the current folder.", "podium status"),
        ("Print it for a script.", "podium status --json"),
    ),
)
@AS_JSON
def status(as_json: bool) -> None:
    """Show the champion, the last run and retraining, the spending and open alerts.

    The champion is the version that `podium serve` serves. The challenger is the newest version, if the promotion gate
    has not promoted it. An alert is open until a person or a later run has solved it.
    """
    from ops.alerts.notify import load_open_alerts
    from ops.core.workspace_parts import REGISTRY, RUNS, find_lost_records, find_missing_parts
    from ops.release import registry
    from ops.reports.retraining import load_last_summary, retraining_file
    from ops.spending.bookings import current_month, format_usd
    from ops.spending.ledger import open_ledger

    workspace = Workspace.find()
    missing = find_missing_parts(workspace) + find_lost_records(workspace)
    champion = challenger = None
    if all(each.file != str(workspace.state / REGISTRY.relative_path) for each in missing):
        champion, challenger = registry.find_champion(workspace), registry.find_challenger(workspace)
    retraining = load_last_summary(workspace)
    runs, open_alerts = _list_runs(workspace, 1), load_open_alerts(workspace)
    alerts = open_alerts[:SHOWN_ALERTS]
    books = open_ledger(workspace.ledger)
    has_ledger = all(each.file != str(workspace.ledger) for each in missing)
    month, spent = current_month(), books.by_month() if has_ledger else {}
    facts = {
        "workspace": str(workspace.root),
        "champion": champion and {"version": champion.version, "recipe": champion.tags.get("recipe", "")},
        "challenger": challenger
        and {"version": challenger.version, "verdict": challenger.tags.get("verdict", "not judged")},
        "last_run": runs[0] if runs else None,
        "last_retraining": retraining and retraining._asdict(),
        "usd_this_month": (spent[month].usd if month in spent else 0.0) if has_ledger else None,
        "usd_in_all": sum(each.usd for each in spent.values()) if has_ledger else None,
        "usd_reserved": sum(books.open_reservations().values()) if has_ledger else None,
        "missing": [str(each) for each in missing],
        "alerts": alerts,
    }
    if as_json:
        print_json(facts)
        return
    lines = [("Workspace", facts["workspace"])]
    if champion is not None:
        lines.append(("Champion", f"version {champion.version}, recipe {champion.tags.get('recipe', 'unknown')}"))
    if challenger is not None and (champion is None or challenger.version != champion.version):
        judged = challenger.tags.get("verdict", "not judged")
        lines.append(("Challenger", f"version {challenger.version} {judged}; podium verdict has every check"))
    none = "unknown, because the list of runs is missing" if find_lost_records(workspace, RUNS) else "none"
    lines += [("Last run", _format_run(runs[0]) if runs else none)]
    if retraining is not None:
        page = retraining_file(workspace).relative_to(workspace.root)
        lines.append(("Retraining", f"{retraining.at}, {retraining.change}. {retraining.outcome} ({page})"))
    lines += [("Missing", str(each)) for each in missing]
    reserved = f", {format_usd(facts['usd_reserved'])} reserved by running processes" if facts["usd_reserved"] else ""
    if has_ledger:
        lines.append(
            (
                "Spent",
                f"{format_usd(facts['usd_this_month'])} in {month}, {format_usd(facts['usd_in_all'])} in all{reserved}",
            )
        )
    for entry in alerts:
        said = f"{entry.notice.kind}: {entry.notice.title}; {entry.notice.command}"
        lines.append(("Alert", f"{_format_time(entry.at)}  {said}"))
    if not open_alerts:
        lines.append(("Alerts", "none is open (podium alerts list)"))
    elif len(open_alerts) > len(alerts):
        lines.append(("", f"{len(open_alerts) - len(alerts)} more are open (podium alerts list)"))
    if champion is None and not missing:
        lines.append(("Next", "podium run   trains a Conductor; podium plan says first what it needs and costs"))
    for label, text in lines:
        print_fact(label, text)


@click.group(
    cls=OrderedGroup,
    examples=(
        ("List the newest runs.", "podium runs list"),
        ("List the newest five.", "podium runs list --count 5"),
    ),
)
def runs() -> None:
    """List the runs of the pipeline."""


@runs.command(
    "list",
    examples=(
        ("List the newest five runs.", "podium runs list --count 5"),
        ("Print the newest run as JSON.", "podium runs list --count 1 --json"),
    ),
)
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show the newest N runs."
)
@AS_JSON
@wide_option
def list_runs(count: int, as_json: bool, wide: bool) -> None:
    """List the runs of the pipeline, the newest first.

    Times are given in UTC. `podium ledger` shows what the runs have cost.
    """
    from ops.core.workspace_parts import RUNS, find_lost_records

    workspace = Workspace.find()
    found = _list_runs(workspace, count)
    for lost in find_lost_records(workspace, RUNS):
        print_text(str(lost), err=True)
    if as_json:
        print_json(found)
        return
    if not found:
        print_text("There is no run yet. `podium run` starts one.")
        return
    rows = [
        (run["run"][:8], run["job"], run["recipe"], _name_status(run), run["started"] or "–", _format_minutes(run))
        for run in found
    ]
    head = ("run", "job", "recipe", "status", "started (UTC)", "minutes")
    print_table(head, rows, ("minutes",), optional=("job", "minutes"), wide=wide)


def _list_runs(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """The newest runs that Dagster knows; none where nothing was run yet."""
    if not workspace.dagster_home.is_dir():
        return []
    from pipelines.dagster_home import open_instance, prepare_home

    prepare_home(workspace)
    with open_instance(workspace) as instance:
        return [_describe_record(record) for record in instance.get_run_records(limit=count)]


def _describe_record(record: dg.RunRecord) -> dict[str, Any]:
    from assets.resources import RECIPE_TAG

    run, ended = record.dagster_run, record.end_time
    return {
        "run": run.run_id,
        "job": run.job_name if not run.asset_selection else ", ".join(sorted(map(_asset_name, run.asset_selection))),
        "recipe": run.tags.get(RECIPE_TAG, ""),
        "status": run.status.value.lower(),
        "started": _format_time(record.start_time) if record.start_time else None,
        "seconds": ended - record.start_time if ended and record.start_time else None,
    }


def _asset_name(key: dg.AssetKey) -> str:
    return key.to_user_string()


def _format_run(run: dict[str, Any]) -> str:
    of = f"{run['job']} of {run['recipe']}" if run["recipe"] else run["job"]
    return f"{of}: {_describe_status(run)} (podium runs list)"


def _name_status(run: dict[str, Any]) -> str:
    return "running" if run["status"] == "started" else str(run["status"])


def _describe_status(run: dict[str, Any]) -> str:
    if run["started"] is None:
        return f"{run['status']}, not begun yet"
    if _name_status(run) == "running":
        return f"running since {run['started']}"
    return f"{run['status']}, begun {run['started']}"


def _format_minutes(run: dict[str, Any]) -> str:
    return "–" if run["seconds"] is None else f"{run['seconds'] / 60:.1f}"


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
