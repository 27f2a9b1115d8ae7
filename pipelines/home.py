"""The Dagster instance of this checkout: its folder, its quiet tools, and what a killed run left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from filelock import FileLock, Timeout

from assets.placement import TEAM
from ops.core.atomic import sweep, write_text
from ops.core.errors import DataError, PodiumError
from ops.core.moved import settle
from ops.core.processes import name_of
from ops.core.workspace import Workspace
from pipelines.quiet import quiet

CODE_LOCATION = "podium"
"""What the UI calls this code; pyproject.toml says the same to `dagster dev` in the project's folder."""

PROCESS = ".dagster/podium_process"
"""Run tag: the process that executes a run, so that a later one can tell whether it still lives. No page shows it."""


def prepare(workspace: Workspace) -> None:
    """Make DAGSTER_HOME with the root's dagster.yaml, or a team's, in it and point this process and its children
    there. A folder that DAGSTER_HOME names already is a team's machine's own: a dagster.yaml in it stays as it is.

    Raises `DataError` where the root has none.
    """
    settings = workspace.root / ("config/team/dagster.yaml" if os.environ.get(TEAM) else "dagster.yaml")
    if not settings.is_file():
        raise DataError(settings, "(file)", "does not exist", "Restore it, or let `podium init` lay it out")
    quiet()
    os.environ["PODIUM_ROOT"] = str(workspace.root)
    own = os.environ.get("DAGSTER_HOME") if os.environ.get(TEAM) else None
    home = Path(own) if own else workspace.dagster_home
    os.environ["DAGSTER_HOME"] = str(home)
    home.mkdir(parents=True, exist_ok=True)
    text, own_settings = settings.read_text(encoding="utf-8"), home / "dagster.yaml"
    # Whole or not at all: a daemon that reads half of it takes Dagster's defaults.
    if not own_settings.is_file() or (own is None and own_settings.read_text(encoding="utf-8") != text):
        write_text(own_settings, text)
    settle(workspace)
    sweep(workspace.data)


@contextmanager
def only_one(workspace: Workspace) -> Iterator[None]:
    """Hold the checkout's lifecycle lock, which this process may hold already.

    Raises `PodiumError` when another process holds it. A killed process holds nothing.
    """
    lock = FileLock(workspace.state / "lifecycle.lock", is_singleton=True)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        message = "another lifecycle of this workspace is running. Wait for its end or stop it"
        raise PodiumError(f"{lock.lock_file}: {message}") from None
    with held:
        yield


def this_process() -> dict[str, str]:
    """Run tags: this process; and the code location, without which a job's page does not list the run."""
    return {PROCESS: name_of(os.getpid()), ".dagster/repository": f"__repository__@{CODE_LOCATION}"}


def bury_dead_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Mark runs as failed whose process was killed: the UI would show them running for ever. Returns them."""
    unfinished = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    runs = instance.get_runs(dg.RunsFilter(statuses=unfinished))
    dead = [run for run in runs if (name := run.tags.get(PROCESS)) and name_of(int(name.split(":")[0])) != name]
    for run in dead:
        instance.report_run_failed(run, "The process that executed this run was killed")
    return dead
