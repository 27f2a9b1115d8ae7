"""The queue of runs, and the two jobs that do not wait in it.

A pipeline run takes hours, and a rollback of a bad champion cannot wait for its end. Moving the champion is safe
beside any other run: the move holds the store's own lock (`ops/release/lock.py`).
"""

from dagster import DagsterRun, DagsterRunStatus

from assets.dagster_private import QueuedRunCoordinator, SubmitRunContext

AT_ONCE = ("promote", "rollback")
"""The jobs that start when they are launched, whatever runs, and without the daemon."""


class RunQueue(QueuedRunCoordinator):
    """Dagster's own queue for every other job; dagster.yaml has the number of concurrent runs."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Start it, or let it wait."""
        run = context.dagster_run
        if run.job_name in AT_ONCE and run.status == DagsterRunStatus.NOT_STARTED:
            return self._instance.launch_run(run.run_id, context.workspace)
        return super().submit_run(context)
