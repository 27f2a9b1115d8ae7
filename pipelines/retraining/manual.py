"""The functions of `podium retrain` and `podium drift` in this process: print or execute the plan, ask again."""

from __future__ import annotations

import dagster as dg
from rich.console import Console
from rich.table import Table

from assets.pool_change import CAUSE_TAG, PendingChange, find_pending_change, get_champion
from ops.config import Setup, Snapshot
from ops.core.workspace import Workspace
from ops.release import registry
from ops.retraining.estimate import Estimate
from ops.retraining.standing import find_next_command, load_training_decision
from ops.retraining.story import write_retraining_page
from ops.spending.bookings import format_usd
from ops.workers.pool import compare_pools
from pipelines.commands.output import print_fact, print_json, print_table
from pipelines.confirmation import confirm_spending, show_spending
from pipelines.retraining.launch import estimate_change, estimate_drift_round, make_change_tags, record_plan

_CAUSE = "the command `podium retrain`"
"""What the page of the retrainings says about the start of a run of this module."""


def print_change(workspace: Workspace, as_json: bool = False) -> None:
    """Print what the champion's pool requires and costs, without executing it.

    Raises `PodiumError`.
    """
    from assets.resources import RunResource
    from pipelines.dagster_home import open_instance, prepare_home

    prepare_home(workspace)
    with open_instance(workspace) as instance:
        found = find_pending_change(RunResource(root=str(workspace.root)), workspace, instance)
    priced = None if found.plan.is_empty else estimate_change(found)
    if as_json:
        print_json(_describe_change(found, priced))
    else:
        print_plan(found, priced)


def _describe_change(found: PendingChange, priced: Estimate | None) -> dict[str, object]:
    change = found.snapshot.change
    assert change is not None
    return {
        "champion": change.version,
        "recipe": found.snapshot.recipe_file,
        "difference": compare_pools(change.before, found.snapshot.pool),
        "plan": "" if found.plan.is_empty else str(found.plan),
        "usd": None if priced is None else priced.usd._asdict(),
        "budget_usd": found.snapshot.retraining.budget_usd,
    }


def print_plan(found: PendingChange, priced: Estimate | None) -> None:
    """Print the difference, the plan and its price."""
    snapshot, change = found.snapshot, found.snapshot.change
    assert change is not None
    print_fact("Champion", f"version {change.version}, recipe {snapshot.recipe_file}, seed {snapshot.recipe.seed}")
    for line in str(compare_pools(change.before, snapshot.pool)).splitlines():
        print_fact("Pool", line)
    if priced is None:
        print_fact("Plan", "nothing to do: the pool has not changed since the champion was last evaluated on it")
        return
    print_fact("Plan", found.plan)
    if priced.parts:
        rows = [
            (part.name, f"{part.calls_formula}{' (if needed)' * part.is_conditional}", format_usd(part.usd.expected),
             format_usd(part.usd.high)) for part in priced.parts
        ]  # fmt: skip
        print_table(("step", "calls", "USD", "at most"), rows, ("USD", "at most"), optional=())
    total = (
        f"about {format_usd(priced.usd.expected)}, at most {format_usd(priced.usd.high)}" if priced.parts else priced
    )
    print_fact("Estimate", total)
    if priced.usd.expected > (budget := snapshot.retraining.budget_usd):
        limit = f"This is more than budget_usd of config/retraining.yaml ({format_usd(budget)})"
        print_fact("", f"{limit}, so that the sensor does not start it.")


def retrain_champion(workspace: Workspace, yes: bool = True) -> bool:
    """Execute the work that the champion's pool requires; return whether the gate kept a challenger back.

    Without `yes` a person is asked before paid workers are called. Raises `PodiumError`, and `KeyboardInterrupt` after
    Ctrl-C.
    """
    from pipelines.run import open_session

    known = get_champion(workspace)
    console = Console(highlight=False)
    asked = known.snapshot
    with open_session(
        workspace, asked.recipe_file, asked.seed, ("workers", "training", "evaluation"), console
    ) as place:
        found = find_pending_change(place.resource, workspace, place.instance)
        if found.plan.is_empty:
            print_plan(found, None)
            return False
        priced = estimate_change(found)
        print_plan(found, priced)
        confirm_spending(found.snapshot.setup(workspace), yes, priced.usd)
        record_plan(workspace, found, priced, _CAUSE)
        job = place.definitions.resolve_job_def("retraining")
        place.with_resource(found.podium).execute(job, tags=make_change_tags(found, priced) | {CAUSE_TAG: _CAUSE})
    return print_decision(console, workspace, found.snapshot)


def print_decision(console: Console, workspace: Workspace, asked: Snapshot) -> bool:
    """Print the decision, its outcome, and the next command to type; return whether the gate kept a challenger back.

    Raises `DataError`.
    """
    from pipelines.run_output import print_promotion

    made = load_training_decision(workspace, asked.key)
    console.print()
    if (page := write_retraining_page(workspace)) is not None:
        console.print(f"Page        {page.relative_to(workspace.root)}   tells what was done and why")
    console.print(f"Decision    {'fine-tuned' if made.fine_tune else 'not trained'}: {made.why}", markup=False)
    kept_back = False
    if made.fine_tune:
        kept_back = print_promotion(console, workspace)
    elif (champion := registry.find_champion(workspace)) is not None:
        console.print(f"Champion    version {champion.version}, as before")
    if command := find_next_command(asked, made):
        console.print(f"Next        `{command}` trains from the start", markup=False)
    return kept_back


def print_drift_cost(workspace: Workspace) -> None:
    """Print what it costs to ask today's questions of the champion's recipe again. Raises `PodiumError`."""
    known = get_champion(workspace)
    setup = Setup.read(workspace, known.snapshot.recipe_file, known.snapshot.seed)
    priced = estimate_drift_round(setup)
    print(priced)
    show_spending(setup, priced.usd)


def detect_drift(workspace: Workspace, yes: bool = True) -> None:
    """Ask the champion's workers, and the champion, today's questions again in this process; without `yes` a person is
    asked first. Raises `PodiumError`."""
    from ops.retraining.drift import find_stored_champion, list_stored_workers
    from pipelines.run import open_session

    known = get_champion(workspace)
    console, asked = Console(highlight=False), known.snapshot
    with open_session(workspace, asked.recipe_file, asked.seed, ("workers", "evaluation"), console) as place:
        setup, settings = place.resource.load_setup(), place.resource.get_snapshot().retraining.drift
        confirm_spending(setup, yes, None if yes else estimate_drift_round(setup).usd)
        place.execute(place.definitions.resolve_implicit_global_asset_job_def(), [dg.AssetKey("drift")])
    head = ("system", "nights", "pairs", "stored, % right", "again, % right", "change")
    table = Table(*head, box=None, padding=(0, 2, 0, 0))
    for system in filter(None, (*list_stored_workers(setup), find_stored_champion(setup))):
        record = system.load_record(workspace)
        change = record.estimate_difference(settings.false_alarms)
        if change is not None:
            right = [f"{100 * share:.1f}" for share in record.accuracies()]
            row = (record.system, record.rounds, len(record.pairs), *right, f"{change.low:+.3f} to {change.high:+.3f}")
            table.add_row(*map(str, row), style="red" if record.is_changed(settings.false_alarms) else None)
    console.print(table)
    console.print("A system has drifted if the interval of its change excludes 0; its line is red.")
