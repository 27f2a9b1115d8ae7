"""`worker_probes`: repeat a few questions to detect workers that have changed since precaching."""

from datetime import UTC, datetime

import dagster as dg

from assets import gate, metadata
from assets.resources import Podium, Reporter, servers
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.precaching.opening import open_client
from ops.retraining.drift import threshold
from ops.retraining.probes import probe_workers
from ops.retraining.revisions import notify_of_drift, record_revisions


@dg.asset(
    deps=[worker_pool, worker_responses],
    group_name="retraining",
    kinds={"litellm"},
    check_specs=[
        dg.AssetCheckSpec("no_worker_drifted", asset="worker_probes", description="Every worker answers as it did.")
    ],
)
def worker_probes(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Run a round of probes of every worker; the model of a drifted one gets a new revision, so that its old answers
    are ignored.

    The sensor's plan treats it as any changed worker.
    """
    gate.ready(podium, "workers")
    setup, probing = podium.load(), podium.snapshot().retraining.probing
    now = datetime.now(UTC)
    client = open_client(setup.beside(f"probes-{now:%Y-%m}"), "probing")
    with servers(setup):
        records = probe_workers(setup, client, probing, now)
    reporter.calls(context, client.counts)
    drifted = [worker for worker, record in records if record.drifted(probing)]
    revisions = record_revisions(setup.workspace.config, drifted, now.date())
    notify_of_drift(setup.workspace, revisions)
    rows = [
        (record.worker, len(record.nights), record.nights[-1].asked, record.nights[-1].losses, record.nights[-1].gains,
         float(f"{record.evidence:.4g}"), revisions.get(record.worker, "–"))
        for _, record in records
    ]  # fmt: skip
    said = f"{', '.join(revisions)} drifted" if revisions else "every worker answers as it did"
    return dg.MaterializeResult(
        metadata={
            "workers": metadata.table(
                ("worker", "rounds", "asked tonight", "lost", "gained", "evidence", "new revision"), rows
            ),
            "threshold": threshold(probing.false_alarms),
            "drifted": ", ".join(revisions) or "none",
            **metadata.calls(client.counts),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="no_worker_drifted",
                passed=not revisions,
                severity=dg.AssetCheckSeverity.WARN,
                description=said,
                metadata={"revisions": revisions},
            )
        ],
    )
