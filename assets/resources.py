"""The Dagster resources of all assets: the checkout with its recipe, and the receiver of progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, cast

import dagster as dg
from filelock import FileLock
from pydantic import ConfigDict, Field, PrivateAttr

from assets import placement
from assets.partitions import tag_recipe_benchmarks
from ops.benchmarks.graded import configure_grading
from ops.config import Setup, Snapshot, split_pool, with_pool
from ops.core.errors import ConfigError
from ops.core.processes import hold_run_lock
from ops.core.progress import RemainingTime
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import serve_pool
from ops.planning.estimate import Cost
from ops.spending.bookings import format_usd
from ops.training.run.training_run import RunResult
from ops.versioning import git_commit
from ops.workers.client import CallCounts

SNAPSHOT_TAG = "podium/snapshot"
"""The run tag with the key of the snapshot from which a run works, a file in `.podium/snapshots`."""
EXCLUSIVE_RUN_TAGS = {"podium/pipeline_run": "true"}
"""The run tag of the jobs that exclude each other, because they write the same files."""
RETRAINING_JOB = "retraining"
"""The name of the job that does the work which a change of the champion's pool requires."""


class OnProgress(Protocol):
    """A callback of long operations. It receives the units done, the total units, and a note about the current work."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None: ...


@contextmanager
def serve_local_workers(setup: Setup, needed: bool = True) -> Iterator[None]:
    """Serve the workers that Podium hosts itself while the block is executed. Nothing is started unless `needed`."""
    with ExitStack() as stack:
        for pool in setup.all_pools.values() if needed and setup.recipe.can_call_workers else ():
            stack.enter_context(serve_pool(pool, setup.workspace))
        yield


class RunResource(dg.ConfigurableResource):
    """The checkout and the recipe of a run; during a run, also the snapshot that the run reads.

    The first process of a run takes the snapshot and writes its key into the run's tags, unless the process that
    launched the run has done so (`make_launch_tags`). Later processes and retries of the run read that snapshot.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)  # launchpads show them

    root: str | None = None
    """The project's folder, if it is not the folder of this process."""
    recipe: str = "quickstart"
    """A file in config/recipes, without `.yaml`."""
    pool: str | None = None
    """Replaces the recipe's pool: a file in config/pools, without `.yaml`."""
    seed: int | None = None
    """Replaces the recipe's seed."""
    _run_snapshot: Snapshot | None = PrivateAttr(default=None)
    _lock: object = PrivateAttr(default=None)
    """The checkout's lock, released together with this object: sensors cannot use a resource with a teardown."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Find the snapshot of the run, or take it. Raises `ConfigError` and `DataError`, and `PodiumError` while
        another process of this checkout executes a pipeline run."""
        if context.run is None or context.instance is None:
            return
        if EXCLUSIVE_RUN_TAGS.items() <= context.run.tags.items() and placement.is_single_process():
            self._lock = hold_run_lock(self.find_workspace())
        folder = self.find_workspace().snapshots
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{context.run.run_id}.lock"):  # steps may begin at once, in several processes
            if key := _find_snapshot_key(context.instance, context.run):
                self._run_snapshot = Snapshot.read(folder, key)
                return
            tags = self._make_missing_tags(context.instance, context.run)
            context.instance.add_run_tags(context.run.run_id, tags)
            cast("dict[str, str]", context.run.tags).update(tags)  # steps of this process read their range here
        self._run_snapshot = Snapshot.read(folder, tags[SNAPSHOT_TAG])
        if context.log is not None:
            context.log.info(f"this run works from {self._run_snapshot}; in full: {folder / tags[SNAPSHOT_TAG]}.json")

    def _make_missing_tags(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> dict[str, str]:
        """Return `make_launch_tags` for an untagged run.

        A run of `retraining` that a person starts is about the champion, whatever recipe the launchpad names.
        """
        if run.job_name != RETRAINING_JOB:
            return self.make_launch_tags()
        from assets.pool_change import find_pending_change

        return find_pending_change(self, self.find_workspace(), instance).tags

    def bind_snapshot(self, snapshot: Snapshot) -> RunResource:
        """Return the same resource bound to that snapshot."""
        other = self.model_copy()
        other._run_snapshot = snapshot
        return other

    def load_snapshot_of_run(self, instance: dg.DagsterInstance, run_id: str) -> Snapshot | None:
        """Return the snapshot that a run read; None if it had none. Raises `DataError`."""
        run = instance.get_run_by_id(run_id)
        key = _find_snapshot_key(instance, run) if run is not None else None
        return Snapshot.read(self.find_workspace().snapshots, key) if key else None

    def for_new_run(self, snapshot: Snapshot) -> RunResource:
        """Return the resource for a new run of the snapshot's recipe and seed, which reads the present files."""
        # The values of `offer_recipes` are not plain strings, about which pydantic would warn.
        offered = {str(name): name for name in type(self.recipe)} if isinstance(self.recipe, StrEnum) else {}
        recipe, pool = split_pool(snapshot.recipe_file)
        other = self.model_copy(
            update={"recipe": offered.get(recipe, recipe), "pool": pool or None, "seed": snapshot.seed}
        )
        other._run_snapshot = None
        return other

    def get_snapshot(self) -> Snapshot:
        """Return the snapshot of the run; outside of a run, a snapshot of the present files. Raises `ConfigError`."""
        if self._run_snapshot is not None:
            return self._run_snapshot
        workspace = self.find_workspace()
        recipe = with_pool(str(self.recipe), self.pool)
        return Snapshot.capture(workspace.config, recipe, self.seed, git_commit(workspace))

    def load_setup(self) -> Setup:
        """Load recipe, pool and workspace from the snapshot. Raises `ConfigError`."""
        snapshot = self.get_snapshot()
        workspace = Workspace(self.find_workspace().root, rehearsal=snapshot.recipe.replay is not None)
        configure_grading(snapshot.recipe, workspace.root, workspace.cache)
        return snapshot.setup(workspace)

    def make_launch_tags(self) -> dict[str, str]:
        """Store the snapshot, and return the tags of a run that is to read it. Raises `ConfigError`."""
        snapshot = self.get_snapshot()
        snapshot.write(self.find_workspace().snapshots)
        return {
            SNAPSHOT_TAG: snapshot.key,
            "podium/recipe": f"{snapshot.recipe_file}, seed {snapshot.recipe.seed}",
            "podium/pool": f"{snapshot.pool.name} {snapshot.pool.answers_key} {snapshot.pool.prices_key}",
            "podium/commit": snapshot.git_commit,
            **tag_recipe_benchmarks(snapshot.recipe),
        }

    def make_run_config(self) -> dict[str, Any]:
        """Return the run configuration that gives this resource to another run."""
        return {"resources": {"podium": {"config": self.model_dump(mode="json", exclude_none=True)}}}

    def find_workspace(self) -> Workspace:
        """Return the checkout, without reading any of its files. Raises `PodiumError` outside of a checkout."""
        if self.root and (Path(self.root) / "config").is_dir():
            return Workspace(Path(self.root))
        return Workspace.find()  # works for runs recorded before the checkout was moved


def offer_recipes(podium: RunResource) -> type[RunResource]:
    """Return a subclass of the resource whose `recipe` is one of the existing files, which a launchpad offers and
    checks.

    New files are offered after the code location was reloaded. Raises `ConfigError` if there are no files.
    """
    folder = podium.find_workspace().config / "recipes"
    files = sorted(file.stem for file in folder.glob("*.yaml"))
    if not files:
        raise ConfigError(folder, "", "holds no recipe", "Restore it, or let `podium init` lay it out")
    names = StrEnum("Recipe", {name: name for name in files})  # type: ignore[misc]
    default = names(podium.recipe) if podium.recipe in files else names(files[0])
    return type("Podium", (RunResource,), {
        "__doc__": "The recipe of the run, and its seed.",
        "__module__": __name__,
        "__annotations__": {"recipe": names},
        "model_config": ConfigDict(use_attribute_docstrings=False),  # it has no source to read
        "recipe": Field(default, description=RunResource.model_fields["recipe"].description),
    })  # fmt: skip


def _find_snapshot_key(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Return the key in the run's tags, or in the tags of the run that it retries."""
    for run_id in (run.run_id, run.root_run_id):
        known = instance.get_run_by_id(run_id) if run_id else None
        if known is not None and (key := known.tags.get(SNAPSHOT_TAG)):
            return key
    return None


def count_calls_of_run(result: RunResult) -> CallCounts:
    """Return the numbers of worker calls in the last attempt of a training run."""
    return CallCounts(
        live=result.live_calls, cached=result.cached_calls, usd=result.spent_usd, replayed=result.replayed_calls
    )


class Reporter(Protocol):
    """Receives the progress of a stage, and the worker calls that it made."""

    def begin_progress(self, context: dg.AssetExecutionContext) -> OnProgress:
        """Return a callback for one long operation of the asset that `context` runs."""
        ...

    def count_calls(self, context: dg.AssetExecutionContext, calls: CallCounts) -> None:
        """Count worker calls of the asset."""
        ...

    def report_estimate(self, context: dg.AssetExecutionContext, estimate: Cost) -> None:
        """Report the expected cost of the asset before it spends anything."""
        ...


class LogReporter:
    """Report into the run's event log, which the Dagster UI shows."""

    def begin_progress(self, context: dg.AssetExecutionContext) -> OnProgress:
        """Log the lines of `RemainingTime`."""
        pace = RemainingTime()

        def report(done: int, total: int, note: str = "", /) -> None:
            if line := pace.next_line(done, total, note):
                context.log.info(line)

        return report

    def report_estimate(self, context: dg.AssetExecutionContext, estimate: Cost) -> None:
        """Log one line."""
        context.log.info(f"before anything is spent: {estimate}")

    def count_calls(self, context: dg.AssetExecutionContext, calls: CallCounts) -> None:
        """Log one line."""
        context.log.info(
            f"worker calls: {calls.live} live, {calls.cached} cached, {calls.replayed} replayed, "
            f"{calls.failed} failed, {format_usd(calls.usd)}"
        )
