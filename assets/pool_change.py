"""Find the change of the champion's pool that still needs work: the difference between the pool that was last handled
and the current one."""

from __future__ import annotations

from typing import NamedTuple

import dagster as dg

from assets.resources import RETRAINING_JOB, RunResource
from ops.config import Pool, Snapshot
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.retraining.champion import Champion, load_champion
from ops.retraining.retraining_plan import RetrainingPlan
from ops.retraining.standing import plan_required_work

HANDLING_JOBS = ("lifecycle", "costs", RETRAINING_JOB)
"""Jobs whose success means that a pool's change has been handled."""
PLAN_TAG = "plan"
"""Run tag: the plan of the change."""
CAUSE_TAG = ".dagster/podium_cause"
"""Run tag, which no page shows: what started the run, such as the sensor."""
CHANGE_TAG = ".dagster/podium_change"
"""Run tag, which no page shows: the champion's version, the last run that handled its pool, and the keys of the current
pool."""
MAX_SEARCHED_RUNS = 50
"""How many runs of a job are searched for one of the champion's recipe."""


class PendingChange(NamedTuple):
    """A change of the champion's pool, according to the present files."""

    podium: RunResource
    """The resource with the champion's recipe and seed, bound to the snapshot."""
    snapshot: Snapshot
    """The snapshot, which includes the change."""
    plan: RetrainingPlan
    after: str
    """The run that last handled the pool; empty if that was the champion's own training."""

    @property
    def key(self) -> str:
        """Return a key that is the same whenever the same change is observed."""
        change = self.snapshot.change
        assert change is not None
        pool = self.snapshot.pool
        return f"{change.version} {self.after or 'trained'} {pool.answers_key}:{pool.prices_key}"

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of a run for this change: the snapshot, the change and its plan."""
        return {**self.podium.make_launch_tags(), CHANGE_TAG: self.key, PLAN_TAG: str(self.plan)}


class NoChampionError(PodiumError):
    """There is no champion that could be retrained."""


def get_champion(workspace: Workspace) -> Champion:
    """Return the champion with what retraining needs of it. Raises `NoChampionError` and `DataError`."""
    if (known := load_champion(workspace)) is None:
        raise NoChampionError("there is no champion: `podium run` trains and promotes one")
    return known


def find_pending_change(podium: RunResource, workspace: Workspace, instance: dg.DagsterInstance) -> PendingChange:
    """Return the change of the pool that needs work. Its plan is empty if nothing needs work.

    Raises `NoChampionError`, `ConfigError` (for example, while a person edits a file of the pool) and `DataError`.
    """
    known = get_champion(workspace)
    now = podium.for_new_run(known.snapshot)
    before, after = find_handled_pool(now, instance, known)
    change = known.make_change(before)
    snapshot = now.get_snapshot().model_copy(update={"change": change})
    return PendingChange(now.bind_snapshot(snapshot), snapshot, plan_required_work(snapshot), after)


def find_handled_pool(podium: RunResource, instance: dg.DagsterInstance, champion: Champion) -> tuple[Pool, str]:
    """Return the pool of the last complete and successful run of the champion's recipe, and the run's id. Without such
    a run, this is the pool of the champion's training."""
    ended = [
        record
        for job in HANDLING_JOBS
        for record in instance.get_run_records(
            dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS]), limit=MAX_SEARCHED_RUNS
        )
        if not record.dagster_run.asset_selection
    ]
    for record in sorted(ended, key=lambda record: record.create_timestamp, reverse=True):
        run_id = record.dagster_run.run_id
        snapshot = podium.load_snapshot_of_run(instance, run_id)
        if snapshot is not None and _has_same_pool(snapshot, champion.snapshot):
            return snapshot.pool, run_id
    return champion.snapshot.pool, ""


def _has_same_pool(one: Snapshot, other: Snapshot) -> bool:
    return (one.recipe_file, one.recipe.seed) == (other.recipe_file, other.recipe.seed)
