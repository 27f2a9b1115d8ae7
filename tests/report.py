"""What pytest prints at the end: what was skipped and why, and the command that repeats each failure alone."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest


def skipped_lines(reasons: Counter[str]) -> list[str]:
    """A line for each reason, the most frequent first."""
    return [
        f"{count} skipped: {reason}" for reason, count in sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    ]


def repeat_lines(nodes: list[str]) -> list[str]:
    """The command that runs each test alone; long and soak tests too, which the default options leave out."""
    python = Path(sys.executable)
    shown = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
    return [f"{shown} -m pytest -m '' {shlex.quote(node)}" for node in nodes]


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Called by pytest, in the process that prints."""
    known = terminalreporter.stats
    if skipped := known.get("skipped"):
        terminalreporter.section("skipped")
        for line in skipped_lines(Counter(map(reason_of, skipped))):
            terminalreporter.write_line(line)
    if failed := [report.nodeid for kind in ("failed", "error") for report in known.get(kind, [])]:
        terminalreporter.section("run a failed test alone")
        for line in repeat_lines(list(dict.fromkeys(failed))):
            terminalreporter.write_line(line)
