"""The checkpoints in a run's folder: which are complete, and the treatment of full disks.

This module does not import torch.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.core.errors import PodiumError, causes

CHECKPOINTS = "checkpoints"
UNFINISHED = ("policy", "extensions")
"""Folders of a run that are deletable until it has its result."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CUT_SHORT = (
    *map(os.strerror, _FULL), "database or disk is full", "PytorchStreamWriter", "unexpected pos ", "basic_ios::clear",
)  # fmt: skip
"""Messages about a full disk from writers that raise no `OSError`: safetensors, SQLite, and torch, which gives no
reason."""


class DiskFull(PodiumError):
    """A file of a run could not be written; the message has the folder, the free space and how to continue."""


def step_of(checkpoint: Path) -> int:
    """Return the step after which the checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint; incomplete ones are ignored."""
    whole = [path for path in folder.glob("checkpoint-*") if _whole(path)]
    return max(whole, key=step_of, default=None)


def _whole(checkpoint: Path) -> bool:
    """Return whether the checkpoint's last file exists and is
    complete (`TimedTrainer.save_rng_state` makes it the last).
    """
    file = checkpoint / "trainer_state.json"
    try:
        if not file.is_file():  # the device used by tests of full disks is not limited
            return False
        json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _newer(checkpoint: Path, whole: Path) -> bool:
    return step_of(checkpoint) > step_of(whole)


def remove_half_written(folder: Path) -> None:
    """Remove the partial files that a crash left after the newest complete checkpoint."""
    whole = last_checkpoint(folder)
    for checkpoint in folder.glob("checkpoint-*"):
        if whole is None or _newer(checkpoint, whole):
            shutil.rmtree(checkpoint, ignore_errors=True)


@contextmanager
def full_disk_reported(folder: Path) -> Iterator[None]:
    """Turn errors of a full disk into `DiskFull`, after freeing space for a message in the run's log.

    `folder`: the folder of the run or of the policy.
    """
    try:
        yield
    except Exception as error:
        if not _of_a_full_disk(error):
            raise
        file, last = _cut_short(folder, error), last_checkpoint(folder / CHECKPOINTS)
        remove_half_written(folder / CHECKPOINTS)
        free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free / 1e9
        fewer = ", or keep fewer checkpoints (grpo.keep_checkpoints)" if (folder / CHECKPOINTS).is_dir() else ""
        where = f"from {last.name}" if last else "from its beginning"
        raise DiskFull(
            f"{file}: could not be written: the disk, or a quota on it, is full ({free:.1f} GB are free). Make room"
            f"{fewer}; the same command goes on {where}"
        ) from error


def _cut_short(folder: Path, error: BaseException) -> Path | str:
    """Return the incomplete file: the one that an error names, otherwise the newest file that is not complete.

    The errors of torch and safetensors name no file, nor does an error of writing to an open file.
    """
    for each in causes(error):
        if isinstance(each, sqlite3.Error):
            return f"{folder}: the response cache or the ledger"
        if isinstance(each, OSError) and each.filename:
            return Path(os.fsdecode(each.filename))
    roots = [folder]
    if (folder / CHECKPOINTS).is_dir():
        whole, unfinished = last_checkpoint(folder / CHECKPOINTS), [folder / name for name in UNFINISHED]
        later = [path for path in (folder / CHECKPOINTS).glob("checkpoint-*") if whole is None or _newer(path, whole)]
        roots = [*later, *unfinished]
    files = [path for root in roots for path in root.rglob("*") if not path.is_dir()]
    newest = max(files, key=lambda path: path.lstat().st_mtime_ns, default=folder)
    # The write removes a file that it cannot complete.
    tensors = any(type(each).__name__ == "SafetensorError" for each in causes(error))
    return newest.with_name("model.safetensors") if tensors and files else newest


def _of_a_full_disk(error: BaseException) -> bool:
    return any(
        (isinstance(each, OSError) and each.errno in _FULL) or any(words in str(each) for words in _CUT_SHORT)
        for each in causes(error)
    )
