"""`worker_pool`: the workers of the pool's file."""

import dagster as dg

from assets import metadata
from assets.resources import RunResource
from ops.core.servers import check_addresses
from ops.workers.pool import build_pool_table, list_special_prices
from ops.workers.pool_checks import check_pools


@dg.asset(group_name="workers", kinds={"yaml"})
def worker_pool(podium: RunResource) -> dg.MaterializeResult:
    """Check that the workers of the pool can be called: their API keys, their providers and their servers. Retraining
    compares the two hashes of the pool."""
    setup = podium.load_setup()
    check_addresses(mlflow=not setup.workspace.rehearsal)
    pool = setup.pool
    if setup.recipe.can_call_workers:
        check_pools(setup)
    special = list_special_prices(pool)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(f"{pool.answers_key}-{pool.prices_key}"),
        metadata={
            "answers_key": pool.answers_key,
            "prices_key": pool.prices_key,
            "workers": metadata.make_table(*build_pool_table(pool)),
            **({"all_prices": "; ".join(special)} if special else {}),
            "pool": dg.MetadataValue.json(pool.model_dump(mode="json")),
        },
    )
