"""The way from a key to the first table: recipe, key, cost, one call to each worker, the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops.config import Pool, Setup, pool_file
from ops.config.base import key_problem
from ops.core.atomic import write_text
from ops.core.errors import ConfigError, format_count
from ops.core.workspace import Workspace
from ops.spending.bookings import format_usd
from ops.workers.ping import PingResult
from pipelines.commands.output import print_text
from pipelines.confirmation import check_workspace, confirm_spending
from pipelines.environment_file import write_environment_file

if TYPE_CHECKING:
    from ops.planning.estimate import Range

BASE_RECIPE = "first-look"
"""The recipe that a new workspace runs first."""


def run_first_look(workspace: Workspace, pool: str, yes: bool, without: Sequence[str] = ()) -> None:
    """Write a recipe and `.env` for the pool, show what the recipe costs, call each worker once, and run it.

    Asks for a key that is neither in the environment nor in `.env`, before it leaves out a worker that is not in
    `without`, and before it spends; with `yes` for nothing. Raises `PodiumError`, and `click.exceptions.Exit` after a
    refusal of the person or of a provider.
    """
    from ops.planning.requirements import check_ready

    check_workspace(workspace)
    recipe = write_recipe(workspace, pool)
    choose_excluded_workers(workspace, recipe, yes, without)
    setup = Setup.read(workspace, recipe)
    ask_for_keys(workspace, setup.pool, yes)
    check_ready(setup)
    for each in setup.left_out:
        print_text(f"{each.what} {each.why}. {each.remedy}.")
    cost = _show_cost(setup)
    try:
        confirm_spending(setup, yes, cost)
    except click.exceptions.Exit:
        print_text(f"Nothing was spent. `podium run {recipe}` runs it later.")
        raise
    check_sources(setup)
    call_each_worker(setup)
    from pipelines.run import run_job

    run_job(workspace, recipe)
    print_text(f"Afterwards  podium plan pilot --pool {pool}   what it costs to learn whether training would pay")


def write_recipe(workspace: Workspace, pool: str) -> str:
    """Write `config/recipes/first-look-POOL.yaml` unless it exists; return its name. Raises `ConfigError` for a pool
    that does not exist."""
    from ops.config import load_pool

    load_pool(workspace.config, pool)
    name = f"{BASE_RECIPE}-{pool.replace(':', '-')}"
    file = workspace.config / "recipes" / f"{name}.yaml"
    if not file.exists():
        head = f"# `podium run {name}` runs it again; what it has asked is not paid for twice.\n"
        write_text(file, f"{head}base: {BASE_RECIPE}\nname: {name}\npool: {pool}\n")
    print_text(f"recipe {file.relative_to(workspace.root)}, pool {pool_file(Path('config'), pool)}")
    return name


def choose_excluded_workers(workspace: Workspace, recipe: str, yes: bool, without: Sequence[str]) -> None:
    """Write into the recipe which workers above `max_output_price` it goes without: those of `without`, and those that
    a person agrees to.

    Raises `ConfigError` where one is left to agree to and no person can be asked, and `click.exceptions.Exit` where the
    person does not agree.
    """
    setup = Setup.read(workspace, recipe)
    costly = [each for each in setup.left_out if not each.agreed]
    file = workspace.config / "recipes" / f"{recipe}.yaml"
    if not costly:
        return
    for each in costly:
        if each.what in without:
            continue
        if yes or not sys.stdin.isatty():
            remedy = f"Add --without {each.what} to the command to agree, or set max_output_price higher in {file.name}"
            raise ConfigError(file, "max_output_price", f"{each.what} {each.why}", remedy)
        if not click.confirm(f"{each.what} {each.why}. Go on without it?", err=True):
            print_text(f"Nothing was spent. Set max_output_price higher in {file}, and budget.run_usd.")
            raise click.exceptions.Exit(1)
    names = ", ".join([*setup.recipe.without, *(each.what for each in costly)])
    kept = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("without:")]
    write_text(file, "\n".join([*kept, f"without: [{names}]"]) + "\n")


def ask_for_keys(workspace: Workspace, pool: Pool, yes: bool) -> None:
    """Ask for the pool's keys that are missing, and store them in `.env`.

    Raises `ConfigError` where a key is missing and the command may not ask (`yes`, or no terminal), or where the answer
    is no key.
    """
    keys = {}
    for variable in dict.fromkeys(worker.api_key_env for worker in pool.workers if worker.api_key_env):
        keys[variable] = ""
        if problem := key_problem(variable):
            if yes or not sys.stdin.isatty():
                write_environment_file(workspace, keys)
                remedy = f"Write {variable}=KEY there, or set it in the environment, and run the same command again"
                raise ConfigError(workspace.environment_file, variable, problem, remedy)
            asked = f"{variable} (it is stored in {workspace.environment_file} and not shown)"
            os.environ[variable] = keys[variable] = click.prompt(asked, hide_input=True).strip()
            if problem := key_problem(variable):
                remedy = "Paste the provider's key as it is, and nothing else"
                raise ConfigError(workspace.environment_file, variable, problem, remedy)
    write_environment_file(workspace, keys)


def _show_cost(setup: Setup) -> Range:
    from ops.planning.estimate import add_costs
    from ops.planning.machine import detect_machine
    from ops.planning.recipe_plan import make_plan

    plan = make_plan(setup, detect_machine(setup.workspace))
    whole, cap = add_costs(plan.stages), setup.recipe.budget.run_usd
    minutes = whole.worker_s.expected / 60
    print_text(
        f"{whole.calls.expected:,.0f} calls to {format_count(len(setup.pool.workers), 'worker')}: about "
        f"{format_usd(whole.usd.expected)} ({format_usd(whole.usd.low)} to {format_usd(whole.usd.high)} "
        f"at today's prices), never more than {format_usd(cap)}; about {minutes:.0f} minutes of waiting for workers"
    )
    return whole.usd


def check_sources(setup: Setup) -> None:
    """Ask the hub for every dataset of the recipe, before any worker is paid.

    Raises `PodiumError` if the hub cannot be reached or refuses one of them.
    """
    from ops.benchmarks.problem_files import raw_files
    from ops.benchmarks.registry import BENCHMARKS

    for name, source in setup.recipe.benchmarks.items():
        for split in raw_files(setup.workspace, setup.recipe, name):
            BENCHMARKS[name].check_source(split, source)


def call_each_worker(setup: Setup) -> None:
    """Call every worker once. Raises `click.exceptions.Exit` if one does not answer, after a line for each reason."""
    from ops.spending.ledger import open_ledger
    from ops.store import open_cache
    from ops.workers.ping import ping_pool

    workspace = setup.workspace
    with closing(open_cache(workspace.cache)) as cache, closing(open_ledger(workspace.ledger)) as ledger:
        results = ping_pool(setup.pool, setup.pool_file, cache, ledger)
    failed = [result for result in results if not result.ok]
    for line in list_failure_reasons(failed):
        print_text(line, err=True)
    if failed:
        print_text("No other call was made. The same command continues from here.", err=True)
        raise click.exceptions.Exit(1)
    print_text(f"Each worker answers: {', '.join(result.worker for result in results)}.")


def list_failure_reasons(failed: Iterable[PingResult]) -> list[str]:
    """Return one line for each remedy: the workers, what the first one's provider said, and what to do."""
    by_remedy: dict[str, list[PingResult]] = {}
    for result in failed:
        by_remedy.setdefault(result.remedy, []).append(result)
    return [
        f"{', '.join(result.worker for result in group)}: {group[0].said.rstrip('.')}. {remedy}"
        for remedy, group in by_remedy.items()
    ]
