"""A full disk (a small file system) while a training begins, saves a checkpoint or ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.training.run.plan import read_curve
from tests import needs
from tests.unit.training.full_disk import ATTEMPTS, SETTINGS, STEPS
from tests.unit.training.tiny import ROOT, tiny_plan, train

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    needs.bubblewrap,  # which creates the small file system
]
BYTES = 4_000_000


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def attempts(disk: Path) -> list[dict[str, Any]]:
    """Return the output and the files of each of `ATTEMPTS`, made one after another on the same run."""
    inside = ["bwrap", "--dev-bind", "/", "/", "--size", str(BYTES), "--tmpfs", str(disk), "--die-with-parent"]
    program = [sys.executable, "-m", "tests.unit.training.full_disk", str(disk)]
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
    assert {line.parts[0] for line in named} >= {"checkpoints", "policy"}
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
