"""The sensor on the champion's pool: difference → plan → one run that executes it, once the edits have settled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import dagster as dg

from assets.resources import Podium
from ops.config import digest
from ops.core.errors import ConfigError
from ops.precaching.opening import open_client
from ops.retraining.estimate import Estimate, estimate
from ops.retraining.settle import Settling
from pipelines.lives import team_life, unfinished_runs
from pipelines.retraining.change import CHANGE, DEALING, Due, NoChampion, due

APPROVE = "`podium retrain`, or the job `retraining` from its launchpad, starts it"
ESTIMATE = "podium/estimate"
"""Run tag: what the run is expected to cost."""


def pool_changed(retraining: dg.JobDefinition, clock: Callable[[], float] = time.time) -> dg.SensorDefinition:
    """Execute what a change of the champion's pool requires, whatever its recipe. `clock`: seconds of the epoch."""

    @dg.sensor(
        name="pool_changed",
        job=retraining,
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="When the champion's pool has changed and settled: precache, evaluate, fine-tune if it must be",
    )
    def sensor(context: dg.SensorEvaluationContext, podium: Podium) -> dg.SensorResult:
        # A run works from its own snapshot to its end: what it leaves is then compared with the file.
        if runs := unfinished_runs(context.instance, DEALING):
            first = f"{runs[0].job_name} run {runs[0].run_id[:8]}"
            return _skip(context, f"{first} is not finished: looking again after it")
        if (life := team_life(context.instance)) is not None:
            return _skip(context, f"the team's life {life.backfill_id} is not finished: looking again after it")
        try:
            found = due(podium, podium.load().workspace, context.instance)
        except (NoChampion, ConfigError) as error:
            return _skip(context, str(error))
        pool = found.snapshot.pool
        if found.plan.is_empty:
            return _skip(context, f"the pool is unchanged (answers {pool.answers_key}, prices {pool.prices_key})")
        seen = _Seen.read(context.cursor)
        seen = seen.at(digest(pool.model_dump(mode="json")), clock())
        if wait := seen.settling.waits(found.snapshot.retraining.settle_s, clock()):
            return _skip(context, f"{found.plan}: edited lately, settling for {wait:.0f} s more", seen)
        if runs := context.instance.get_runs(dg.RunsFilter(tags={CHANGE: found.key}), limit=1):
            why = f"{found.plan}: run {runs[0].run_id[:8]} did not end well. Retry it; or {APPROVE} again"
            return _skip(context, why, seen)
        priced = estimated(found)
        if priced.usd.expected > found.snapshot.retraining.budget_usd:
            return _wait_for_a_person(context, found, priced, seen)
        return dg.SensorResult(
            run_requests=[dg.RunRequest(
                run_key=found.key,
                run_config=found.podium.run_config(),
                tags=change_tags(found, priced) | {"podium/cause": "pool changed"},
            )],
            cursor=seen.text,
        )  # fmt: skip

    return sensor


def change_tags(found: Due, priced: Estimate) -> dict[str, str]:
    """Run tags: the snapshot, the change, its plan and what that will cost."""
    return {
        **found.podium.launch_tags(),
        CHANGE: found.key,
        "podium/plan": str(found.plan),
        ESTIMATE: str(priced),
    }


def estimated(found: Due) -> Estimate:
    """What its plan costs, at the checkout's cache: no call is made. Raises `DataError`, `ConfigError`."""
    setup = found.podium.load()
    client = open_client(setup, "precache")
    try:
        return estimate(setup, found.plan, client, found.snapshot)
    finally:
        client.cache.close()
        client.ledger.close()


class _Seen:
    """The cursor: what the pool read last and since when, and the change that a person was told of."""

    def __init__(self, settling: Settling, told: str = "") -> None:
        self.settling, self.told = settling, told

    @classmethod
    def read(cls, cursor: str | None) -> _Seen:
        facts = json.loads(cursor) if cursor else {}
        return cls(Settling(facts.get("read", ""), facts.get("since", 0.0)), facts.get("told", ""))

    def at(self, read: str, now: float) -> _Seen:
        return _Seen(self.settling.after(read, now), self.told)

    @property
    def text(self) -> str:
        return json.dumps({"read": self.settling.read, "since": self.settling.since, "told": self.told})


def _skip(context: dg.SensorEvaluationContext, why: str, seen: _Seen | None = None) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=why, cursor=seen.text if seen else context.cursor)


def _wait_for_a_person(
    context: dg.SensorEvaluationContext, found: Due, priced: Estimate, seen: _Seen
) -> dg.SensorResult:
    budget = found.snapshot.retraining.budget_usd
    why = f"waits for a person: {found.plan}; {priced}; retraining.budget_usd is {budget:g}. {APPROVE}"
    if seen.told == found.key:
        return _skip(context, why, seen)
    # Once a change, on the page of the asset that changed.
    note = dg.AssetObservation(
        dg.AssetKey("worker_pool"),
        metadata={
            "waits_for_a_person": why,
            "plan": str(found.plan),
            "estimate": dg.MetadataValue.md(
                "\n".join(f"* {part.name}: {part.what}, ${part.usd.expected:.4f}" for part in priced.parts)
            ),
            "approve": APPROVE,
        },
    )
    told = _Seen(seen.settling, found.key)
    return dg.SensorResult(skip_reason=why, cursor=told.text, asset_events=[note])
