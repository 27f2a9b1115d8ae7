"""`podium retrain` and `podium drift`: bring the champion up to date with its workers."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON, EXIT_NOT_PROMOTED, add_yes_option, dry_run_option
from pipelines.confirmation import check_workspace
from pipelines.termination import exit_interrupted


@click.command(
    cls=Command,
    examples=(
        ("Show what a change of the pool requires and costs.", "podium retrain --dry-run"),
        ("Do it, without asking for confirmation.", "podium retrain --yes"),
    ),
)
@dry_run_option
@add_yes_option
@AS_JSON
def retrain(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Adapt the champion to a changed pool of models.

    After you have added, removed or changed a worker in the champion's pool, this command asks the new and changed
    workers the stored questions, evaluates the champion on the changed pool, and trains it further if that is needed.
    Then the promotion gate decides whether the result replaces the champion. The exit code is 3 if it does not. The
    Dagster sensor pool_changed does the same without a person, up to the sum in config/retraining.yaml. With --json
    the command prints what --dry-run shows, and does nothing else.
    """
    from pipelines.retraining import manual

    if dry_run or as_json:
        manual.print_change(Workspace.find(), as_json)
        return
    check_workspace(Workspace.find())
    try:
        kept_back = manual.retrain_champion(Workspace.find(), yes)
    except KeyboardInterrupt:
        exit_interrupted()
    if kept_back:
        raise click.exceptions.Exit(EXIT_NOT_PROMOTED)


@click.command(
    cls=Command,
    examples=(
        ("Show how many calls the check makes and what they cost.", "podium drift --dry-run"),
        ("Ask the questions again, without asking for confirmation.", "podium drift --yes"),
    ),
)
@dry_run_option
@add_yes_option
def drift(dry_run: bool, yes: bool) -> None:
    """Check whether a model behind a worker has been replaced.

    The command asks the workers, and the champion, some stored questions again. If a worker is right more or less
    often than before, its provider has probably replaced the model under the same name. The command then writes a new
    revision of this model into config/revisions.yaml. From then on its old responses are ignored, and `podium retrain`
    adapts the champion.
    """
    from pipelines.retraining import manual

    if dry_run:
        manual.print_drift_cost(Workspace.find())
        return
    check_workspace(Workspace.find())
    manual.detect_drift(Workspace.find(), yes)
