"""One whole lifecycle in this process, or a part of it, shown to a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from ops.config import Snapshot
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.planning.requirements import WHOLE_LIFE, Need

if TYPE_CHECKING:
    import dagster as dg

    from assets.resources import Podium
    from pipelines.terminal import Terminal

NEEDS: dict[str, Sequence[Need]] = {
    "lifecycle": WHOLE_LIFE,
    "train": ("workers", "training"),
    "evaluate": ("workers", "evaluation"),
    "costs": (),
}
"""What each job of `pipelines.lifecycle.JOBS` needs before it may spend."""


def live(workspace: Workspace, recipe: str, seed: int | None = None, job: str = "lifecycle") -> None:
    """Run one of `pipelines.lifecycle.JOBS`. Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C."""
    console, began = _console(), time.monotonic()
    with _here(workspace, recipe, seed, NEEDS[job], console) as here:
        here.execute(here.definitions.resolve_job_def(job))
    from pipelines.summary import print_summary

    print_summary(console, here.podium, here.terminal.total, time.monotonic() - began, job)


def materialize(workspace: Workspace, recipe: str, seed: int | None, assets: Sequence[str]) -> None:
    """Materialize assets without partitions, and nothing before them. Raises as `live` does."""
    import dagster as dg

    with _here(workspace, recipe, seed, (), _console()) as here:
        chosen = [dg.AssetKey(name) for name in assets]
        here.execute(here.definitions.resolve_implicit_global_asset_job_def(), chosen)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class _Here:
    """What it takes to execute a job in this process, shown to a person."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    podium: Podium
    terminal: Terminal

    def execute(self, job: dg.JobDefinition, assets: Sequence[dg.AssetKey] | None = None) -> None:
        """Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C."""
        import dagster as dg

        from pipelines.home import this_process

        run_config = {**self.podium.run_config(), "loggers": {"terminal": {}}}
        tags = this_process() | self.podium.launch_tags()
        try:
            job.execute_in_process(instance=self.instance, run_config=run_config, tags=tags, asset_selection=assets)
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:  # a check that failed: which and why stands above already
            raise PodiumError(f"{error}\n`podium dev` shows the run with all its events") from error


@contextmanager
def _here(
    workspace: Workspace, recipe: str, seed: int | None, needs: Sequence[Need], console: Console
) -> Iterator[_Here]:
    from pipelines.home import prepare

    prepare(workspace)
    snapshot = _snapshot(workspace, recipe, seed, needs)  # before anything heavier is imported
    import dagster as dg

    from assets.resources import Podium
    from pipelines.definitions import definitions
    from pipelines.home import bury_dead_runs, only_one
    from pipelines.terminal import Terminal

    podium = Podium(root=str(workspace.root), recipe=recipe, seed=seed).of(snapshot)
    with only_one(workspace), dg.DagsterInstance.get() as instance, Terminal(console) as terminal:
        bury_dead_runs(instance)
        yield _Here(definitions(podium, terminal, {"terminal": terminal.logger()}), instance, podium, terminal)


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
