"""The queue of runs, and the two jobs that bypass it.

A pipeline run takes hours, and a rollback of a bad champion must not wait for its end. Changing the champion is safe
beside any other run, because the change holds the store's own lock (`ops/release/lock.py`).
"""

from dagster import DagsterRun, DagsterRunStatus, QueuedRunCoordinator, SubmitRunContext

UNQUEUED_JOBS = ("promote", "rollback")
"""The jobs that start when they are launched, without the daemon and beside any other run."""


class RunQueue(QueuedRunCoordinator):
    """Dagster's queue for all other jobs; dagster.yaml has the number of concurrent runs."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Start the run, or queue it."""
        run = context.dagster_run
        if run.job_name in UNQUEUED_JOBS and run.status == DagsterRunStatus.NOT_STARTED:
            return self._instance.launch_run(run.run_id, context.workspace)
        return super().submit_run(context)
