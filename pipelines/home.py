"""The Dagster instance of this checkout: its folder, its quiet tools, and what a killed run left behind.

What belongs here: preparing a process before it talks to Dagster. What does not: what runs
(`lifecycle`) and what is shown (`terminal`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import psutil
from filelock import FileLock, Timeout

from ops.errors import PodiumError
from ops.workspace import Workspace

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
}
"""No tool reports home. What the user has set stays."""

PID, STARTED = "podium/pid", "podium/started"
"""Run tags: the process that executes a run, so that a later one can tell whether it still lives."""


def quiet() -> None:
    """Turn the telemetry of every tool off in this process and its children."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def prepare(workspace: Workspace) -> None:
    """Make DAGSTER_HOME with the root's dagster.yaml in it and point this process and its children there."""
    quiet()
    os.environ["PODIUM_ROOT"] = str(workspace.root)
    os.environ["DAGSTER_HOME"] = str(workspace.dagster_home)
    workspace.dagster_home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(workspace.root / "dagster.yaml", workspace.dagster_home / "dagster.yaml")


@contextmanager
def only_one(workspace: Workspace) -> Iterator[None]:
    """Hold the checkout's lifecycle lock, which this process may hold already.

    Raises `PodiumError` when another process holds it. A killed process holds nothing.
    """
    lock = FileLock(workspace.state / "lifecycle.lock", is_singleton=True)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        message = "another lifecycle of this checkout is running. Wait for its end or stop it"
        raise PodiumError(f"{lock.lock_file}: {message}") from None
    try:
        yield
    finally:
        lock.release()


def this_process() -> dict[str, str]:
    """Run tags that name this process."""
    return {PID: str(os.getpid()), STARTED: _started(os.getpid())}


def bury_dead_runs(instance: dg.DagsterInstance) -> int:
    """Mark runs as failed whose process was killed, so that the UI does not show them running for ever.

    Returns how many there were.
    """
    open_runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    dead = [run for run in open_runs if PID in run.tags and _started(int(run.tags[PID])) != run.tags.get(STARTED)]
    for run in dead:
        instance.report_run_failed(run, "The process that executed this run was killed")
    return len(dead)


def _started(pid: int) -> str:
    """When that process began; empty when there is none. A pid alone may have been given again."""
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
