"""`podium retrain` and `podium drift`: bring the champion up to date with its workers."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.asking import check_workspace
from pipelines.commands.options import AS_JSON, KEPT_BACK, dry_run_option, yes_option
from pipelines.ending import stopped_midway


@click.command()
@dry_run_option
@yes_option
@AS_JSON
def retrain(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Do the work that a change of the champion's pool requires.

    Precache new and changed workers, evaluate the champion on the current pool, fine-tune it if needed, and let the
    gate judge the result. The sensor `pool_changed` does the same within retraining.budget_usd. `--json` prints what
    `--dry-run` says. Exit code 3 if the gate does not promote the result.
    """
    from pipelines.retraining import by_hand

    if dry_run or as_json:
        by_hand.report(Workspace.find(), as_json)
        return
    check_workspace(Workspace.find())
    try:
        kept_back = by_hand.retrain(Workspace.find(), yes)
    except KeyboardInterrupt:
        stopped_midway()
    if kept_back:
        raise click.exceptions.Exit(KEPT_BACK)


@click.command()
@dry_run_option
@yes_option
def drift(dry_run: bool, yes: bool) -> None:
    """Ask stored questions again: have the workers, or the champion, changed?

    A worker that is right more or less often than its stored answers has been replaced under the same name: its model
    gets a revision in config/revisions.yaml, so that its old answers are ignored, and `podium retrain` does the rest.
    """
    from pipelines.retraining import by_hand

    if dry_run:
        by_hand.report_drift(Workspace.find())
        return
    check_workspace(Workspace.find())
    by_hand.drift(Workspace.find(), yes)
