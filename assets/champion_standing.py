"""`champion_standing`: the gate's judgement of the champion on a changed pool, and the decision whether to train it
further."""

import dagster as dg

from assets import gate, metadata, placement
from assets.opponents import ask_opponents, compare_policy
from assets.resources import Reporter, RunResource, serve_local_workers
from assets.worker_profiles import worker_profiles
from ops.config import PoolChange
from ops.evaluation.stored_scores import CONDUCTOR
from ops.planning.stored_results import find_unscored
from ops.precaching.client_setup import open_client
from ops.retraining.fine_tuning_start import get_champion_folder
from ops.retraining.standing import alert_on_decision, find_unanswered_benchmarks, judge_champion, plan_required_work
from ops.stages.evaluation import score_policy
from ops.workers.client import CallCounts


@dg.asset(
    deps=[worker_profiles],
    group_name="retraining",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"mlflow", "litellm"},
    check_specs=[
        dg.AssetCheckSpec(
            "holds", asset="champion_standing", description="The champion passes the gate with the changed pool."
        )
    ],
)
def champion_standing(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Measure the champion with the changed pool, compare it with its results before the change, and decide whether to
    train it further.

    The job `retraining` materializes this asset; the snapshot of its run contains the change.
    """
    gate.require_ready(podium, "workers", "evaluation")
    snapshot, setup = podium.get_snapshot(), podium.load_setup()
    facts = {} if snapshot.change is None else _score_champion(context, podium, reporter, snapshot.change)
    made = judge_champion(setup, snapshot)
    alert_on_decision(setup.workspace, snapshot, made)
    failed = [check.name for check in made.standing.failed]
    unsaid = [name for name in failed if name not in made.why]
    return dg.MaterializeResult(
        metadata={
            "decision": f"{'fine-tune the champion' if made.fine_tune else 'do not train'}: {made.why}",
            "plan": str(plan_required_work(snapshot)),
            **metadata.describe_checks(made.checks),
            **metadata.fold_tables(facts),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="holds",
                passed=not failed,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"{made.why} (not passed: {', '.join(unsaid)})" if unsaid else made.why,
            )
        ],
    )


def _score_champion(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: Reporter, change: PoolChange
) -> dict[str, dg.MetadataValue]:
    """Score the champion and its opponents where scores are missing, and compare them."""
    setup, progress = podium.load_setup(), reporter.begin_progress(context)
    policy = get_champion_folder(setup.workspace, change)
    missing = find_unanswered_benchmarks(setup)
    calls = ask_opponents(podium, missing, progress).calls if missing else CallCounts()
    if missing := find_unscored(setup, policy):
        client = open_client(setup, "evaluation")
        with serve_local_workers(setup):
            score_policy(setup, policy, CONDUCTOR, client, missing, progress)
        calls = calls + client.counts
    reporter.count_calls(context, calls)
    facts = compare_policy(podium, policy, again=True) or {}
    return {"champion": dg.MetadataValue.text(change.version), **facts, **metadata.describe_calls(calls)}
