"""`base_policy`: what GRPO starts from, a small policy taught the grammar or a model from a hub."""

import dagster as dg

from assets import gate, metadata, placement
from assets.resources import Calls, Podium, Reporter, servers
from assets.signal_forecast import signal_forecast
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from assets.worker_profiles import worker_profiles
from assets.worker_responses import worker_responses
from ops.precaching.opening import open_client
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.validation import Lesson


@dg.asset(
    deps=[worker_pool, worker_responses, training_mix, worker_profiles, signal_forecast],
    group_name="training",
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"pytorch", "huggingface"},
)
def base_policy(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """What GRPO starts from, cold-started on workflows sampled with the precached successes."""
    gate.passed(context, "training_mix")
    gate.ready(podium, "workers", "training")
    setup = podium.load()
    client = open_client(setup, "training")
    with servers(setup, needed=not base_policy_folder(setup).is_dir()):
        folder = make_base_policy(setup, client, reporter.progress(context))
    reporter.calls(context, Calls.of(client.counts))
    taught = Lesson.read(folder)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(folder.name),
        metadata={
            "folder": dg.MetadataValue.path(folder),
            "kind": setup.recipe.policy.kind,
            **(metadata.lesson(taught) if taught else {}),
            **metadata.calls(client.counts),
        },
    )
