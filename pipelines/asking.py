"""The question to a person before money is spent or an alias moves."""

from __future__ import annotations

import sys

import click

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.estimate import total
from ops.planning.machine import this_machine
from ops.planning.plan import make_plan
from ops.workers.providers import is_remote, worst_price


def confirm(what: str, yes: bool) -> None:
    """Ask a person; return if they agree or have said `--yes`, and end with exit code 1 if they do not agree.

    Raises `PodiumError` where no person can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise PodiumError(f"{what}, and no person can be asked here. Add --yes to agree")
    if not click.confirm(f"{what}. Go on?", err=True):
        raise click.exceptions.Exit(1)


def confirm_spending(setup: Setup, yes: bool) -> None:
    """Ask before workers are called that cost money, which embedded ones do not, with the expected cost of what is not
    stored yet. Errors of `confirm`."""
    if yes or not setup.recipe.asks_workers:
        return
    called = [each for pool in setup.every_pool.values() for each in pool.workers if is_remote(each)]
    if any(any(worst_price(each, setup.pool_file)) for each in called):
        expected = total(make_plan(setup, this_machine(setup.workspace)).stages).usd.expected
        cap = f"${setup.recipe.budget.run_usd:,.2f} (budget.run_usd)"
        confirm(f"Recipe {setup.recipe.name} calls paid workers: about ${expected:,.2f}, never more than {cap}", yes)
