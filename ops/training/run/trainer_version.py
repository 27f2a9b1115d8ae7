"""The version of the trainer and its libraries with which a run was trained, in the run's folder.

It is not a part of the run's key: nobody trains again because a line of the trainer changed. A run that is continued
with another version says so.
"""

from __future__ import annotations

import json
import logging
from importlib import metadata
from pathlib import Path

from ops.core.atomic import write_text
from ops.core.code_version import UNVERSIONED_PACKAGES, code_version

TRAINERS_FILE = "trainers.json"
"""File in a run's folder: the versions that trained it, in order."""
_LIBRARIES = ("accelerate", "deepspeed", "peft", "torch", "transformers", "trl", "vllm")

log = logging.getLogger(__name__)


def record_trainer(folder: Path) -> None:
    """Record the present version for a run that begins or continues; warn if its last one was another."""
    now, before = trainer_version(), read_trainers(folder)
    if before and before[-1] != now:
        names = [name for name in {**before[-1], **now} if before[-1].get(name) != now.get(name)]
        changes = ", ".join(f"{name} {before[-1].get(name, 'none')} → {now.get(name, 'none')}" for name in names)
        log.warning("%s is continued with another version of the trainer: %s", folder.name, changes)
    if before[-1:] != [now]:
        write_text(folder / TRAINERS_FILE, json.dumps([*before, now], indent=1))


def read_trainers(folder: Path) -> list[dict[str, str]]:
    """Return the versions that trained the run in a folder, in order; empty if none is recorded."""
    try:
        recorded: list[dict[str, str]] = json.loads((folder / TRAINERS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return recorded


def trainer_version() -> dict[str, str]:
    """Return the version of the trainer's code, and those of the libraries that compute its result."""
    without = tuple(package for package in UNVERSIONED_PACKAGES if package != "ops.training")
    versions = {"code": code_version("ops.training.grpo.__main__", without=without)}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
