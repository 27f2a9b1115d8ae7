"""Decide whether a run that executes the plan of a change is started, or give the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from assets.pool_change import CHANGE_TAG, PendingChange
from ops.alerts import notify
from ops.alerts.catalogue import PLAN_WAITS
from ops.alerts.notify import is_recorded
from ops.config import Setup
from ops.core.workspace import Workspace
from ops.precaching.client_setup import open_client
from ops.retraining.estimate import Estimate, estimate_drift, estimate_plan
from ops.retraining.record import plan_record
from ops.retraining.story import write_retraining_page
from ops.spending.bookings import format_usd
from ops.workers.client import WorkerClient

POOL_CHANGED, MONTHLY_CHECK = "pool_changed", "monthly_check"
"""The sensor and the schedule that execute the plan of a change."""
APPROVAL_HINT = "`podium retrain`, or the job `retraining` from its launchpad, starts it"
ESTIMATE_TAG = "podium/estimate"
"""Run tag: the expected cost of the run."""


@dataclass(frozen=True)
class LaunchDecision:
    """A run that is to be started, or the reason why none is, with observations for the pages of the assets."""

    request: dg.RunRequest | None = None
    reason: str = ""
    observations: Sequence[dg.AssetObservation] = ()


def find_failed_run(instance: dg.DagsterInstance, found: PendingChange) -> str:
    """Return the id of the unsuccessful run for this change; empty if there is none."""
    runs = instance.get_runs(dg.RunsFilter(tags={CHANGE_TAG: found.key}), limit=1)
    return runs[0].run_id if runs else ""


def is_automation_on(instance: dg.DagsterInstance) -> bool:
    """Return whether the sensor or the schedule handles changes of the pool."""
    return any(
        state.status.value == "RUNNING"
        for state in instance.all_instigator_state()
        if state.name in (POOL_CHANGED, MONTHLY_CHECK)
    )


def decide_launch(
    workspace: Workspace, instance: dg.DagsterInstance, found: PendingChange, cause: str
) -> LaunchDecision:
    """Return the run that executes the plan of a change, if it costs at most `retraining.budget_usd` and no earlier one
    failed.

    A plan above the budget waits for a person. It causes one alert and one observation of `worker_pool`. Raises
    `DataError` and `ConfigError`.
    """
    if failed := find_failed_run(instance, found):
        return LaunchDecision(
            reason=f"{found.plan}: run {failed[:8]} did not end well. Retry it; or {APPROVAL_HINT} again"
        )
    priced, budget = estimate_change(found), found.snapshot.retraining.budget_usd
    if priced.usd.expected <= budget:
        request = dg.RunRequest(
            run_key=found.key,
            run_config=found.podium.make_run_config(),
            tags=make_change_tags(found, priced) | {"podium/cause": cause},
        )
        record_plan(workspace, found, priced, cause)
        return LaunchDecision(request)
    why = f"needs approval: {found.plan}; {priced}; retraining.budget_usd is {budget:g}. {APPROVAL_HINT}"
    occasion = f"plan waits {found.key}"
    if is_recorded(workspace, occasion):
        return LaunchDecision(reason=why)
    parts = "\n".join(f"* {part.name}: {part.calls_formula}, {format_usd(part.usd.expected)}" for part in priced.parts)
    title = f"retraining for about {format_usd(priced.usd.expected)} waits for a person"
    text = f"{found.plan}\n{priced}\nretraining.budget_usd is {budget:g}"
    record_plan(workspace, found, priced, cause, waits=True)
    page = write_retraining_page(workspace)
    notify(workspace, PLAN_WAITS.make_notice(title, text, str(page or ""), occasion=occasion))
    facts = {
        "waits_for_a_person": why, "plan": str(found.plan), "estimate": dg.MetadataValue.md(parts),
        "approve": APPROVAL_HINT,
    }  # fmt: skip
    return LaunchDecision(reason=why, observations=[dg.AssetObservation(dg.AssetKey("worker_pool"), metadata=facts)])


def make_change_tags(found: PendingChange, priced: Estimate) -> dict[str, str]:
    """Return run tags: the snapshot, the change, its plan and the plan's expected cost."""
    return {**found.tags, ESTIMATE_TAG: str(priced)}


def record_plan(
    workspace: Workspace, found: PendingChange, priced: Estimate, cause: str, *, waits: bool = False
) -> None:
    """Record the plan and its estimate for the page of the retrainings."""
    usd, seconds = priced.usd, priced.seconds
    plan_record(
        workspace,
        found.snapshot.key,
        waits=waits,
        cause=cause,
        estimate=str(priced),
        usd=(usd.expected, usd.high),
        seconds=(seconds.expected, seconds.high),
    )


def estimate_change(found: PendingChange) -> Estimate:
    """Estimate the cost of the change's plan with the cache of the checkout, without a call. Raises `DataError` and
    `ConfigError`."""
    setup = found.podium.load_setup()
    return _estimate(setup, "precache", lambda client: estimate_plan(setup, found.plan, client, found.snapshot))


def estimate_drift_round(setup: Setup) -> Estimate:
    """Estimate the cost of today's questions without a call. Raises `DataError` and `ConfigError`."""
    return _estimate(setup, "drift", lambda client: estimate_drift(setup, client, datetime.now(UTC).date()))


def _estimate(setup: Setup, purpose: str, price: Callable[[WorkerClient], Estimate]) -> Estimate:
    client = open_client(setup, purpose)
    try:
        return price(client)
    finally:
        client.cache.close()
        client.ledger.close()
