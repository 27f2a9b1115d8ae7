"""The sensors on the champion's pool: one executes what a change requires, the other sends alerts about changes that
are not handled."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import dagster as dg

from assets.pool_change import PLAN_TAG, NoChampionError, find_pending_change
from assets.resources import RETRAINING_JOB, RunResource
from ops.alerts import notify
from ops.alerts.catalogue import PLAN_WAITS, POOL_UNHANDLED, WORKER_RETIRES
from ops.alerts.notify import close_alerts, load_open_alerts
from ops.config import Pool, digest
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.planning.requirements.workers import NOTICE_PERIOD
from ops.planning.retirement import retirement_date
from pipelines.lifecycle import describe_unfinished_run
from pipelines.retraining.launch import POOL_CHANGED, LaunchDecision, decide_launch, find_failed_run, is_automation_on


def make_pool_sensor(clock: Callable[[], float] = time.time) -> dg.SensorDefinition:
    """Execute what a change of the champion's pool requires, whatever its recipe. `clock`: seconds of the epoch."""

    @dg.sensor(
        name=POOL_CHANGED,
        job_name=RETRAINING_JOB,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Starts the retraining when the champion's pool has changed and its files are stable. In the list "
        "below, the column Cursor begins with what a tick found. Select Success instead of All ticks to see only those "
        "that started a run.",
    )
    def sensor(context: dg.SensorEvaluationContext, podium: RunResource) -> dg.SensorResult:
        # A run uses its own snapshot until it ends; the resulting pool is then compared with the file.
        if why := describe_unfinished_run(context.instance):
            return _sensor_result(context, LaunchDecision(reason=f"{why}: looking again after it"))
        workspace = podium.find_workspace()
        try:
            found = find_pending_change(podium, workspace, context.instance)
        except (NoChampionError, ConfigError) as error:
            return _sensor_result(context, LaunchDecision(reason=str(error)))
        pool = found.snapshot.pool
        if found.plan.is_empty:
            unchanged = f"the pool is unchanged (answers {pool.answers_key}, prices {pool.prices_key})"
            return _sensor_result(context, LaunchDecision(reason=unchanged))
        settling = _update_debounce(context.cursor, pool, clock())
        if wait := settling.remaining_wait_s(found.snapshot.retraining.settle_s, clock()):
            why = f"{found.plan}: edited recently, settling for {wait:.0f} s more"
            return _sensor_result(context, LaunchDecision(reason=why), settling)
        made = decide_launch(workspace, context.instance, found, f"the sensor `{POOL_CHANGED}`")
        return _sensor_result(context, made, settling)

    return sensor


def make_pool_alert_sensor(clock: Callable[[], float] = time.time) -> dg.SensorDefinition:
    """Send alerts of changes of the champion's pool that no automation handles, and of workers that retire.

    It asks no worker and starts no run, so it is on. `clock`: seconds of the epoch.
    """

    @dg.sensor(
        name="alert_on_pool",
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends an alert if the champion's pool has changed while pool_changed is off, or if a worker's "
        "model is retired.",
    )
    def sensor(context: dg.SensorEvaluationContext, podium: RunResource) -> dg.SensorResult:
        workspace = podium.find_workspace()
        try:
            found = find_pending_change(podium, workspace, context.instance)
        except (NoChampionError, ConfigError) as error:
            return _sensor_result(context, LaunchDecision(reason=str(error)))
        pool = found.snapshot.pool
        _alert_on_retirements(workspace, pool, clock())
        if found.plan.is_empty:
            close_alerts(workspace, (PLAN_WAITS, POOL_UNHANDLED), f"the pool {pool.name} needs no work any more")
        elif is_automation_on(context.instance):
            close_alerts(workspace, (POOL_UNHANDLED,), "a sensor or a schedule handles changes of the pool")
        if found.plan.is_empty or is_automation_on(context.instance):
            return _sensor_result(context, LaunchDecision(reason="the pool is unchanged, or its changes are handled"))
        settling = _update_debounce(context.cursor, pool, clock())
        waits = settling.remaining_wait_s(found.snapshot.retraining.settle_s, clock())
        if (
            waits
            or describe_unfinished_run(context.instance)
            or find_failed_run(context.instance, found)
        ):
            return _sensor_result(
                context, LaunchDecision(reason="the change has not settled, or a run is about it"), settling
            )
        text = f"{found.plan}\nThe sensor {POOL_CHANGED} is off: no further step starts automatically."
        title = f"the pool {pool.name} of the champion changed"
        notify(workspace, POOL_UNHANDLED.make_notice(title, text, occasion=f"pool unhandled {found.key}"))
        return _sensor_result(context, LaunchDecision(reason=f"{found.plan}: an alert was sent"), settling)

    return sensor


def _alert_on_retirements(workspace: Workspace, pool: Pool, now: float) -> None:
    today = datetime.fromtimestamp(now, UTC).date()
    for entry in load_open_alerts(workspace):
        if entry.notice.alert == WORKER_RETIRES.name and entry.notice.subject not in {w.model for w in pool.workers}:
            said = f"the pool {pool.name} has no worker of {entry.notice.subject} any more"
            close_alerts(workspace, (WORKER_RETIRES,), said, subject=entry.notice.subject)
    for worker in pool.workers:
        end = retirement_date(worker)
        if end is not None and end <= today + NOTICE_PERIOD:
            title = f"the model of worker {worker.name} {'is retired since' if end <= today else 'retires on'} {end}"
            text = f"{worker.model}, in config/pools/{pool.name}.yaml. Replace it there, or remove the worker."
            occasion = f"worker retires {worker.model} {end}"
            notify(workspace, WORKER_RETIRES.make_notice(title, text, occasion=occasion, subject=worker.model))


def _update_debounce(cursor: str | None, pool: Pool, now: float) -> DebounceState:
    """Return the state of debouncing after this reading."""
    return DebounceState.from_cursor(cursor).observe(digest(pool.model_dump(mode="json")), now)


def _sensor_result(
    context: dg.SensorEvaluationContext, made: LaunchDecision, settling: DebounceState | None = None
) -> dg.SensorResult:
    """Return the result of a tick. Its cursor begins with what the tick found, because Dagster shows the cursor in the
    list of ticks, and the reason only after a click."""
    found = made.reason if made.request is None else f"started: {made.request.tags[PLAN_TAG]}"
    cursor = (settling or DebounceState.from_cursor(context.cursor)).to_cursor(found)
    if made.request is not None:
        return dg.SensorResult(run_requests=[made.request], cursor=cursor)
    return dg.SensorResult(skip_reason=made.reason, cursor=cursor, asset_events=made.observations)


@dataclass(frozen=True)
class DebounceState:
    """The content that was last read, and since when (seconds since the epoch) it is unchanged."""

    read: str = ""
    since: float = 0.0

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Self:
        """Return the state at the end of a cursor; without one, the state before the first reading."""
        stored = re.search(r"\((\w+) since (\d+)\)$", cursor or "")
        return cls(stored[1], float(stored[2])) if stored else cls()

    def to_cursor(self, found: str) -> str:
        """Return what a tick found, followed by the state."""
        return f"{found} ({self.read} since {math.floor(self.since)})" if self.read else found

    def observe(self, read: str, now: float) -> Self:
        """Return the state after reading `read` at time `now`. If the clock went back, the wait begins anew."""
        same = read == self.read and now >= self.since
        return type(self)(read, self.since if same else now)

    def remaining_wait_s(self, settle_s: float, now: float) -> float:
        """Return how many seconds remain until the content counts as unchanged for long enough; 0 if it does."""
        return max(0.0, settle_s - (now - self.since))
