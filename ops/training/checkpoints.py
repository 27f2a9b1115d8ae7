"""The checkpoints in a run's folder: which are whole, and what a full disk does to them.

Nothing here imports torch.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.core.errors import PodiumError

CHECKPOINTS = "checkpoints"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CUT_SHORT = (*map(os.strerror, _FULL), "database or disk is full", "PytorchStreamWriter", "unexpected pos ")
"""How writers say it that raise no `OSError`: safetensors, SQLite, and torch's own, which does not say why."""


class DiskFull(PodiumError):
    """Something of a run could not be written to its end: says where, how much is free, and how to go on."""


def step_of(checkpoint: Path) -> int:
    """The step after which it was written."""
    return int(checkpoint.name.rpartition("-")[2])


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; a half-written one is passed over."""
    whole = [path for path in folder.glob("checkpoint-*") if _whole(path)]
    return max(whole, key=step_of, default=None)


def _whole(checkpoint: Path) -> bool:
    """Whether its last file is there and whole (`TimedTrainer._save_rng_state` sees to it that it is the last)."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def remove_half_written(folder: Path) -> None:
    """Remove what a crash left after the newest whole checkpoint."""
    whole = last_checkpoint(folder)
    for checkpoint in folder.glob("checkpoint-*"):
        if whole is None or step_of(checkpoint) > step_of(whole):
            shutil.rmtree(checkpoint, ignore_errors=True)


@contextmanager
def full_disk_told(run: Path) -> Iterator[None]:
    """Raises `DiskFull` for what a full disk raises meanwhile, after making room for saying so in a run's log."""
    try:
        yield
    except Exception as error:
        if not _of_a_full_disk(error):
            raise
        remove_half_written(run / CHECKPOINTS)
        free = shutil.disk_usage(run).free / 1e9
        raise DiskFull(
            f"{run}: could not be written to: the disk, or a quota on it, is full ({free:.1f} GB are free). Make "
            "room, or keep fewer checkpoints (grpo.keep_checkpoints); the same command goes on from the last whole one"
        ) from error


def _of_a_full_disk(error: BaseException | None) -> bool:
    if error is None:
        return False
    full = isinstance(error, OSError) and error.errno in _FULL
    said = any(words in str(error) for words in _CUT_SHORT)
    return full or said or _of_a_full_disk(error.__cause__ or error.__context__)
