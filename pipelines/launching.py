"""Start a job: in this process, as a run that all pages of the UI show, or in the queue of a team's Dagster.

`JobDefinition.execute_in_process` makes runs without the origin of their job, so the timeline, the list of a job's runs
and the re-execute button omit them. Written against Dagster 1.13.27, which has no public import for the parts used
here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.dagster_private import (
    MAX_RETRIES_TAG,
    ExecuteRunWithPlanIterable,
    InMemoryJob,
    LoadableTargetOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    PlanOrchestrationContextManager,
    ReconstructableRepository,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
    create_execution_plan,
    job_execution_iterator,
    orchestration_context_event_generator,
)
from assets.resources import Podium
from ops.core.processes import one_at_a_time
from pipelines.alerts import fail_orphaned_runs_and_alert
from pipelines.ending import signal_received
from pipelines.home import CODE_LOCATION
from pipelines.lifecycle import refuse_beside_another

MODULE, REPOSITORY = "pipelines.definitions", "__repository__"
"""Dagster's location of the code, and its own name for the repository there."""


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
    chosen = frozenset(assets)
    alone = job.as_ephemeral_job(resource_defs={}, input_values={}, asset_selection=chosen or None)
    memory = InMemoryJob(alone)
    kept = instance.get_ref() if instance.is_persistent else None
    plan = create_execution_plan(memory, run_config=run_config, instance_ref=kept)
    run = instance.create_run_for_job(
        job_def=alone,
        run_config=run_config,
        tags={**alone.run_tags, **tags, MAX_RETRIES_TAG: "0"},
        run_id=run_id,
        asset_selection=chosen or None,
        execution_plan=plan,
        remote_job_origin=origin(job.name),
    )
    events = ExecuteRunWithPlanIterable(
        execution_plan=plan,
        iterator=job_execution_iterator,
        execution_context_manager=PlanOrchestrationContextManager(
            context_event_generator=orchestration_context_event_generator,
            job=memory,
            execution_plan=plan,
            dagster_run=run,
            instance=instance,
            run_config=run_config,
            executor_defs=None,
            output_capture=None,
            raise_on_error=True,
        ),
    )
    for _ in events:
        pass
    if signal_received() is not None:  # Dagster forgets a signal that arrives while it closes the run
        raise dg.DagsterExecutionInterruptedError


def origin(job: str) -> RemoteJobOrigin:
    """Return the job's origin as a code server of `podium dev` reports it."""
    target = LoadableTargetOrigin(executable_path=sys.executable, module_name=MODULE)
    location = ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name=CODE_LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, REPOSITORY), job)


def submit(podium: Podium, instance: dg.DagsterInstance, code: dg.Definitions, job: str = "lifecycle") -> str:
    """Put a run of that job into the queue of the instance, whose daemon starts it. Returns the run's id.

    Raises `ConfigError`, and `PodiumError` while another run is unfinished.
    """
    workspace, chosen = podium.load().workspace, code.resolve_job_def(job)
    with one_at_a_time(workspace):  # no run may start between the check and the request
        fail_orphaned_runs_and_alert(workspace, instance)
        refuse_beside_another(instance)
        known = ReconstructableRepository.for_module(MODULE, "defs").get_reconstructable_job(job)
        run = instance.create_run_for_job(
            job_def=chosen,
            run_config=podium.run_config(),
            tags={**chosen.run_tags, **podium.launch_tags()},
            remote_job_origin=origin(job),
            job_code_origin=known.get_python_origin(),
        )
        instance.submit_run(run.run_id, None)  # the queue asks for no workspace
    return run.run_id
