"""Ask a person for confirmation before money is spent or an alias is moved."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.core.workspace_parts import accept_missing_parts, check_parts, find_missing_parts
from pipelines.commands.output import print_text

if TYPE_CHECKING:
    from ops.config import Setup
    from ops.planning.estimate import Range


def confirm(question: str, yes: bool) -> None:
    """Ask a person for confirmation. Return if they agree or have given `--yes`, and end with exit code 1 if they do
    not agree.

    Raises `PodiumError` if no person can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise PodiumError(f"{question}, and no person can be asked here. Add --yes to agree")
    if not click.confirm(f"{question}. Go on?", err=True):
        raise click.exceptions.Exit(1)


_ACCEPT_MISSING_KEY = "podium.accept_missing"


def record_agreement(context: click.Context, value: bool) -> None:
    """Note that the person who gave this command agrees to continue without missing parts of the workspace."""
    context.meta[_ACCEPT_MISSING_KEY] = value


def check_workspace(place: Setup | Workspace) -> None:
    """Raise `PodiumError` before anything is spent if the ledger, the cache or the registry is missing and the command
    does not agree to that.

    A rehearsal, and a recipe that calls no worker, spend nothing and are not checked.
    """
    if not isinstance(place, Workspace):
        if place.recipe.replay is not None or not place.recipe.can_call_workers:
            return
        place = place.workspace
    begin_missing_parts_if_accepted(place)
    check_parts(place)


def begin_missing_parts_if_accepted(workspace: Workspace) -> None:
    """Begin the missing parts of the workspace anew if the command agrees to that, and say so."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_ACCEPT_MISSING_KEY):
        for missing in find_missing_parts(workspace):
            print_text(f"{missing.file}: {missing.problem}. Podium begins a new one", err=True)
        for file in accept_missing_parts(workspace):
            print_text(f"The unreadable file is kept as {file}", err=True)


def confirm_run(setup: Setup, yes: bool) -> None:
    """Ask for confirmation before a pipeline run or a part of one, and show the planned cost of everything that the
    whole run still lacks. Raises the errors of `confirm`."""
    from ops.planning.estimate import add_costs
    from ops.planning.machine import detect_machine
    from ops.planning.recipe_plan import make_plan

    if not yes and can_cost_money(setup):
        confirm_spending(setup, yes, add_costs(make_plan(setup, detect_machine(setup.workspace)).stages).usd)


def confirm_spending(setup: Setup, yes: bool, usd: Range | None = None) -> None:
    """Ask for confirmation before workers are called that cost money; embedded workers do not.

    `usd` is the cost of the calls, or None if it was not estimated. Nobody is asked if nothing remains to be paid.
    Raises the errors of `confirm` and of `check_workspace`.
    """
    check_workspace(setup)
    if not yes and (what := _describe_spending(setup, usd)):
        confirm(what, yes)


def show_spending(setup: Setup, usd: Range | None = None) -> None:
    """Print what `confirm_spending` would ask, for a dry run. Raises `ConfigError`."""
    what = _describe_spending(setup, usd) or f"Recipe {setup.recipe.name} makes no call that costs money"
    print_text(f"{what}. Nothing was done")


def _describe_spending(setup: Setup, usd: Range | None) -> str:
    """Return what is spent; empty where nothing is."""
    from ops.spending.bookings import format_usd

    if not can_cost_money(setup) or (usd is not None and usd.high == 0):
        return ""
    about = "" if usd is None else f" for about {format_usd(usd.expected)}"
    cap = f"{format_usd(setup.recipe.budget.run_usd)} (budget.run_usd)"
    return f"Recipe {setup.recipe.name} calls paid workers{about}, never for more than {cap}"


def can_cost_money(setup: Setup) -> bool:
    """Return whether the recipe may call a worker that has a price and is not embedded. Raises `ConfigError`."""
    from ops.workers.providers import find_price, is_remote

    called = (each for pool in setup.all_pools.values() for each in pool.workers if is_remote(each))
    return setup.recipe.can_call_workers and any(
        find_price(each, setup.pool_file).compute_max_usd(1, 1) > 0 for each in called
    )
