"""Act on detected drift: a changed worker's earlier answers are no longer used, and one alert says what has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from ops.alerts import notify
from ops.alerts.catalogue import CHAMPION_DRIFTED, DRIFT_SOLVED, WORKER_DRIFTED
from ops.alerts.notify import close_alerts
from ops.config import Drift, Setup, Worker
from ops.config.pool import REVISIONS_FILE, Revisions
from ops.core.atomic import write_text
from ops.core.workspace import Workspace
from ops.release.way_back import describe_way_back
from ops.retraining.champion import load_champion
from ops.retraining.drift import DriftRecord


def record_revisions(config: Path, drifted: Sequence[Worker], day: date) -> dict[str, str]:
    """Give the model of each drifted worker a new revision, dated `day`, and return it by the worker's name.

    The revision is a part of every cache key. The old answers remain in the cache under the keys of the old revision,
    but are no longer read, so that they cannot be mixed with new ones. From then on, pools with the model count as
    changed. Raises `ConfigError` if the revisions cannot be read or written.
    """
    noted, names = Revisions.read(config), {}
    for worker in drifted:
        names[worker.name] = f"drift-{day.isoformat()}"
        noted = noted.with_revision(worker, names[worker.name])
    if names:
        noted.write(config)
    return names


def act_on_drift(setup: Setup, records: Sequence[DriftRecord], settings: Drift, day: date) -> dict[str, str]:
    """Give changed workers a new revision, send one alert about what has changed, and return the revisions by worker.

    A change stays open until the system answers as its stored answers do: for a worker, after its answers were made
    again; for a champion, when it recovers or another version replaces it. Another alert then reports that the change
    is resolved. Raises `ConfigError` if the revisions cannot be read or written.
    """
    workspace, pool = setup.workspace, setup.pool
    changed = {record.system: record for record in records if record.is_changed(settings.false_alarms)}
    revisions = record_revisions(workspace.config, [pool.worker(name) for name in changed if name in pool.names], day)
    before = _load_open_changes(workspace)
    holding = {record.system for record in records} - changed.keys()
    solved = [name for name in before if name in holding or name not in {*changed, *pool.names}]
    new = [record for name, record in changed.items() if name not in before]
    if new:
        lines = [describe_drift(record, settings) for record in new]
        lines += [
            f"{worker}: new revision {revision} in config/{REVISIONS_FILE}" for worker, revision in revisions.items()
        ]
        if revisions:
            lines.append("The answers of earlier revisions are no longer used. pool_changed plans the rest if it is on")
        else:
            lines += ["No worker changed, so that `podium retrain` has nothing to do.", describe_way_back(workspace)]
        alert = WORKER_DRIFTED if revisions else CHAMPION_DRIFTED
        champion = load_champion(workspace)
        recipe = champion.snapshot.recipe_file if champion else setup.recipe.name
        values = {"recipe": recipe, "another_seed": str(setup.recipe.seed + 1)}
        title = f"{', '.join(record.system for record in new)} drifted"
        notify(workspace, alert.make_notice(title, "\n".join(lines), occasion=f"{title} {day}", **values))
    if solved:
        title = f"{', '.join(solved)} no longer drifted"
        notify(workspace, DRIFT_SOLVED.make_notice(title))
        if not new and set(before) == set(solved):
            close_alerts(workspace, (WORKER_DRIFTED, CHAMPION_DRIFTED), title)
    still = {name: since for name, since in before.items() if name not in solved}
    write_text(
        _open_changes_file(workspace), json.dumps(still | {record.system: day.isoformat() for record in new}, indent=1)
    )
    return revisions


def describe_drift(record: DriftRecord, settings: Drift) -> str:
    """Return one line that says how the new answers differ from the stored ones."""
    if (difference := record.estimate_difference(settings.false_alarms)) is None:
        return f"{record.system}: no answer yet"
    before, now = (f"{100 * share:.1f} %" for share in record.accuracies())
    ends = f"{difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
    return f"{record.system}: {before} right when stored, {now} on asking again ({len(record.pairs)} pairs, {ends})"


def _load_open_changes(workspace: Workspace) -> Mapping[str, str]:
    """Return system → the day on which its change was reported, for the changes that are not solved."""
    try:
        found = json.loads(_open_changes_file(workspace).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _open_changes_file(workspace: Workspace) -> Path:
    return workspace.state / "drift" / "open.json"
