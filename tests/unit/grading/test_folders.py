"""What a killed run leaves in the system's temporary folder, the next one sweeps."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ops.grading import folders

ROOT = Path(__file__).resolve().parents[3]
GRADES_FOR_EVER = """
import sys
from pathlib import Path
from ops.config import Grading
from ops.grading import configure, grade, isolation
from ops.core.problem import CodeTest, Problem
configure(Grading(isolation=isolation()), Path("."))
problem = Problem("p", "livecodebench", "code", "test", "?", "", "code", tests=(CodeTest("call", "f()", "42"),))
program = "import os\\nos.mkdir('kept')\\nos.chmod('kept', 0)\\nimport time\\ntime.sleep(600)"
grade(problem, f"```python\\n{program}\\n```")
"""


def left_in(place: Path) -> list[Path]:
    return [folder for folder in place.iterdir() if folder.name.startswith("podium-sandbox-")]


def grading_process(place: Path) -> subprocess.Popen[bytes]:
    """A process that has begun to grade a program that never ends."""
    environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", GRADES_FOR_EVER], env=environment, cwd=ROOT)
    while not any((folder / "kept").exists() for folder in left_in(place) if f"-{process.pid}-" in folder.name):
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_the_folders_of_a_killed_run_are_swept_by_the_next(tmp_path: Path) -> None:
    killed, living = grading_process(tmp_path), grading_process(tmp_path)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(left_in(tmp_path)) == 2
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        once = GRADES_FOR_EVER.replace("time.sleep(600)", "0")
        subprocess.run([sys.executable, "-c", once], env=environment, cwd=ROOT, check=True)
        [kept] = left_in(tmp_path)
        assert f"-{living.pid}-" in kept.name, "what a living process uses stays"
    finally:
        living.kill()
        living.wait()


def test_a_folder_that_another_process_sweeps_meanwhile_leaves_the_place_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's temporary folder is everybody's: it keeps its mode."""
    with subprocess.Popen(["true"]) as ended:
        pass
    left = tmp_path / f"podium-sandbox-{folders._process_space()}-{ended.pid}-1.00-abc"
    left.mkdir()
    rmtree = shutil.rmtree

    def late(folder: Path, **options: Any) -> None:
        rmtree(folder)
        rmtree(folder, **options)

    tmp_path.chmod(0o1777)
    monkeypatch.setattr(folders.shutil, "rmtree", late)
    assert folders.sweep(tmp_path) == [left]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_what_others_left_is_not_touched(tmp_path: Path) -> None:
    names = ("podium-sandbox-1-x-y-z", "podium-sandbox", "podium-mine", "podium-sandbox-999999-999999-1.00-abc")
    for name in names:
        (tmp_path / name).mkdir()
    assert folders.sweep(tmp_path) == []
    assert {folder.name for folder in tmp_path.iterdir()} == set(names)
