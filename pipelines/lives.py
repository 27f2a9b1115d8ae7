"""Whether a life goes on: two at once would write the same data, so a second one is refused while one is unfinished.

What knows of it: a life in one process holds the checkout's lock and is a run of one of the jobs; a team's life is a
backfill, which no process holds a lock for.
"""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from assets.dagster_private import BulkActionsFilter, BulkActionStatus, PartitionBackfill
from ops.core.errors import PodiumError

LIFE = "podium/life"
"""Tag of a team's life: of its backfill and of all of its runs."""
WHOLE = "podium/whole_life"
"""Tag of a team's life that has every stage."""
_GOING_ON = [BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING]
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def team_life(instance: dg.DagsterInstance) -> PartitionBackfill | None:
    """The team's life that is not finished."""
    going_on = instance.get_backfills(filters=BulkActionsFilter(statuses=_GOING_ON))
    return next((backfill for backfill in going_on if LIFE in (backfill.tags or {})), None)


def whole_lives(instance: dg.DagsterInstance, limit: int) -> list[PartitionBackfill]:
    """Of the latest backfills that ended well those that were a team's life, with every stage."""
    ended_well = BulkActionsFilter(statuses=[BulkActionStatus.COMPLETED_SUCCESS])
    # Not by Dagster's filter on tags: in an ephemeral instance it finds those of runs alone.
    backfills = instance.get_backfills(filters=ended_well, limit=limit)
    return [backfill for backfill in backfills if WHOLE in (backfill.tags or {})]


def unfinished_runs(instance: dg.DagsterInstance, jobs: Iterable[str]) -> list[dg.DagsterRun]:
    """Runs of these jobs that have not ended; what they execute stage by stage is not counted."""
    return [run for job in jobs for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=_UNFINISHED))]


def refuse_beside_a_team(instance: dg.DagsterInstance) -> None:
    """Raise `PodiumError` while a team's life is unfinished."""
    if (life := team_life(instance)) is not None:
        remedy = "Wait for its end, or cancel it under Overview > Backfills"
        raise PodiumError(f"a life of this team is not finished: backfill {life.backfill_id}. {remedy}")
