"""The Dagster instance of this checkout: its folder, its quiet tools, and what a killed run left behind."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from filelock import FileLock, Timeout

from ops.core.errors import DataError, PodiumError
from ops.core.processes import name_of
from ops.core.workspace import Workspace

QUIET = {
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # Not telemetry: without it every import of LiteLLM tries to download its price table.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    # MLflow asks for git, and without it GitPython fills a page.
    "GIT_PYTHON_REFRESH": "quiet",
}
"""No tool reports home or says what nobody asked. What the user has set stays."""

CODE_LOCATION = "podium"
"""What the UI calls this code; pyproject.toml says the same to `dagster dev` in the project's folder."""

PROCESS = ".dagster/podium_process"
"""Run tag: the process that executes a run, so that a later one can tell whether it still lives. No page shows it."""


def quiet() -> None:
    """Turn the telemetry of every tool off in this process and its children, and a known warning in this one."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=r"Parameter `\w+` of .* is currently in beta")  # the UI needs them


def prepare(workspace: Workspace) -> None:
    """Make DAGSTER_HOME with the root's dagster.yaml in it and point this process and its children there.

    Raises `DataError` where the root has none.
    """
    settings = workspace.root / "dagster.yaml"
    if not settings.is_file():
        raise DataError(settings, "(file)", "does not exist", "Restore it, or let `podium init` lay it out")
    quiet()
    os.environ["PODIUM_ROOT"] = str(workspace.root)
    os.environ["DAGSTER_HOME"] = str(workspace.dagster_home)
    workspace.dagster_home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(settings, workspace.dagster_home / "dagster.yaml")


@contextmanager
def only_one(workspace: Workspace) -> Iterator[None]:
    """Hold the checkout's lifecycle lock, which this process may hold already.

    Raises `PodiumError` when another process holds it. A killed process holds nothing.
    """
    lock = FileLock(workspace.state / "lifecycle.lock", is_singleton=True)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        message = "another lifecycle of this workspace is running. Wait for its end or stop it"
        raise PodiumError(f"{lock.lock_file}: {message}") from None
    try:
        yield
    finally:
        lock.release()


def this_process() -> dict[str, str]:
    """Run tags: this process; and the code location, without which a job's page does not list the run."""
    return {PROCESS: name_of(os.getpid()), ".dagster/repository": f"__repository__@{CODE_LOCATION}"}


def bury_dead_runs(instance: dg.DagsterInstance) -> int:
    """Mark runs as failed whose process was killed: the UI would show them running for ever.

    Returns how many there were.
    """
    unfinished = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    runs = instance.get_runs(dg.RunsFilter(statuses=unfinished))
    dead = [run for run in runs if (name := run.tags.get(PROCESS)) and name_of(int(name.split(":")[0])) != name]
    for run in dead:
        instance.report_run_failed(run, "The process that executed this run was killed")
    return len(dead)
