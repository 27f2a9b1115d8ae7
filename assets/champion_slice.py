"""`champion_slice`: the champion's scores on tonight's questions, with new worker answers."""

from datetime import UTC, datetime

import dagster as dg

from assets import gate, metadata, placement
from assets.benchmark_scores import benchmark_scores
from assets.promotion import promotion
from assets.raw_problems import raw_problems
from assets.resources import Podium, Reporter, servers
from assets.worker_pool import worker_pool
from ops.alerts import notify
from ops.alerts.catalogue import NIGHT_BELOW
from ops.core.errors import PodiumError
from ops.precaching.opening import open_client
from ops.release import registry
from ops.results.leaderboard import percent
from ops.results.summary import summarize
from ops.retraining.champion import champion
from ops.retraining.slices import evaluate_slice
from ops.retraining.standing import judged_alike
from ops.retraining.start import champion_folder


@dg.asset(
    deps=[raw_problems, worker_pool, benchmark_scores, promotion],
    group_name="retraining",
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"huggingface", "litellm"},
    check_specs=[
        dg.AssetCheckSpec("as_good_as_before", asset="champion_slice", description="The night's interval is not below.")
    ],
)
def champion_slice(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Check whether the champion still answers as well as when it was scored, on the next part of the questions each
    night.

    The result is shown and starts nothing: a test at 2.5 % every night is wrong once in forty nights.
    """
    gate.ready(podium, "workers", "evaluation")
    setup, snapshot, now = podium.load(), podium.snapshot(), datetime.now(UTC)
    known, version = champion(setup.workspace), registry.champion(setup.workspace)
    if known is None or version is None:
        raise PodiumError("there is no champion: `podium run` trains and promotes one")
    client = open_client(setup.beside(f"nights-{now:%Y-%m}"), "evaluation")
    policy = champion_folder(setup.workspace, known.change(setup.pool))
    before = judged_alike(setup, version)
    with servers(setup):
        night = evaluate_slice(setup, policy, client, before, snapshot.retraining.slice_questions, now.date())
    reporter.calls(context, client.counts)
    rows = [
        (name, made.rows, percent(made.accuracy), made.cost_usd, made.unscorable)
        for name, made in summarize(night.rows).items()
    ]
    gain = night.difference
    words = "nothing to compare with"
    if gain is not None:
        words = f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}) on {night.questions} questions"
    passed = gain is None or gain.high >= 0
    if not passed:
        title = f"champion version {known.version} answers worse than it was scored"
        notify(setup.workspace, NIGHT_BELOW.notice(title, words, occasion=f"night {now.date()} {known.version}"))
    return dg.MaterializeResult(
        metadata={
            "champion": known.version,
            "difference_to_its_scores": words,
            "benchmarks": metadata.table(("benchmark", "questions", "accuracy in %", "USD", "unscorable"), rows),
            **metadata.calls(client.counts),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="as_good_as_before", passed=passed, severity=dg.AssetCheckSeverity.WARN, description=words
            )
        ],
    )
