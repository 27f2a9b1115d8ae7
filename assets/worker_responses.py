"""`worker_responses[worker × benchmark]`: every worker's graded answers to the shortlist, paid for once."""

import dagster as dg

from assets import gate, metadata, partitions, placement
from assets.resources import Calls, Podium, Reporter, servers
from assets.shortlist import shortlist
from assets.worker_pool import worker_pool
from ops import versioning
from ops.planning.requirements import ALL_NEEDS
from ops.precaching.opening import open_client
from ops.precaching.profiles import profile
from ops.stages.responses import estimate_responses, materialize_responses


@dg.asset(
    deps=[shortlist, worker_pool],
    partitions_def=partitions.worker_by_benchmark,
    backfill_policy=placement.side_by_side,
    group_name="workers",
    kinds={"litellm", "dvc"},
)
def worker_responses(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Collect graded answers to the shortlist, one partition per worker and benchmark; a new worker adds one row of
    partitions."""
    gate.passed(context, "shortlist")
    gate.ready(podium, *ALL_NEEDS)
    setup = podium.load()
    client = open_client(setup, "precache")
    cells = [partitions.cell(key) for key in context.partition_keys]
    expected = estimate_responses(setup, client, cells)
    if setup.recipe.asks_workers:
        reporter.expected(context, expected)
    needed = any(part.worker.serve and part.calls.expected for part in expected.workers.values())
    with servers(setup, needed):
        responses = materialize_responses(setup, client, cells, reporter.progress(context))
    for key, cell in zip(context.partition_keys, cells, strict=True):
        rows = responses[cell]
        own = {
            "responses": len(rows),
            "accuracy_in_percent": metadata.percent(profile(rows)[0].overall if rows else None),
            "usd": sum(row.response.cost_usd for row in rows),
            "unreachable": sum(row.status == "unreachable" for row in rows),
        }
        context.add_asset_metadata(metadata.rounded(own), partition_key=key)
    reporter.calls(context, Calls.of(client.counts))
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.record(setup.workspace, podium.snapshot(), "worker_responses")),
        metadata={
            "estimate": metadata.table(
                ("worker", "calls", "cached", "expected USD", "worst USD", "calls of measured length"),
                [tuple(row.values()) for row in expected.as_rows()],
            ),
            **metadata.calls(client.counts),
        },
    )
