"""A full disk (a small file system) while a training begins, saves a checkpoint or ends.

`python -m tests.unit.training.test_full_disk DISK` trains on DISK, a separate small file system, which fills up at
several moments and finally has enough space. It prints a JSON line for each attempt.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from ops.training.run.checkpoints import CHECKPOINTS, DiskFull, find_last_checkpoint, report_full_disk
from ops.training.run.training_run import RESULT_FILE, RunPlan, read_curve
from tests import needs
from tests.unit.training.tiny import ROOT, VARIED, tiny_plan, train

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    needs.bubblewrap,  # which creates the small file system
]
Moment = Literal["start", "save", "end", "never"]
ATTEMPTS: tuple[tuple[Moment, int], ...] = (
    ("save", 300), ("start", 0), ("save", 0), ("save", 30), ("save", 120), ("save", 200), ("end", 0), ("end", 20),
    ("end", 60), ("never", 0),
)  # fmt: skip
"""When the disk fills up, and the remaining KiB. A checkpoint is saved after every step."""
BYTES, KIB, BALLAST, STEPS = 4_000_000, 1024, "ballast", 3
SETTINGS: dict[str, Any] = {"steps": STEPS, **VARIED, "temperature": 1.2}


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


def attempt(plan: RunPlan, folder: Path, moment: Moment, left: int) -> dict[str, Any]:
    """Return the output of one command, and the files that it left."""
    said, filling = "", Filling(plan.root, moment, left)
    try:
        filling.fill("start")
        with report_full_disk(folder):
            train(plan, folder, callbacks=[filling])
    except DiskFull as error:
        said = str(error)
    finally:
        (plan.root / BALLAST).unlink(missing_ok=True)
    whole = find_last_checkpoint(folder / CHECKPOINTS)
    if whole is not None:
        AutoModelForCausalLM.from_pretrained(whole)
        torch.load(whole / "optimizer.pt")
    return {
        "moment": moment, "left": left, "said": said, "whole": whole.name if whole else None,
        "checkpoints": sorted(path.name for path in (folder / CHECKPOINTS).glob("checkpoint-*")),
        "curve": [row["reward"] for row in read_curve(folder)], "result": (folder / RESULT_FILE).is_file(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def attempts(disk: Path) -> list[dict[str, Any]]:
    """Return the output and the files of each of `ATTEMPTS`, made one after another on the same run."""
    inside = ["bwrap", "--dev-bind", "/", "/", "--size", str(BYTES), "--tmpfs", str(disk), "--die-with-parent"]
    program = [sys.executable, "-m", "tests.unit.training.test_full_disk", str(disk)]
    ran = subprocess.run(
        [*inside, *program], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=480
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def test_each_attempt_ends_in_one_line_that_names_the_file_and_the_remedy(
    attempts: list[dict[str, Any]], disk: Path
) -> None:
    assert [(line["moment"], line["left"]) for line in attempts] == list(ATTEMPTS)
    named = []
    for line in attempts[:-1]:
        file, _, rest = line["said"].partition(": could not be written: ")
        assert "\n" not in line["said"] and Path(file).is_relative_to(disk)
        assert "is full" in rest and "Make room" in rest and rest.endswith(f"goes on from {line['whole']}")
        named.append(Path(file).relative_to(disk / "run"))
    assert {"curve.jsonl", "model.safetensors", "optimizer.pt"} <= {file.name for file in named}
    # A library that does not say which file it wrote is reported by the run's folder.
    assert {line.parts[0] for line in named if line.parts} >= {"checkpoints", "policy"}
    assert attempts[-1]["said"] == ""


def test_the_last_whole_checkpoint_stays_and_nothing_half_written_is_left(attempts: list[dict[str, Any]]) -> None:
    steps = [int(line["whole"].rpartition("-")[2]) for line in attempts]
    assert steps == sorted(steps) and steps[0] == 1 and steps[-1] == STEPS
    for line in attempts:
        assert line["checkpoints"][-1] == line["whole"]
        assert line["result"] is (line["moment"] == "never")


def test_with_room_again_the_run_ends_as_if_there_had_always_been_some(
    attempts: list[dict[str, Any]], tmp_path: Path
) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS)
    train(plan, folder)
    rewards = [row["reward"] for row in read_curve(folder)]
    assert attempts[-1]["curve"] == rewards and len(set(rewards)) > 1
    for line in attempts:
        assert line["curve"] == rewards[: len(line["curve"])]
        assert len(line["curve"]) >= int(line["whole"].rpartition("-")[2])


if __name__ == "__main__":
    made = tiny_plan(Path(sys.argv[1]), **SETTINGS)
    for each in ATTEMPTS:
        print(json.dumps(attempt(*made, *each)), flush=True)
