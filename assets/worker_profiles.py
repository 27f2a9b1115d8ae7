"""`worker_profiles`: the measurements of precaching for every worker."""

import dagster as dg

from assets import metadata
from assets.resources import Podium
from assets.unchanged import AssetStep
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops import versioning
from ops.core.atomic import write_bytes
from ops.core.charts import png
from ops.core.rows import load_responses
from ops.evaluation.baselines.oracle import oracle_estimates
from ops.precaching.profiles import Profile
from ops.results.leaderboard import accuracy_against_cost, of_score
from ops.results.statistics import mean_of
from ops.stages.responses import materialize_profiles


@dg.asset(deps=[worker_pool, worker_responses], group_name="workers", kinds={"python", "dvc"})
def worker_profiles(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Measure accuracy and its uncertainty, tokens, USD, latency and failures of every worker; the best one and the
    oracle."""
    setup, step = podium.load(), AssetStep.of_data(context, podium, "worker_profiles")
    if (same := step.unchanged()) is not None:
        return same
    profiles = materialize_profiles(setup)
    best = next(profile for profile in profiles.workers if profile.worker == profiles.best)
    best_accuracy = mean_of([of_score(score) for score in best.by_benchmark.values()])
    rows = load_responses(setup.workspace.data / "responses")
    oracle = list(oracle_estimates([row for row in rows if row.worker in setup.pool.names]).values())
    picture = png(accuracy_against_cost(profiles.workers, metadata.oracle_line(oracle)))
    write_bytes(setup.workspace.state / "accuracy_against_cost.png", picture)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.record(setup.workspace, podium.snapshot(), "worker_profiles")),
        metadata={
            "best_single_worker": f"{best.worker}: {metadata.percent(best_accuracy)} %",
            "oracle": metadata.oracle(oracle),
            "by_domain": _accuracies(profiles.workers, "by_domain"),
            "by_subject": _accuracies(profiles.workers, "by_subject"),
            "a_call": metadata.table(
                ("worker", "tokens in", "out", "USD", "s: 50 %", "90 %", "99 %", "refused", "truncated", "unreachable"),
                [_call(profile) for profile in profiles.workers],
            ),
            "accuracy_against_cost": metadata.picture("accuracy against cost", picture),
            "responses_usd": round(sum(profile.total_usd for profile in profiles.workers), 6),
            **step.keys(),
        },
    )


def _accuracies(workers: list[Profile], along: str) -> dg.MarkdownMetadataValue:
    """Return a row for each domain or subject and a column for each worker."""
    names = sorted({name for profile in workers for name in getattr(profile, along)})
    rows = [(name, *(metadata.percent(getattr(profile, along).get(name)) for profile in workers)) for name in names]
    return metadata.table(("accuracy in %", *(profile.worker for profile in workers)), rows)


def _call(profile: Profile) -> tuple[str, ...]:
    seconds = (f"{value:.2f}" for value in profile.latency_s)
    rates = (f"{rate:.1%}" for rate in profile.rates.values())
    tokens = (f"{profile.prompt_tokens:.0f}", f"{profile.completion_tokens:.0f}")
    return (profile.worker, *tokens, f"{profile.cost_usd:.6f}", *seconds, *rates)
