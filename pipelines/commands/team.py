"""`podium team`: set up a team's Dagster and start its pipeline runs (docs/deployment.md)."""

from __future__ import annotations

import os
from contextlib import closing

import click

from ops.core.errors import ConfigError, PodiumError
from ops.core.installation import install_extra_command
from ops.core.workspace import Workspace
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import add_recipe_argument, add_yes_option, dry_run_option, seed_option
from pipelines.commands.output import print_text

JOBS = ("lifecycle", "precache", "train", "evaluate")
"""Of `pipelines.lifecycle`, which is not imported before it is needed."""
_DATABASE, _DRIVER = "PODIUM_DAGSTER_URL", "postgresql+psycopg2://"
"""SQLAlchemy 2.1 uses psycopg 3 for a plain postgresql:// URL, but dagster-postgres 0.29 writes statements for
psycopg2."""


@click.group(
    cls=OrderedGroup,
    examples=(
        ("Create the tables of the team's databases, once.", "podium team setup"),
        ("Start a run of the paper's recipe.", "podium team start paper"),
    ),
)
def team() -> None:
    """Run the pipeline on a Dagster that a team shares.

    docs/deployment.md explains how to set it up.
    """


@team.command(
    examples=(
        ("Create the tables, and let one step at a time use a GPU.", "podium team setup"),
        ("Let four steps use a GPU at the same time.", "podium team setup --gpu 4"),
    ),
)
@click.option(
    "--gpu", type=click.IntRange(0), default=1, show_default=True, metavar="N",
    help="Let this many steps use a GPU at the same time.",
)  # fmt: skip
def setup(gpu: int) -> None:
    """Create the tables that are missing in the team's databases.

    Run this command once, before any other process of the team starts. Otherwise each process of Dagster creates the
    tables at its first start, and two processes that do so at the same time fail.
    """

    from assets.placement import GPU_POOL
    from ops.release.mlflow_store import check_stores_all_characters
    from ops.spending.ledger import open_ledger
    from ops.spending.ledger_store import LEDGER_URL
    from pipelines.dagster_home import open_instance, prepare_home

    workspace = _open_workspace()
    for variable in (_DATABASE, LEDGER_URL):
        _check_encoding(variable)
    if workspace.mlflow_uri.startswith("http"):
        check_stores_all_characters(workspace)
    prepare_home(workspace)
    with open_instance(workspace) as instance:
        instance.get_runs_count()
        instance.all_instigator_state()
        instance.event_log_storage.set_concurrency_slots(GPU_POOL, gpu)
    ledger = open_ledger(workspace.ledger)
    ledger.release_ended_processes()
    ledger.close()
    print_text(f"The team's tables exist. At most {gpu} steps use a GPU at the same time.")


@team.command(
    examples=(
        ("Start a run of the paper's recipe.", "podium team start paper"),
        ("Start only the calls of its workers.", "podium team start paper --job precache"),
    ),
)
@add_recipe_argument
@seed_option
@click.option(
    "--job", type=click.Choice(JOBS), default="lifecycle", show_default=True,
    help="Run this part of the pipeline. The job lifecycle is the whole pipeline.",
)  # fmt: skip
@dry_run_option
@add_yes_option
def start(recipe: str, seed: int | None, job: str, dry_run: bool, yes: bool) -> None:
    """Start a run of the pipeline on the team's Dagster.

    The command puts the run into the queue, from which Dagster's daemon starts it. Dagster's web interface shows it
    under Runs.
    """
    from pipelines.confirmation import confirm_run
    from pipelines.dagster_home import open_instance, prepare_home
    from pipelines.run import NEEDS_OF_JOB, take_snapshot

    workspace = _open_workspace()
    if dry_run:
        from ops.config import Setup
        from pipelines.commands.plan import show_plan

        show_plan(Setup.read(workspace, recipe, seed), NEEDS_OF_JOB[job])
        return
    prepare_home(workspace)
    snapshot = take_snapshot(workspace, recipe, seed, NEEDS_OF_JOB[job])
    confirm_run(snapshot.setup(workspace), yes)

    from assets.resources import RunResource
    from pipelines.launching import submit_run

    podium = RunResource(recipe=recipe, seed=seed).bind_snapshot(snapshot)
    with open_instance(workspace) as instance:
        run_id = submit_run(podium, instance, job)
    print_text(f"run {run_id}: {snapshot}")


def _open_workspace() -> Workspace:
    if not os.environ.get("PODIUM_TEAM"):
        raise PodiumError("PODIUM_TEAM is not set: this checkout is not part of a team. Use `podium run` instead")
    if not os.environ.get(_DATABASE, "").startswith(_DRIVER):
        remedy = "Dagster's storage needs this driver; dagster-postgres installs it"
        raise ConfigError(_DATABASE, "", f"does not begin with {_DRIVER}", remedy)
    return Workspace.find()


def _check_encoding(variable: str) -> None:
    """Raise `ConfigError` for a Postgres database that cannot store every text. Others find that it is down."""
    try:
        import psycopg2  # Dagster's driver
    except ImportError:
        raise PodiumError(
            f"psycopg2 is not installed, and a team needs it. Run {install_extra_command('team')}"
        ) from None
    scheme, _, place = os.environ.get(variable, "").partition("://")
    if not scheme.startswith("postgres"):
        return
    try:
        with closing(psycopg2.connect(f"postgresql://{place}", connect_timeout=10)) as connection:
            encoding = connection.get_parameter_status("server_encoding")
    except psycopg2.Error:
        return
    if encoding != "UTF8":
        remedy = "Make it with ENCODING 'UTF8' TEMPLATE template0, as config/team/postgres.sql does"
        raise ConfigError(variable, "", f"is a database with the encoding {encoding}, which lacks characters", remedy)
