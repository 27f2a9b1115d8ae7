"""`worker_profiles`: the measurements of precaching for every worker."""

import dagster as dg

from assets import metadata
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.resources import RunResource
from assets.worker_responses import worker_responses
from ops import versioning
from ops.core.atomic import write_bytes
from ops.core.charts import render_png
from ops.core.once import data_version
from ops.core.response_rows import load_responses
from ops.evaluation.baselines.oracle import estimate_oracles
from ops.precaching.profiles import Profile
from ops.results.leaderboard import chart_accuracy_against_cost, estimate_of_score
from ops.results.statistics import average_estimates
from ops.stages.data import data_files, make_profiles_once


@dg.asset(deps=[worker_responses], group_name="workers", kinds={"python", "dvc"})
def worker_profiles(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Measure the accuracy, tokens, USD, latency and failures of every worker, of the best one and of the oracle."""
    setup = podium.load_setup()
    drawn = setup.workspace.state / "accuracy_against_cost.png"
    profiles = make_profiles_once(setup, force=is_rebuild_requested(context))
    versioning.record_stage(setup.workspace, podium.get_snapshot(), "worker_profiles")
    version = data_version(*data_files(setup.workspace, "worker_profiles"))
    if profiles is None:
        return report_unchanged(context, version)
    best = next(profile for profile in profiles.workers if profile.worker == profiles.best_worker)
    best_accuracy = average_estimates([estimate_of_score(score) for score in best.by_benchmark.values()])
    rows = load_responses(setup.workspace.data / "responses")
    oracle = list(estimate_oracles([row for row in rows if row.worker in setup.pool.names]).values())
    picture = render_png(chart_accuracy_against_cost(profiles.workers, metadata.make_oracle_line(oracle)))
    write_bytes(drawn, picture)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version),
        metadata={
            "best_single_worker": f"{best.worker}: {metadata.format_percent(best_accuracy)} %",
            "best_single_worker_percent": round(100 * best_accuracy.mean, 4),
            "oracle": metadata.format_oracle(oracle),
            "by_domain": _accuracy_table(profiles.workers, "by_domain"),
            "by_subject": _accuracy_table(profiles.workers, "by_subject"),
            "a_call": metadata.make_table(
                ("worker", "tokens in", "out", "USD", "s: 50 %", "90 %", "99 %", "refused", "truncated", "unreachable"),
                [_call_cells(profile) for profile in profiles.workers],
            ),
            "accuracy_against_cost": metadata.embed_png("accuracy against cost", picture),
            "responses_usd": round(sum(profile.total_usd for profile in profiles.workers), 6),
        },
    )


def _accuracy_table(workers: list[Profile], along: str) -> dg.MarkdownMetadataValue:
    """Return a row for each domain or subject and a column for each worker."""
    names = sorted({name for profile in workers for name in getattr(profile, along)})
    rows = [
        (name, *(metadata.format_percent(getattr(profile, along).get(name)) for profile in workers)) for name in names
    ]
    return metadata.make_table(("accuracy in %", *(profile.worker for profile in workers)), rows)


def _call_cells(profile: Profile) -> tuple[str, ...]:
    seconds = (f"{value:.2f}" for value in profile.latency_s)
    rates = (f"{rate:.1%}" for rate in profile.rates.values())
    tokens = (f"{profile.prompt_tokens:.0f}", f"{profile.completion_tokens:.0f}")
    return (profile.worker, *tokens, f"{profile.cost_usd:.6f}", *seconds, *rates)
