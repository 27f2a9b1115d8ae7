"""`worker_profiles` and `signal_forecast`: what precaching measured, before any training is paid for."""

import json

import dagster as dg

from assets import metadata
from assets.resources import Podium
from assets.worker_responses import worker_responses
from ops import versioning
from ops.workers.stage import materialize_profiles


@dg.asset(deps=[worker_responses], group_name="workers", kinds={"python", "dvc"})
def worker_profiles(podium: Podium) -> dg.MaterializeResult:
    """Accuracy ± standard error, tokens, USD and latency of every worker."""
    workspace, recipe, _ = podium.load()
    found = materialize_profiles(workspace, recipe)
    benchmarks = sorted({name for one in found.workers for name in one.by_benchmark})
    accuracies = [
        (one.worker, *(metadata.percent(one.by_benchmark.get(name)) for name in benchmarks)) for one in found.workers
    ]
    calls = [
        (
            one.worker,
            f"{one.prompt_tokens + one.completion_tokens:.0f}",
            f"{one.cost_usd:.6f}",
            f"{one.latency_s.p50:.2f}",
        )
        for one in found.workers
    ]
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.commit(workspace, "worker_profiles")),
        metadata={
            "profiles": metadata.table(("accuracy in %", *benchmarks), accuracies),
            "a_call": metadata.table(("worker", "tokens", "USD", "median s"), calls),
            "responses_usd": round(sum(one.total_usd for one in found.workers), 6),
        },
    )


@dg.asset(deps=[worker_profiles], group_name="workers", kinds={"python"})
def signal_forecast(podium: Podium) -> dg.MaterializeResult:
    """The share of groups in which GRPO would see different rewards: without any, training learns nothing."""
    workspace, recipe, _ = podium.load()
    forecast = json.loads((workspace.data / "profiles.json").read_text(encoding="utf-8"))["signal_forecast"]
    return dg.MaterializeResult(
        metadata={"groups_with_signal": round(forecast, 6), "rollouts_a_question": recipe.grpo.rollouts_per_question}
    )
