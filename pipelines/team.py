"""A team's pipeline run: the job `lifecycle`, or a part of it, in the queue of the team's Dagster."""

import dagster as dg

from assets.dagster_private import ReconstructableRepository
from assets.resources import Podium
from ops.core.processes import one_at_a_time
from pipelines.alerts import fail_orphaned_runs_and_alert
from pipelines.in_process import MODULE, origin
from pipelines.lifecycle import refuse_beside_another


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
