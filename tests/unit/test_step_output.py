"""The output of a step is in its file and on the terminal while the step runs, without a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTS = """
import os, sys
import psutil
from pipelines.step_output import StepOutput
output = StepOutput(base_dir=sys.argv[1])
with output.capture_logs(["run", "compute_logs", "outer"]):
    os.system("echo of a child >&2")
    with output.capture_logs(["run", "compute_logs", "inner"]):
        print("early", file=sys.stderr, flush=True)
        sys.stdin.readline()
        print("late", file=sys.stderr, flush=True)
        print("children:", len(psutil.Process().children()), flush=True)
print("after")
"""


@pytest.fixture
def process(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRINTS, str(tmp_path)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_output_is_shown_while_the_step_runs_and_kept(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stderr is not None
    assert [process.stderr.readline(), process.stderr.readline()] == ["of a child\n", "early\n"]  # the step still runs
    printed, rest = process.communicate("\n", timeout=120)
    assert (process.returncode, printed, rest) == (0, "children: 0\nafter\n", "late\n")
    kept = tmp_path / "run" / "compute_logs"
    assert (kept / "inner.err").read_text("utf-8") == "early\nlate\n"
    assert (kept / "outer.err").read_text("utf-8") == "of a child\nearly\nlate\n"
    assert (kept / "inner.complete").is_file() and (kept / "outer.complete").is_file()


def test_a_terminal_that_is_closed_ends_no_step(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdin is not None and process.stderr is not None and process.stdout is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdin.write("\n")
    process.stdin.close()
    printed = process.stdout.read()
    assert (process.wait(120), printed) == (0, "children: 0\nafter\n")
    assert (tmp_path / "run" / "compute_logs" / "inner.err").read_text("utf-8") == "early\nlate\n"
