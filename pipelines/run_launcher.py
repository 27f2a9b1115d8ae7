"""Runs on a code server, and what became of them when the code server died."""

from __future__ import annotations

from dagster import DagsterError, DagsterRun, DefaultRunLauncher

from assets.dagster_private import CheckRunHealthResult, WorkerStatus


class CodeServerLauncher(DefaultRunLauncher):
    """Dagster's own launcher, which also finds runs whose code server was restarted.

    Dagster's does not look: such a run stays started for ever, and the next pipeline run waits for it. Here the daemon
    asks the code server (`run_monitoring`), and a run that the server does not execute has failed, so that
    `run_retries` begins it again. A server that does not answer says nothing about its runs.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether the daemon may ask after a run."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return FAILED if the code server answers and does not execute the run."""
        client = self._get_grpc_client_for_termination(run.run_id)
        try:
            lost = client is not None and run.run_id not in client.get_current_runs()
        except DagsterError:  # the server is unreachable
            lost = False
        if not lost:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, "its code server was restarted and no longer executes it")
