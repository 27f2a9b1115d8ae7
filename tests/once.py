"""Folders that are made once in a test session and read by all of its processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

SESSION = "PODIUM_TEST_SESSION"
"""Names the session's folder to the processes that pytest-xdist starts."""
_WAIT_S = 1800.0


def begin_session(config: pytest.Config) -> None:
    """Make the session's folder, in the process that starts the others."""
    if not hasattr(config, "workerinput"):
        os.environ[SESSION] = tempfile.mkdtemp(prefix="podium-tests-")


def end_session(config: pytest.Config) -> None:
    """Remove the session's folder, in the process that made it."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(SESSION), ignore_errors=True)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` has filled, once for all processes of the session. Copy what a test changes."""
    place = Path(os.environ[SESSION]) / name
    with FileLock(f"{place}.lock", timeout=_WAIT_S):
        if not place.is_dir():
            unfinished = place.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(place)
    return place
