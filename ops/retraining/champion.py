"""Find the champion, the snapshot of its training, and the files of its policy."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ops.conductor.policy import CARD_FILE
from ops.config import Pool, PoolChange, Snapshot
from ops.core.atomic import create_folder_atomically
from ops.core.digests import write_digest
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.release import mlflow_store, registry
from ops.release.artifacts import fetch_model_folder


@dataclass(frozen=True)
class Champion:
    """The champion: its version, the key of its policy, and the snapshot of its training."""

    version: str
    policy: str
    snapshot: Snapshot

    def make_change(self, before: Pool) -> PoolChange:
        """Return the change of the champion's pool. `before` is the pool before the change."""
        return PoolChange(version=self.version, policy=self.policy, before=before)


def load_champion(workspace: Workspace) -> Champion | None:
    """Return the champion of the registry, or None. Raises `DataError` if the champion's snapshot is missing."""
    known = registry.find_champion(workspace)
    if known is None:
        return None
    key, policy = known.tags.get("snapshot", ""), known.tags.get("policy", "")
    if not (key and policy):
        remedy = "Run the lifecycle once more: retraining needs these tags"
        version = f"version {known.version} of {mlflow_store.MODEL_NAME}"
        raise DataError(version, "tags", "lack the snapshot or the policy", remedy)
    return Champion(known.version, policy, Snapshot.read(workspace.snapshots, key))


def fetch_policy(workspace: Workspace, change: PoolChange) -> Path:
    """Copy the champion's policy to `runs/KEY/policy`, for a checkout in which it was not trained.

    Raises `ReleaseRefusedError` if the registry lacks files of the version or they differ from the registered ones, and
    `DataError` if the version holds no policy.
    """
    folder = workspace.runs / change.policy / "policy"
    with fetch_model_folder(workspace, registry.get_version(workspace, change.version)) as model:
        policy = model / "artifacts" / "policy"
        if not (policy / CARD_FILE).is_file():
            problem = f"is not there, and version {change.version} contains no policy"
            raise DataError(folder, "", problem, "Train again with `podium run`")
        with create_folder_atomically(folder) as part:
            shutil.copytree(policy, part, dirs_exist_ok=True)
            write_digest(part)
    return folder
