"""`podium retrain`, `podium probe`: the champion and its workers as they are now."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.ending import stopped_midway


@click.command()
@click.option("--plan", "plan_only", is_flag=True, help="Say what it requires and costs; do nothing.")
def retrain(plan_only: bool) -> None:
    """Do what a change of the champion's pool requires.

    Precache new and changed workers, evaluate the champion on the pool as it is, train on from it if that is worth it,
    and let the gate judge. What the sensor `pool_changed` starts by itself, without its limit on cost.
    """
    from pipelines.retraining import by_hand

    if plan_only:
        by_hand.tell(Workspace.find())
        return
    try:
        by_hand.retrain(Workspace.find())
    except KeyboardInterrupt:
        stopped_midway()


@click.command()
@click.option("--simulate", is_flag=True, help="Ask nobody: print what the test finds in simulated years.")
@click.option("--simulations", default=500, show_default=True, help="How many of them a provider.")
def probe(simulate: bool, simulations: int) -> None:
    """Ask every worker a few questions again.

    A worker that no longer agrees with its precached answers has been swapped behind its name: its model gets a
    revision in config/revisions.yaml, which sets its old answers aside, and `podium retrain` does the rest.
    """
    from pipelines.retraining import by_hand

    if simulate:
        click.echo(by_hand.simulated(Workspace.find(), simulations))
        return
    by_hand.probe(Workspace.find())
