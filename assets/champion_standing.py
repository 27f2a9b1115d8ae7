"""`champion_standing`: the gate's judgement of the champion on a changed pool, and the decision whether to train it
further."""

import time

import dagster as dg

from assets import gate, metadata, placement
from assets.opponents import ask_opponents, compare_policy
from assets.raw_problems import raw_problems
from assets.resources import Reporter, RunResource, serve_local_workers
from assets.worker_pool import worker_pool
from assets.worker_profiles import worker_profiles
from assets.worker_responses import worker_responses
from ops.config import PoolChange, Snapshot
from ops.core.workspace import Workspace
from ops.evaluation.stored_scores import CONDUCTOR
from ops.planning.stored_results import find_unscored
from ops.precaching.client_setup import open_client
from ops.retraining.fine_tuning_start import get_champion_folder
from ops.retraining.record import update_record
from ops.retraining.standing import (
    alert_on_decision,
    find_unanswered_benchmarks,
    judge_champion,
    list_caused_failures,
    plan_required_work,
)
from ops.retraining.story import write_retraining_page
from ops.stages.evaluation import score_policy
from ops.workers.client import CallCounts


@dg.asset(
    deps=[raw_problems, worker_pool, worker_responses, worker_profiles],
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
    if snapshot.change is not None:
        begin_record(context, setup.workspace, snapshot)
    facts = {} if snapshot.change is None else _score_champion(context, podium, reporter, snapshot.change)
    made = judge_champion(setup, snapshot)
    if not made.fine_tune:
        update_record(setup.workspace, snapshot.key, ended_at=time.time())
    page = write_retraining_page(setup.workspace)
    alert_on_decision(setup.workspace, snapshot, made)
    checks = [
        ("✓" if check.passed else "✗", check.name, f"{check.value:.4g}", f"{check.bound:.4g}", check.explanation)
        for check in made.checks
    ]
    failed = [check.name for check in list_caused_failures(snapshot, made)]
    unsaid = [name for name in failed if name not in made.why]
    return dg.MaterializeResult(
        metadata={
            **facts,
            **({"story": dg.MetadataValue.path(page)} if page else {}),
            "fine_tune": made.fine_tune,
            "why": made.why,
            "plan": str(plan_required_work(snapshot)),
            "checks": metadata.make_table(("passed", "check", "value", "bound", "what it says"), checks),
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


def begin_record(context: dg.AssetExecutionContext, workspace: Workspace, snapshot: Snapshot) -> None:
    """Record that the retraining has begun, with the time at which Dagster started its run."""
    record = context.instance.get_run_record_by_id(context.run_id)
    began = record.start_time if record is not None and record.start_time else time.time()
    cause = context.run.tags.get("podium/cause")
    update_record(
        workspace,
        snapshot.key,
        run=context.run_id,
        began_at=began,
        ended_at=0.0,
        failure="",
        remedy="",
        waits=False,
        **({"cause": cause} if cause else {}),
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
