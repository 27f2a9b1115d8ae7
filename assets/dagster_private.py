"""The private names of Dagster that Podium uses, so that a new version of Dagster needs a check of this module only."""

from __future__ import annotations

# `PipesSubprocessClient` raises it if the trainer ends with an exit code other than 0. It is no `dg.DagsterError`.
from dagster._core.errors import DagsterPipesExecutionError as DagsterPipesExecutionError

# What a run launcher returns if the daemon asks whether a run's process lives. `DefaultRunLauncher`, the base class of
# ours, is public; the types of this method's result are not.
from dagster._core.launcher import CheckRunHealthResult as CheckRunHealthResult
from dagster._core.launcher import WorkerStatus as WorkerStatus

# The base class of `pipelines.step_output`, which keeps the output of steps for the UI, and what its method yields.
from dagster._core.storage.compute_log_manager import CapturedLogContext as CapturedLogContext
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager as LocalComputeLogManager

WRITTEN_AGAINST = {"dagster": "1.13.27"}
