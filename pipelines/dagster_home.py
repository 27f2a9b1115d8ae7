"""The Dagster instance of this checkout: its folder, quiet tools, and runs left by killed processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.placement import TEAM_VARIABLE
from ops.core.atomic import remove_leftovers, write_text
from ops.core.errors import ConfigError
from ops.core.processes import unique_process_name
from ops.core.settings_files import parse_yaml, read_settings_text
from ops.core.workspace import Workspace
from pipelines.startup import silence_tools

CODE_LOCATION = "podium"
"""The UI's name for this code location; the same as in pyproject.toml, for `dagster dev` in the project's folder."""

PROCESS_TAG = ".dagster/podium_process"
"""Run tag: the process that executes a run, so that a later process can check whether it still runs. No page shows
it."""


def prepare_home(workspace: Workspace) -> None:
    """Make DAGSTER_HOME with the dagster.yaml of the project or of the team, and set it for this process and its
    children.

    If DAGSTER_HOME is set already, it belongs to a machine of a team, and a dagster.yaml in it is not replaced. Raises
    `ConfigError` if the project has no dagster.yaml, or the one in use cannot be read.
    """
    settings = workspace.root / ("config/team/dagster.yaml" if os.environ.get(TEAM_VARIABLE) else "dagster.yaml")
    own = os.environ.get("DAGSTER_HOME") if os.environ.get(TEAM_VARIABLE) else None
    home = Path(own) if own else workspace.dagster_home
    copied = home / "dagster.yaml"
    text = _read_config(copied if own and copied.exists() else settings)
    silence_tools()
    os.environ["PODIUM_ROOT"] = str(workspace.root)
    os.environ["DAGSTER_HOME"] = str(home)
    home.mkdir(parents=True, exist_ok=True)
    # Written atomically: a daemon that reads half of the file uses Dagster's defaults.
    if not copied.is_file() or copied.read_bytes() != text.encode():
        write_text(copied, text)
    remove_leftovers(workspace.data)


def _read_config(file: Path) -> str:
    """Return the text of a dagster.yaml. Raises `ConfigError`."""
    try:
        text = read_settings_text(file)
    except FileNotFoundError:
        remedy = "Restore it, or let `podium init` write it"
        raise ConfigError(file, "", "does not exist", remedy) from None
    if not isinstance(parse_yaml(text, file), dict | None):
        raise ConfigError(file, "", "is not a mapping", "Write the settings of a Dagster instance")
    return text


def open_instance(workspace: Workspace) -> dg.DagsterInstance:
    """Return the instance of a prepared workspace. Raises `ConfigError` if Dagster refuses its dagster.yaml."""
    try:
        return dg.DagsterInstance.get()
    except dg.DagsterInvalidConfigError as error:
        said = str(error.errors[0].message if error.errors else error).partition(" Expected: ")[0]
        file = Path(os.environ["DAGSTER_HOME"]) / "dagster.yaml"
        if not os.environ.get(TEAM_VARIABLE):
            file = workspace.root / "dagster.yaml"
        raise ConfigError(file, "", f"is refused by Dagster ({said.rstrip('.')})", "Correct it") from None


def make_process_tags() -> dict[str, str]:
    """Return run tags: this process, and the code location, without which a job's page does not list the run."""
    return {PROCESS_TAG: unique_process_name(os.getpid()), ".dagster/repository": f"__repository__@{CODE_LOCATION}"}


def find_process(run: dg.DagsterRun) -> str | None:
    """Return the process of a command that executes the run; None for a run that Dagster executes, which may be a retry
    with the same tags."""
    return run.tags.get(PROCESS_TAG) if run.parent_run_id is None else None


def fail_orphaned_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Mark runs of killed processes as failed, which the UI would otherwise show as running, and return them."""
    unfinished = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    runs = instance.get_runs(dg.RunsFilter(statuses=unfinished))
    dead = [run for run in runs if (name := find_process(run)) and unique_process_name(int(name.split(":")[0])) != name]
    for run in dead:
        instance.report_run_failed(run, "The process that executed this run was killed")
    return dead
