"""Which change of the champion's pool is to be dealt with: the pool that was dealt with last, and the one there is."""

from __future__ import annotations

from typing import NamedTuple

import dagster as dg

from assets.resources import RETRAINING, Podium
from ops.config import Pool, Snapshot
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.retraining.champion import Champion, champion
from ops.retraining.plan import RetrainingPlan
from ops.retraining.standing import required

DEALING = ("lifecycle", "costs", RETRAINING)
"""Jobs after whose success a pool has been dealt with."""
CHANGE = "podium/change"
"""Run tag: the champion's version, the run that dealt with its pool last, the pool that there is."""
LOOKED_AT = 50
"""Runs of a job that are looked through for one of the champion's recipe."""


class Due(NamedTuple):
    """A change of the champion's pool, as the files are now."""

    podium: Podium
    """Of the champion's recipe and seed, working from the snapshot."""
    snapshot: Snapshot
    """With the change in it."""
    plan: RetrainingPlan
    after: str
    """The run that dealt with the pool last; empty: the champion's own training did."""

    @property
    def key(self) -> str:
        """A key that is equal for two observations of the same change."""
        change = self.snapshot.change
        assert change is not None
        pool = self.snapshot.pool
        return f"{change.version} {self.after or 'trained'} {pool.answers_key}:{pool.prices_key}"

    @property
    def tags(self) -> dict[str, str]:
        """Run tags: the snapshot, the change and its plan."""
        return {**self.podium.launch_tags(), CHANGE: self.key, "podium/plan": str(self.plan)}


class NoChampion(PodiumError):
    """There is no champion to retrain."""


def due(podium: Podium, workspace: Workspace, instance: dg.DagsterInstance) -> Due:
    """The change of the pool that needs work; its plan is empty where there is none.

    Raises `NoChampion`, `ConfigError` (a pool's file that is being edited, say), `DataError`.
    """
    known = champion(workspace)
    if known is None:
        raise NoChampion("there is no champion: `podium run` trains and promotes one")
    now = podium.repeating(known.snapshot)
    before, after = dealt_with(now, instance, known)
    change = known.change(before)
    snapshot = now.snapshot().model_copy(update={"change": change})
    return Due(now.of(snapshot), snapshot, required(snapshot), after)


def dealt_with(podium: Podium, instance: dg.DagsterInstance, known: Champion) -> tuple[Pool, str]:
    """The pool of the last whole run of the champion's recipe that ended well, and its id; without one, the pool that
    the champion was trained with."""
    ended = [
        record
        for job in DEALING
        for record in instance.get_run_records(
            dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS]), limit=LOOKED_AT
        )
        if not record.dagster_run.asset_selection
    ]
    for record in sorted(ended, key=lambda record: record.create_timestamp, reverse=True):
        run_id = record.dagster_run.run_id
        snapshot = podium.asked_in(instance, run_id)
        if snapshot is not None and _same(snapshot, known.snapshot):
            return snapshot.pool, run_id
    return known.snapshot.pool, ""


def _same(one: Snapshot, other: Snapshot) -> bool:
    return (one.recipe_file, one.recipe.seed) == (other.recipe_file, other.recipe.seed)
