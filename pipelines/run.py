"""One whole lifecycle in this process, or a part of it, shown to a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console

from ops.config import Snapshot
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.planning.requirements import WHOLE_LIFE, Need

NEEDS: dict[str, Sequence[Need]] = {
    "lifecycle": WHOLE_LIFE,
    "train": ("workers", "training"),
    "evaluate": ("workers", "evaluation"),
    "costs": (),
}
"""What each job of `pipelines.lifecycle.JOBS` needs before it may spend."""


def live(workspace: Workspace, recipe: str, seed: int | None = None, job: str = "lifecycle") -> None:
    """Run one of `pipelines.lifecycle.JOBS`. Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    from pipelines.home import prepare

    prepare(workspace)
    snapshot = _snapshot(workspace, recipe, seed, NEEDS[job])  # before anything heavier is imported
    import dagster as dg

    from assets.resources import Podium
    from pipelines.definitions import definitions
    from pipelines.home import bury_dead_runs, only_one, this_process
    from pipelines.summary import print_summary
    from pipelines.terminal import Terminal

    began = time.monotonic()
    podium = Podium(root=str(workspace.root), recipe=recipe, seed=seed).of(snapshot)
    with only_one(workspace), dg.DagsterInstance.get() as instance, Terminal(console) as terminal:
        bury_dead_runs(instance)
        staged = definitions(podium, terminal, {"terminal": terminal.logger()}).resolve_job_def(job)
        run_config = {**podium.run_config(), "loggers": {"terminal": {}}}
        tags = this_process() | podium.launch_tags()
        try:
            staged.execute_in_process(instance=instance, run_config=run_config, tags=tags)
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:  # a check that failed: which and why stands above already
            raise PodiumError(f"{error}\n`podium dev` shows the run with all its events") from error
    print_summary(console, podium, terminal.total, time.monotonic() - began, job)


def _snapshot(workspace: Workspace, recipe: str, seed: int | None, needs: Sequence[Need]) -> Snapshot:
    """What the run is asked to do. Raises `ConfigError`, and `NotReady` with everything that is missing."""
    from ops.grading import configure
    from ops.planning.readiness import check_ready
    from ops.versioning import git_commit
    from ops.workers.providers import check_pools

    snapshot = Snapshot.take(workspace.config, recipe, seed, git_commit(workspace))
    configure(snapshot.recipe.grading, workspace.root)
    if needs:
        check_ready(snapshot.setup(workspace), needs, snapshot.deepspeed)
    if snapshot.recipe.asks_workers:
        check_pools(snapshot.setup(workspace))
    return snapshot
