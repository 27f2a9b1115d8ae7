"""`worker_pool`: the workers on offer, as the pool's file says; each is a partition of the responses."""

import dagster as dg

from assets import metadata, partitions
from assets.resources import Podium
from ops.workers.providers import check_pool


@dg.asset(group_name="workers", kinds={"yaml"})
def worker_pool(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """The workers on offer, checked against the environment (keys, providers); retraining watches its fingerprint."""
    workspace, recipe, pool = podium.load()
    check_pool(pool, workspace.config / "pools" / f"{recipe.pool}.yaml")
    added, removed = partitions.sync_workers(context.instance, pool.names)
    rows = [
        (
            w.name,
            w.model,
            f"{w.price.input:g} / {w.price.output:g}" if w.price else "LiteLLM's",
            w.concurrency,
        )
        for w in pool.workers
    ]
    return dg.MaterializeResult(
        data_version=dg.DataVersion(pool.fingerprint),
        metadata={
            "fingerprint": pool.fingerprint,
            "workers": metadata.table(("worker", "model", "USD per million tokens", "concurrency"), rows),
            "added": ", ".join(added) or "none",
            "removed": ", ".join(removed) or "none",
            "pool": dg.MetadataValue.json(pool.model_dump(mode="json")),
        },
    )
