"""Say whether the version that a rollback would bring back holds with the pool of the present champion."""

from __future__ import annotations

from ops.config import Pool
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.mlflow_store import MODEL_NAME, RegisteredVersion, RegistryError, connect
from ops.release.promotion import GateDecision

STANDING_TAG, STANDING_POOL_TAG = "standing", "standing_pool"
"""Tags of a version that was champion when its pool changed: the gate's result on the changed pool, and the two keys
of that pool."""
PASSES = "passes the gate"


def record_standing(workspace: Workspace, version: str, pool: Pool, decision: GateDecision) -> None:
    """Tag a version with the gate's result for it on a changed pool. Raises `RegistryError`."""
    failed = "; ".join(check.describe_value() for check in decision.failed)
    tags = {
        STANDING_TAG: f"fails the gate ({failed})" if failed else PASSES,
        STANDING_POOL_TAG: f"{pool.answers_key}:{pool.prices_key}",
    }
    with connect(workspace) as client:
        for name, value in tags.items():
            client.set_model_version_tag(MODEL_NAME, version, name, value)


def explain_unfit(target: RegisteredVersion, champion: RegisteredVersion) -> str:
    """Return what is wrong with a version on the pool of the champion; empty if it holds there."""
    answers_key = champion.tags.get("pool_answers_key", "")
    if target.tags.get(STANDING_POOL_TAG, "").partition(":")[0] == answers_key:
        standing = target.tags[STANDING_TAG]
        return "" if standing == PASSES else f"with the present pool it {standing}"
    if target.tags.get("pool_answers_key") == answers_key:
        return ""
    return "it was not evaluated with the present pool"


def describe_way_back(workspace: Workspace) -> str:
    """Return one sentence on how to undo the last promotion; empty if the champion replaced no version.

    It offers the command only if the previous version holds for the present pool.
    """
    champion = registry.find_champion(workspace)
    if champion is None:
        return ""
    try:
        target = aliases.find_rollback_target(workspace)
    except RegistryError:
        return ""
    if unfit := explain_unfit(target, champion):
        return f"No earlier version holds: version {target.version} is the previous champion, and {unfit}"
    return f"`podium rollback --reason WHY` makes version {target.version} champion again"
