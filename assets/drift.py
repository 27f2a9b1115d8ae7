"""`drift`: ask stored questions again, to detect a worker or a champion that has changed."""

from datetime import UTC, date, datetime

import dagster as dg

from assets import gate, metadata, placement
from assets.promotion import promotion
from assets.resources import Reporter, RunResource, serve_local_workers
from ops.precaching.client_setup import open_client
from ops.release import registry
from ops.retraining.drift import run_drift_round
from ops.retraining.revisions import act_on_drift, describe_drift


@dg.asset(
    deps=[promotion],
    group_name="retraining",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"huggingface", "litellm"},
    check_specs=[
        dg.AssetCheckSpec(
            "nothing_drifted", asset="drift", description="The workers and the champion answer as they did before."
        )
    ],
)
def drift(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Ask each worker and the champion today's share of the stored questions again, and compare the answers with the
    stored ones.

    A changed worker's model gets a new revision, so that its old answers are ignored; the sensor's plan treats it as
    any changed worker. The questions have a cap of their own each month.
    """
    gate.require_ready(podium, "workers", *(["evaluation"] if registry.find_champion(podium.find_workspace()) else []))
    setup, on = podium.load_setup(), get_utc_day()
    settings = podium.get_snapshot().retraining.drift
    client = open_client(setup.with_account(f"drift-{on:%Y-%m}"), "drift")
    with serve_local_workers(setup):
        records = run_drift_round(setup, client, settings, on)
    reporter.count_calls(context, client.counts)
    revisions = act_on_drift(setup, records, settings, on)
    changed = [record for record in records if record.is_changed(settings.false_alarms)]
    rows = [
        (
            record.system,
            record.rounds,
            sum(pair.on == on for pair in record.pairs),
            *(round(100 * share, 1) for share in record.accuracies()),
            "drifted" if record in changed else "as stored",
            revisions.get(record.system, "–"),
        )
        for record in records
        if record.pairs
    ]
    head = ("system", "nights", "asked tonight", "stored, % right", "again, % right", "found", "new revision")
    said = (
        "; ".join(describe_drift(record, settings) for record in changed) or "workers and champion answer as they did"
    )
    return dg.MaterializeResult(
        metadata={
            "systems": metadata.make_table(head, rows),
            "drifted": ", ".join(record.system for record in changed) or "none",
            "error_probability_in_a_year": settings.false_alarms,
            **metadata.describe_calls(client.counts),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="nothing_drifted",
                passed=not changed,
                severity=dg.AssetCheckSeverity.WARN,
                description=said,
                metadata={"revisions": revisions},
            )
        ],
    )


def get_utc_day() -> date:
    """Return the day in UTC, which decides the questions that are asked."""
    return datetime.now(UTC).date()
