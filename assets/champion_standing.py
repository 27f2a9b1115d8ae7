"""`champion_standing`: the gate's judgement of the champion on a changed pool, and the decision whether to train it
further."""

import dagster as dg

from assets import metadata
from assets.leaderboard import leaderboard
from assets.resources import Podium
from ops.retraining.standing import alert_on_standing, required, stand


@dg.asset(
    deps=[leaderboard],
    group_name="retraining",
    kinds={"mlflow"},
    check_specs=[dg.AssetCheckSpec("holds", asset="champion_standing", description="It passes the gate as it is.")],
)
def champion_standing(podium: Podium) -> dg.MaterializeResult:
    """Compare the champion on the current pool with itself before the change, and decide whether to train again.

    The job `retraining` materializes this asset; the snapshot of its run has the change.
    """
    snapshot = podium.snapshot()
    setup = podium.load()
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
            "fine_tune": made.fine_tune,
            "why": made.why,
            "plan": str(required(snapshot)),
            "champion": snapshot.change.version if snapshot.change else "",
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
