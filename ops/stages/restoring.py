"""Restore the damaged files of a finished training run."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from ops.conductor.policy import CARD_FILE, check_policy
from ops.core.atomic import create_folder_atomically
from ops.core.digests import DamagedFile, set_aside, write_digest
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.release.artifacts import fetch_model_folder
from ops.release.lineage import ReleaseRefusedError
from ops.release.registry import find_versions
from ops.training.run.training_run import RESULT_FILE, RunResult

log = logging.getLogger(__name__)


def restore_run(workspace: Workspace, run: Path) -> None:
    """Restore the result and the policy of the training run in folder `run` if they are damaged.

    A damaged policy is copied from a registered version with the same policy, whose files are checked. Without such a
    version, and for a damaged result, the run counts as unfinished: its training continues from the last undamaged
    checkpoint and repeats the later steps with the stored responses. Damaged files are renamed, and each is reported in
    one line.
    """
    again = "The training goes on from its last checkpoint, which makes it again."
    policy, finished = run / "policy", False
    try:
        finished = RunResult.read(run) is not None
    except DamagedFile as error:
        set_aside(run / RESULT_FILE, error, again)
    if not finished and not policy.exists():
        return
    try:
        check_policy(policy)
        if not (policy / CARD_FILE).is_file():
            raise DamagedFile(policy, "", f"has no {CARD_FILE}", "")
        return
    except DataError as error:
        if policy.exists() and not isinstance(error, DamagedFile):
            raise  # it cannot be read now
        why = error
    if policy.exists():
        set_aside(policy, why, "It is restored or made again.")
    if not finished:
        return
    if version := _restore_policy(workspace, policy, run.name):
        log.warning("%s %s. It was restored from version %s of the registry", policy, why.problem, version)
    else:
        set_aside(run / RESULT_FILE, "is about a policy that is damaged", again)


def _restore_policy(workspace: Workspace, policy: Path, key: str) -> str:
    """Copy the policy with this key from the newest registered version with undamaged files; return that version, or
    ""."""
    for registered in reversed(find_versions(workspace, key)):
        try:
            with fetch_model_folder(workspace, registered) as model, create_folder_atomically(policy) as part:
                shutil.copytree(model / "artifacts" / "policy", part, dirs_exist_ok=True)
                write_digest(part)
        except ReleaseRefusedError as error:
            log.warning("version %s cannot restore %s: %s", registered.version, policy, error)
        else:
            return registered.version
    return ""
