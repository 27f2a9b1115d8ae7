"""`podium` as tests call it, in this process and in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelines.commands import main

PODIUM = (sys.executable, "-c", "from pipelines.script import main; main()")
"""The script, with the code of the folder that it runs in, if that has any."""


def podium(*arguments: str) -> int:
    """Run it in this process; its exit code."""
    with pytest.raises(SystemExit) as end:
        main.podium(list(arguments), prog_name="podium")
    return int(end.value.code or 0)


def tried(*arguments: str, **environment: str | None) -> Result:
    """Run it in this process, with these variables; how it ended, and what it printed."""
    runner = CliRunner(env=environment)
    return runner.invoke(main.podium, arguments, prog_name="podium", catch_exceptions=False)


def start_run(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """`podium run` of the project in `root`, in a process group of its own, which prints into one pipe."""
    return subprocess.Popen(
        [*PODIUM, "run", *arguments],
        env=os.environ | {"PODIUM_ROOT": str(root), "COLUMNS": "120"},
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,
    )


def default_signals() -> None:
    """In a child before its program starts: SIGINT and SIGTERM end it, whatever the tests' own process inherited, for
    example from a shell that started it in the background."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def script(folder: Path) -> Path:
    """Write `podium` as a program into `folder`, which dvc.yaml's stages find on the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "podium"
    file.write_text(f'#!/bin/sh\nexec "{PODIUM[0]}" -c "{PODIUM[2]}" "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return file
