"""The private names of Dagster that Podium uses, so that a new version of Dagster needs a check of this module only."""

from __future__ import annotations

from dagster._core.definitions.job_base import InMemoryJob as InMemoryJob
from dagster._core.definitions.reconstruct import ReconstructableRepository as ReconstructableRepository
from dagster._core.errors import DagsterPipesExecutionError as DagsterPipesExecutionError
from dagster._core.errors import DagsterUserCodeUnreachableError as DagsterUserCodeUnreachableError
from dagster._core.execution.api import ExecuteRunWithPlanIterable as ExecuteRunWithPlanIterable
from dagster._core.execution.api import create_execution_plan as create_execution_plan
from dagster._core.execution.api import job_execution_iterator as job_execution_iterator
from dagster._core.execution.context_creation_job import (
    PlanOrchestrationContextManager as PlanOrchestrationContextManager,
)
from dagster._core.execution.context_creation_job import (
    orchestration_context_event_generator as orchestration_context_event_generator,
)
from dagster._core.launcher import CheckRunHealthResult as CheckRunHealthResult
from dagster._core.launcher import WorkerStatus as WorkerStatus
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin as ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.remote_origin import RemoteJobOrigin as RemoteJobOrigin
from dagster._core.remote_origin import RemoteRepositoryOrigin as RemoteRepositoryOrigin
from dagster._core.run_coordinator import QueuedRunCoordinator as QueuedRunCoordinator
from dagster._core.run_coordinator import SubmitRunContext as SubmitRunContext
from dagster._core.storage.compute_log_manager import CapturedLogContext as CapturedLogContext
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager as LocalComputeLogManager
from dagster._core.storage.tags import MAX_RETRIES_TAG as MAX_RETRIES_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin as LoadableTargetOrigin
from dagster._serdes import ConfigurableClassData as ConfigurableClassData

WRITTEN_AGAINST = {"dagster": "1.13.27"}
