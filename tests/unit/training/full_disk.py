"""Train on a disk that fills up at several moments, and finally on one with enough space.

`python -m tests.unit.training.full_disk DISK` prints a JSON line for
each attempt. DISK is a separate small file system.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from ops.training.grpo.trainer import run
from ops.training.run.checkpoints import CHECKPOINTS, DiskFull, full_disk_reported, last_checkpoint
from ops.training.run.plan import RESULT, RunPlan, read_curve
from tests.unit.training.tiny import tiny_plan

Moment = Literal["start", "save", "end", "never"]
ATTEMPTS: tuple[tuple[Moment, int], ...] = (
    ("save", 300), ("start", 0), ("save", 0), ("save", 30), ("save", 120), ("save", 200), ("end", 0), ("end", 20),
    ("end", 60), ("never", 0),
)  # fmt: skip
"""When the disk fills up, and the remaining KiB. A checkpoint is saved after every step."""
KIB, BALLAST, STEPS = 1024, "ballast", 3
SETTINGS: dict[str, Any] = {"steps": STEPS, "learning_rate": 1e-3, "temperature": 1.5}


class Filling(TrainerCallback):  # type: ignore[misc]
    """Fill a disk at one moment of a training."""

    def __init__(self, disk: Path, moment: Moment, left: int) -> None:
        self._disk, self._moment, self._left = disk, moment, left * KIB

    def fill(self, moment: Moment) -> None:
        free = shutil.disk_usage(self._disk).free
        if moment == self._moment and free > self._left:
            with (self._disk / BALLAST).open("ab") as file:
                os.posix_fallocate(file.fileno(), file.tell(), free - self._left)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step > 1:
            self.fill("save")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.fill("end")


@contextmanager
def filled(disk: Path, moment: Moment, left: int) -> Iterator[Filling]:
    filling = Filling(disk, moment, left)
    try:
        filling.fill("start")
        yield filling
    finally:
        (disk / BALLAST).unlink(missing_ok=True)


def attempt(plan: RunPlan, folder: Path, moment: Moment, left: int) -> dict[str, Any]:
    """Return the output of one command, and the files that it left."""
    said = ""
    with filled(plan.root, moment, left) as filling:
        try:
            with full_disk_reported(folder):
                run(plan, folder, lambda *_: None, [filling])
        except DiskFull as error:
            said = str(error)
    whole = last_checkpoint(folder / CHECKPOINTS)
    if whole is not None:
        AutoModelForCausalLM.from_pretrained(whole)
        torch.load(whole / "optimizer.pt")
    return {
        "moment": moment, "left": left, "said": said, "whole": whole.name if whole else None,
        "checkpoints": sorted(path.name for path in (folder / CHECKPOINTS).glob("checkpoint-*")),
        "curve": [row["reward"] for row in read_curve(folder)], "result": (folder / RESULT).is_file(),
    }  # fmt: skip


if __name__ == "__main__":
    made = tiny_plan(Path(sys.argv[1]), **SETTINGS)
    for each in ATTEMPTS:
        print(json.dumps(attempt(*made, *each)), flush=True)
