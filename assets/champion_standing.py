"""`champion_standing`: the gate's judgement of the champion on a changed pool, and the decision whether to train it
further."""

import dagster as dg

from assets import gate, metadata, placement
from assets.opponents import ask_opponents, compared
from assets.raw_problems import raw_problems
from assets.resources import Podium, Reporter, servers
from assets.worker_pool import worker_pool
from assets.worker_profiles import worker_profiles
from assets.worker_responses import worker_responses
from ops.config import PoolChange
from ops.evaluation.stored import CONDUCTOR
from ops.planning.stored import find_unscored
from ops.precaching.opening import open_client
from ops.retraining.standing import alert_on_standing, required, stand, unanswered
from ops.retraining.start import champion_folder
from ops.stages.evaluation import score_policy
from ops.workers.client import CallCounts


@dg.asset(
    deps=[raw_problems, worker_pool, worker_responses, worker_profiles],
    group_name="retraining",
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"mlflow", "litellm"},
    check_specs=[
        dg.AssetCheckSpec(
            "holds", asset="champion_standing", description="The champion passes the gate with the changed pool."
        )
    ],
)
def champion_standing(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Measure the champion with the changed pool, compare it with its results before the change, and decide whether to
    train it further.

    The job `retraining` materializes this asset; the snapshot of its run contains the change.
    """
    gate.ready(podium, "workers", "evaluation")
    snapshot, setup = podium.snapshot(), podium.load()
    facts = {} if snapshot.change is None else _scored(context, podium, reporter, snapshot.change)
    made = stand(setup, snapshot)
    alert_on_standing(setup.workspace, snapshot, made)
    checks = [
        ("✓" if check.passed else "✗", check.name, f"{check.value:.4g}", f"{check.bound:.4g}", check.explanation)
        for check in made.checks
    ]
    failed = [check.name for check in made.standing.failed]
    unsaid = [name for name in failed if name not in made.why]
    return dg.MaterializeResult(
        metadata={
            **facts,
            "fine_tune": made.fine_tune,
            "why": made.why,
            "plan": str(required(snapshot)),
            "checks": metadata.table(("passed", "check", "value", "bound", "what it says"), checks),
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


def _scored(
    context: dg.AssetExecutionContext, podium: Podium, reporter: Reporter, change: PoolChange
) -> dict[str, dg.MetadataValue]:
    """Score the champion and its opponents where scores are missing, and compare them."""
    setup, progress = podium.load(), reporter.progress(context)
    policy = champion_folder(setup.workspace, change)
    calls = ask_opponents(podium, missing, progress).calls if (missing := unanswered(setup)) else CallCounts()
    if missing := find_unscored(setup, policy):
        client = open_client(setup, "evaluation")
        with servers(setup):
            score_policy(setup, policy, CONDUCTOR, client, missing, progress)
        calls = calls + client.counts
    reporter.calls(context, calls)
    facts = compared(podium, policy, again=True) or {}
    return {"champion": dg.MetadataValue.text(change.version), **facts, **metadata.calls(calls)}
