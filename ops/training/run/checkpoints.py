"""The checkpoints in a run's folder: which of them are complete and undamaged, and what happens if the disk is full.

This module does not import torch.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from ops.core.digests import DamagedFile, check_digest, write_digest
from ops.core.errors import PodiumError, iterate_causes

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in a run's folder."""
UNFINISHED_FOLDERS = ("policy", "extensions")
"""The folders of a run that may be deleted as long as the run has no result."""
_NAME = re.compile(r"checkpoint-\d+")
_FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_FULL_DISK_MESSAGES = (
    *map(os.strerror, _FULL_DISK_ERRORS), "database or disk is full", "PytorchStreamWriter", "unexpected pos ",
    "basic_ios::clear",
)  # fmt: skip
"""Parts of messages about a full disk from libraries that raise no `OSError`: safetensors, SQLite, and torch, which
gives no reason."""


class DiskFull(PodiumError):
    """Raised if a file of a run could not be written; the message has the file, the free space and how to continue."""


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step after which the checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder of checkpoints, or None. Incomplete ones are ignored."""
    whole = [path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name) and _is_complete(path)]
    return max(whole, key=checkpoint_step, default=None)


def find_intact_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a run's folder whose files are as they were written, or None.

    Newer checkpoints, which are damaged, are moved out of the folder of checkpoints, with a log line for each. A
    checkpoint without digests is accepted, because its training may have been killed while they were computed. Every
    byte is read, at 1 to 2 GB/s.
    """
    while (checkpoint := find_last_checkpoint(folder / CHECKPOINTS)) is not None:
        try:
            check_digest(checkpoint, "", missing="accepted")
            return checkpoint
        except DamagedFile as error:
            aside = folder / f"{checkpoint.name}.damaged-{time.time_ns()}"
            checkpoint.rename(aside)
            log.warning(
                "%s %s. It was moved to %s, and training goes on from the checkpoint before it", checkpoint,
                error.problem, aside,
            )  # fmt: skip
    return None


class CheckpointDigests:
    """Writes the digests of checkpoints in a thread while training continues.

    SHA-256 reads 1 to 2 GB/s, so it would add about a minute to saving a checkpoint of 100 GB.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None

    def start_writing(self, checkpoint: Path) -> None:
        """Start to write the digests of a complete checkpoint."""
        self.wait()
        self._thread = Thread(target=_write_digests, args=(checkpoint,), name="checkpoint-digests", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the digests are written. It is called before a checkpoint may be removed, and at the end of
        training."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _write_digests(checkpoint: Path) -> None:
    try:
        write_digest(checkpoint)
    except OSError as error:  # a checkpoint is complete without digests
        log.warning("%s: its digests could not be written (%s)", checkpoint, error)


def _is_complete(checkpoint: Path) -> bool:
    """Return True if the checkpoint's last file exists and is complete.

    `TimedTrainer.save_rng_state` ensures that the file is the last.
    """
    file = checkpoint / "trainer_state.json"
    try:
        if not file.is_file():  # tests of full disks put a device here, which could be read without end
            return False
        json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _is_newer(checkpoint: Path, whole: Path) -> bool:
    return checkpoint_step(checkpoint) > checkpoint_step(whole)


def remove_half_written(folder: Path) -> None:
    """Remove incomplete checkpoints that a crash left after the newest complete one."""
    whole = find_last_checkpoint(folder)
    for checkpoint in folder.glob("checkpoint-*"):
        if not _NAME.fullmatch(checkpoint.name):
            continue
        if whole is None or _is_newer(checkpoint, whole):
            shutil.rmtree(checkpoint, ignore_errors=True)


@contextmanager
def report_full_disk(folder: Path) -> Iterator[None]:
    """Inside the block, turn errors of a full disk into `DiskFull` and remove incomplete checkpoints to free space.

    `folder` is the folder of the run or of the policy.
    """
    try:
        yield
    except Exception as error:
        if not _is_full_disk_error(error):
            raise
        file, last = _find_incomplete_file(folder, error), find_last_checkpoint(folder / CHECKPOINTS)
        remove_half_written(folder / CHECKPOINTS)
        free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free / 1e9
        fewer = ", or keep fewer checkpoints (grpo.keep_checkpoints)" if (folder / CHECKPOINTS).is_dir() else ""
        where = f"from {last.name}" if last else "from its beginning"
        raise DiskFull(
            f"{file}: could not be written: the disk, or a quota on it, is full ({free:.1f} GB are free). Make room"
            f"{fewer}; the same command goes on {where}"
        ) from error


def _find_incomplete_file(folder: Path, error: BaseException) -> Path | str:
    """Return the file that could not be written: the one that an error names, or otherwise the newest incomplete file.

    The errors of torch and safetensors name no file, and neither does an error of writing to an open file.
    """
    for each in iterate_causes(error):
        if isinstance(each, sqlite3.Error):
            return f"{folder}: the response cache or the ledger"
        if isinstance(each, OSError) and each.filename:
            return Path(os.fsdecode(each.filename))
    roots = [folder]
    if (folder / CHECKPOINTS).is_dir():
        whole, unfinished = find_last_checkpoint(folder / CHECKPOINTS), [folder / name for name in UNFINISHED_FOLDERS]
        later = [
            path for path in (folder / CHECKPOINTS).glob("checkpoint-*") if whole is None or _is_newer(path, whole)
        ]
        roots = [*later, *unfinished]
    files = [path for root in roots for path in root.rglob("*") if not path.is_dir()]
    newest = max(files, key=lambda path: path.lstat().st_mtime_ns, default=folder)
    # safetensors removes a file that it cannot complete, so its name is not among the files.
    tensors = any(type(each).__name__ == "SafetensorError" for each in iterate_causes(error))
    return newest.with_name("model.safetensors") if tensors and files else newest


def _is_full_disk_error(error: BaseException) -> bool:
    """Return True if the error or one of its causes says that the disk is full."""
    return any(
        (isinstance(each, OSError) and each.errno in _FULL_DISK_ERRORS)
        or any(words in str(each) for words in _FULL_DISK_MESSAGES)
        for each in iterate_causes(error)
    )
