"""The Dagster instance of this checkout: its folder, its quiet tools, and what a killed run left behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.placement import TEAM
from ops.core.atomic import sweep, write_text
from ops.core.backup import settle
from ops.core.errors import ConfigError
from ops.core.processes import name_of
from ops.core.settings_files import parse_yaml, read_text
from ops.core.workspace import Workspace
from pipelines.quiet import quiet

CODE_LOCATION = "podium"
"""The UI's name for this code location; the same as in pyproject.toml, for `dagster dev` in the project's folder."""

PROCESS = ".dagster/podium_process"
"""Run tag: the process that executes a run; a later process checks whether it still runs. No page shows it."""


def prepare(workspace: Workspace) -> None:
    """Make DAGSTER_HOME with the root's dagster.yaml, or a team's, in it and point this process and its children
    there. A folder that DAGSTER_HOME names already is a team's machine's own: a dagster.yaml in it stays as it is.

    Raises `ConfigError` where the root has none, or where the one in force cannot be read.
    """
    settings = workspace.root / ("config/team/dagster.yaml" if os.environ.get(TEAM) else "dagster.yaml")
    own = os.environ.get("DAGSTER_HOME") if os.environ.get(TEAM) else None
    home = Path(own) if own else workspace.dagster_home
    copied = home / "dagster.yaml"
    text = _readable(copied if own and copied.exists() else settings)
    quiet()
    os.environ["PODIUM_ROOT"] = str(workspace.root)
    os.environ["DAGSTER_HOME"] = str(home)
    home.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a daemon that reads half of it takes Dagster's defaults.
    if not copied.is_file() or copied.read_bytes() != text.encode():
        write_text(copied, text)
    settle(workspace)
    sweep(workspace.data)


def _readable(file: Path) -> str:
    """The text of a dagster.yaml. Raises `ConfigError`."""
    try:
        text = read_text(file)
    except FileNotFoundError:
        remedy = "Restore it, or let `podium init` write it"
        raise ConfigError(file, "(file)", "does not exist", remedy) from None
    if not isinstance(parse_yaml(text, file), dict | None):
        raise ConfigError(file, "(file)", "is not a mapping", "Write the settings of a Dagster instance")
    return text


def open_instance(workspace: Workspace) -> dg.DagsterInstance:
    """The instance of a prepared workspace. Raises `ConfigError` where Dagster refuses its dagster.yaml."""
    try:
        return dg.DagsterInstance.get()
    except dg.DagsterInvalidConfigError as error:
        said = str(error.errors[0].message if error.errors else error).partition(" Expected: ")[0]
        file = Path(os.environ["DAGSTER_HOME"]) / "dagster.yaml"
        if not os.environ.get(TEAM):
            file = workspace.root / "dagster.yaml"
        raise ConfigError(file, "(file)", f"is refused by Dagster ({said.rstrip('.')})", "Correct it") from None


def this_process() -> dict[str, str]:
    """Run tags: this process; and the code location, without which a job's page does not list the run."""
    return {PROCESS: name_of(os.getpid()), ".dagster/repository": f"__repository__@{CODE_LOCATION}"}


def process_of(run: dg.DagsterRun) -> str | None:
    """The process of a command that executes the run; None for a run of Dagster's, which may repeat such a run and then
    has its tags."""
    return run.tags.get(PROCESS) if run.parent_run_id is None else None


def bury_dead_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Mark runs as failed whose process was killed: the UI would show them running for ever. Returns them."""
    unfinished = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    runs = instance.get_runs(dg.RunsFilter(statuses=unfinished))
    dead = [run for run in runs if (name := process_of(run)) and name_of(int(name.split(":")[0])) != name]
    for run in dead:
        instance.report_run_failed(run, "The process that executed this run was killed")
    return dead
