"""`base_policy`: the policy that GRPO starts from, either a small policy after its cold start or a model from a hub."""

import dagster as dg

from assets import gate, metadata, placement
from assets.resources import Reporter, RunResource, serve_local_workers
from assets.signal_forecast import signal_forecast
from ops.precaching.client_setup import open_client
from ops.training.cold_start.base_policy import base_policy_folder, is_intact_policy, make_base_policy
from ops.training.cold_start.validation import ColdStartRecord


@dg.asset(
    deps=[signal_forecast],
    group_name="training",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"pytorch", "huggingface"},
)
def base_policy(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Make the policy from which GRPO starts. In the cold start it learns from workflows that succeed according to the
    stored responses."""
    gate.require_passed_checks(context, "training_mix")
    gate.require_ready(podium, "workers", "training")
    setup = podium.load_setup()
    client = open_client(setup, "training")
    with serve_local_workers(setup, needed=not is_intact_policy(base_policy_folder(setup))):
        folder = make_base_policy(setup, client, reporter.begin_progress(context))
    reporter.count_calls(context, client.counts)
    record = ColdStartRecord.read(folder)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(folder.name),
        metadata={
            "folder": dg.MetadataValue.path(folder),
            "kind": setup.recipe.policy.kind,
            **(metadata.describe_cold_start(record) if record else {}),
            **metadata.describe_calls(client.counts),
        },
    )
