"""Start a job: in this process, or in the queue of a team's Dagster.

A run in this process is one of `JobDefinition.execute_in_process`. The Dagster UI shows it on the pages of all runs, of
its job and of its assets. Such a run has no code server, so the UI neither shows it on the timeline nor offers to
execute it again: the same command continues with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

import dagster as dg

from assets.resources import RunResource
from ops.core.errors import PodiumError
from ops.core.processes import hold_run_lock
from pipelines.alerts import fail_orphaned_runs_and_alert
from pipelines.dagster_home import CODE_LOCATION
from pipelines.lifecycle import require_no_unfinished_run
from pipelines.termination import find_received_signal

MODULE = "pipelines.definitions"
"""Dagster's location of the code."""
LAUNCH_TIMEOUT_S = 300


def execute_in_process(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    run_id: str,
    run_config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Sequence[dg.AssetKey] = (),
) -> None:
    """Execute the job, or only `assets` of it. Raises what a step raises.

    The daemon does not retry such a run: the executing process decides about retries.
    """
    job.execute_in_process(
        run_config=run_config,
        instance=instance,
        run_id=run_id,
        tags={**tags, "dagster/max_retries": "0"},
        asset_selection=assets or None,
    )
    if find_received_signal() is not None:  # Dagster forgets a signal that arrives while it closes the run
        raise dg.DagsterExecutionInterruptedError


def submit_run(podium: RunResource, instance: dg.DagsterInstance, job: str = "lifecycle") -> str:
    """Put a run of that job into the queue of the instance, whose daemon starts it. Returns the run's id.

    `dagster job launch` loads the code once more in a process of its own, which takes several seconds. Raises
    `ConfigError`, and `PodiumError` while another run is unfinished or if Dagster does not accept the run.
    """
    workspace, run_id = podium.load_setup().workspace, str(uuid4())
    with hold_run_lock(workspace):  # no run may start between the check and the request
        fail_orphaned_runs_and_alert(workspace, instance)
        require_no_unfinished_run(instance)
        location = {"module_name": MODULE, "attribute": "defs", "location_name": CODE_LOCATION}
        with NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            json.dump({"load_from": [{"python_module": location}]}, file)  # YAML includes JSON
            file.flush()
            command = [
                sys.executable, "-m", "dagster", "job", "launch", "--workspace", file.name, "--job", job,
                "--run-id", run_id, "--config-json", json.dumps(podium.make_run_config()),
                "--tags", json.dumps(podium.make_launch_tags()),
            ]  # fmt: skip
            _run_launch_command(command, instance)
    return run_id


def _run_launch_command(command: Sequence[str], instance: dg.DagsterInstance) -> None:
    home = {"DAGSTER_HOME": instance.root_directory}
    try:
        done = subprocess.run(
            command, env=os.environ | home, capture_output=True, text=True, timeout=LAUNCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        said = f"no answer within {LAUNCH_TIMEOUT_S} s"
    else:
        if done.returncode == 0:
            return
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit {done.returncode}")
    raise PodiumError(f"`dagster job launch` failed: {said.strip()}. The run was not started; try it once more")
