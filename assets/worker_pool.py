"""`worker_pool`: the workers of the pool's file; each one is a partition of the responses."""

import dagster as dg

from assets import metadata, partitions
from assets.resources import Podium
from ops.core.servers import check_addresses
from ops.workers.pool import pool_rows
from ops.workers.unsent import check_pools


@dg.asset(group_name="workers", kinds={"yaml"})
def worker_pool(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Check the pool's workers against keys, providers and servers. Retraining compares the pool's two keys."""
    setup = podium.load()
    check_addresses(mlflow=not setup.workspace.rehearsal)
    pool = setup.pool
    if setup.recipe.asks_workers:
        check_pools(setup)
    added, removed = partitions.sync_workers(context.instance, pool.names)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(f"{pool.answers_key}-{pool.prices_key}"),
        metadata={
            "answers_key": pool.answers_key,
            "prices_key": pool.prices_key,
            "workers": metadata.table(*pool_rows(pool)),
            "added": ", ".join(added) or "none",
            "removed": ", ".join(removed) or "none",
            "pool": dg.MetadataValue.json(pool.model_dump(mode="json")),
        },
    )
