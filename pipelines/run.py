"""Execute a pipeline run, or a part of it, in this process, and show it to a person."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rich.console import Console

from ops.config import Snapshot, load_alerts, split_pool
from ops.core.errors import PodiumError, iterate_causes
from ops.core.workspace import Workspace
from ops.core.workspace_parts import record_parts
from ops.planning.requirements import ALL_PARTS, RunPart
from pipelines.confirmation import check_workspace, confirm_run

if TYPE_CHECKING:
    import dagster as dg

    from assets.resources import RunResource
    from pipelines.terminal import Terminal

NEEDS_OF_JOB: dict[str, Sequence[RunPart]] = {
    "lifecycle": ALL_PARTS,
    "precache": ALL_PARTS,
    "train": ("workers", "training"),
    "evaluate": ("workers", "evaluation"),
    "costs": (),
}
"""The parts of a pipeline run whose requirements must be met before each job of `pipelines.lifecycle.JOBS`."""


def run_job(
    workspace: Workspace,
    recipe: str,
    seed: int | None = None,
    job: str = "lifecycle",
    full: bool = False,
    yes: bool = True,
) -> bool:
    """Execute one of `pipelines.lifecycle.JOBS`. Return whether the gate did not promote a challenger.

    With `full`, the summary shows each benchmark. Unless `yes` is given, a person is asked before paid workers are
    called. Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C.
    """
    console, began = _console(), time.monotonic()
    with open_session(workspace, recipe, seed, NEEDS_OF_JOB[job], console, yes) as place:
        place.execute(place.definitions.resolve_job_def(job))
    from pipelines.run_output import print_summary

    return print_summary(console, place.resource, place.terminal.total, time.monotonic() - began, job, full)


def materialize_assets(
    workspace: Workspace,
    recipe: str,
    seed: int | None,
    assets: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Materialize assets without their upstream assets. `settings` maps an asset's name to its options.

    `partitions` are those of partitioned assets, as they follow each other there. Raises the errors of `run_job`.
    """
    import dagster as dg

    from assets.partitions import tag_range

    with open_session(workspace, recipe, seed, (), _console()) as place:
        job = place.definitions.resolve_implicit_global_asset_job_def()
        tags = tag_range(partitions) if partitions else {}
        place.execute(job, [dg.AssetKey(name) for name in assets], tags, settings)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class RunSession:
    """What is needed to execute a job in this process and to show it to a person."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    resource: RunResource
    terminal: Terminal

    def with_resource(self, podium: RunResource) -> RunSession:
        """Return the same objects with another resource."""
        return replace(self, resource=podium)

    def execute(
        self,
        job: dg.JobDefinition,
        assets: Sequence[dg.AssetKey] | None = None,
        tags: Mapping[str, str] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Execute a job; send an alert if the run fails, or if it is
        stopped without a terminal (`pipelines/alerts.py`).

        `tags`: additional run tags; `settings`: op's name → its options.
        Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C.
        """
        import dagster as dg

        from pipelines.dagster_home import make_process_tags
        from pipelines.launching import execute_in_process

        run_id = str(uuid4())
        run_config = {**self.resource.make_run_config(), "loggers": {"terminal": {}}}
        run_config |= {"ops": {name: {"config": dict(each)} for name, each in (settings or {}).items()}}
        tags = make_process_tags() | self.resource.make_launch_tags() | dict(tags or {})
        try:
            execute_in_process(job, self.instance, run_id=run_id, run_config=run_config, tags=tags, assets=assets or ())
        except dg.DagsterExecutionInterruptedError:
            if not _is_attended():
                self._send_alert(run_id)
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:  # a failed check: its name and reason have been printed already
            self._send_alert(run_id)
            if known := next((each for each in iterate_causes(error) if isinstance(each, PodiumError)), None):
                raise known from error  # of a resource, around whose error Dagster puts its own
            raise PodiumError(f"{error}\n`podium dev` shows the run with all its events") from error
        except Exception:
            self._send_alert(run_id)
            raise
        from pipelines.alerts import close_alerts_of_run

        if run := self.instance.get_run_by_id(run_id):
            close_alerts_of_run(self.resource.find_workspace(), run)

    def _send_alert(self, run_id: str) -> None:
        from pipelines.alerts import alert_on_failed_run

        if run := self.instance.get_run_by_id(run_id):
            alert_on_failed_run(self.resource.find_workspace(), self.instance, run)


@contextmanager
def open_session(
    workspace: Workspace, recipe: str, seed: int | None, needs: Sequence[RunPart], console: Console, yes: bool = True
) -> Iterator[RunSession]:
    """Yield the means to execute a job, once all requirements are met: the checkout's lock is held, and the recipe's
    snapshot is taken.

    Unless `yes` is given, a person is asked before paid workers are called. Raises `PodiumError`. An unattended run
    that does not start also sends an alert.
    """
    with ExitStack() as stack:
        try:
            place = _open_session(stack, workspace, recipe, seed, needs, console, yes)
        except PodiumError as error:
            _alert_if_unattended(workspace, recipe, error)
            raise
        yield place


def _open_session(
    stack: ExitStack,
    workspace: Workspace,
    recipe: str,
    seed: int | None,
    needs: Sequence[RunPart],
    console: Console,
    yes: bool,
) -> RunSession:
    from pipelines.dagster_home import prepare_home

    prepare_home(workspace)
    snapshot = take_snapshot(workspace, recipe, seed, needs)  # before heavier modules are imported
    confirm_run(snapshot.setup(workspace), yes)
    stack.callback(record_parts, workspace)

    from assets.placement import TEAM_VARIABLE
    from assets.resources import RunResource
    from ops.core.processes import hold_run_lock
    from pipelines.alerts import fail_orphaned_runs_and_alert
    from pipelines.dagster_home import open_instance
    from pipelines.definitions import make_definitions
    from pipelines.lifecycle import require_no_unfinished_run
    from pipelines.terminal import Terminal

    name, pool = split_pool(recipe)
    podium = RunResource(root=str(workspace.root), recipe=name, pool=pool or None, seed=seed).bind_snapshot(snapshot)
    stack.enter_context(hold_run_lock(workspace))
    instance = stack.enter_context(open_instance(workspace))
    terminal = stack.enter_context(Terminal(console))
    fail_orphaned_runs_and_alert(workspace, instance)
    if os.environ.get(TEAM_VARIABLE):
        require_no_unfinished_run(instance)
    return RunSession(
        make_definitions(podium, terminal, {"terminal": terminal.make_logger()}), instance, podium, terminal
    )


def _alert_if_unattended(workspace: Workspace, recipe: str, error: PodiumError) -> None:
    from ops.alerts import notify
    from ops.alerts.catalogue import RUN_NOT_STARTED

    if not _is_attended():
        again = shlex.join(["podium", *sys.argv[1:]])
        notify(
            workspace,
            RUN_NOT_STARTED.make_notice(
                f"recipe {recipe} did not begin", str(error), subject=recipe, the_same_command=again
            ),
        )


def _is_attended() -> bool:
    """Return whether a person sees the output of this process, which is not so under cron."""
    return sys.stderr.isatty()


def take_snapshot(workspace: Workspace, recipe: str, seed: int | None, needs: Sequence[RunPart]) -> Snapshot:
    """Take the snapshot that the run uses.

    Raises `ConfigError`, also for settings of alerts, `PodiumError` if a part of the workspace is missing, and
    `NotReady` with all missing requirements.
    """
    from ops.benchmarks.graded import configure_grading
    from ops.core.servers import check_addresses
    from ops.planning.requirements import check_ready
    from ops.versioning import git_commit
    from ops.workers.pool_checks import check_pools

    check_addresses(mlflow=not workspace.rehearsal)
    load_alerts(workspace.config)
    snapshot = Snapshot.capture(workspace.config, recipe, seed, git_commit(workspace))
    configure_grading(snapshot.recipe, workspace.root, workspace.cache)
    if needs:
        check_workspace(snapshot.setup(workspace))
        check_ready(snapshot.setup(workspace), needs, snapshot.deepspeed)
    if snapshot.recipe.can_call_workers:
        check_pools(snapshot.setup(workspace))
    return snapshot
