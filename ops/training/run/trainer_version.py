"""Record in a run's folder with which version of the trainer and its libraries the run was trained.

The version is not a part of the run's key, because a changed line of the trainer is no reason to train again. A log
line warns if a run is continued with another version.
"""

from __future__ import annotations

import json
import logging
from importlib import metadata
from pathlib import Path

from ops.core.atomic import write_text
from ops.core.code_version import UNVERSIONED_PACKAGES, code_version

TRAINERS_FILE = "trainers.json"
"""The file in a run's folder that lists the versions which trained the run, in order."""
_LIBRARIES = ("accelerate", "deepspeed", "peft", "torch", "transformers", "trl", "vllm")

log = logging.getLogger(__name__)


def record_trainer(folder: Path) -> None:
    """Record the present version for a run that begins or continues, and warn if the run's last version was another
    one."""
    now, before = trainer_version(), read_trainers(folder)
    if before and before[-1] != now:
        names = [name for name in {**before[-1], **now} if before[-1].get(name) != now.get(name)]
        changes = ", ".join(f"{name} {before[-1].get(name, 'none')} → {now.get(name, 'none')}" for name in names)
        log.warning("%s is continued with another version of the trainer: %s", folder.name, changes)
    if before[-1:] != [now]:
        write_text(folder / TRAINERS_FILE, json.dumps([*before, now], indent=1))


def read_trainers(folder: Path) -> list[dict[str, str]]:
    """Return the versions that trained the run in a folder, in order. The list is empty if none is recorded."""
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
