"""What several files of grading's tests need."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.config import Grading
from ops.grading import configure

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without `bwrap` on its PATH."""
    walls = importlib.import_module("ops.grading.isolation")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        walls._obstacle.cache_clear()
        yield
    walls._obstacle.cache_clear()


@pytest.fixture
def limits_alone(no_bubblewrap: None) -> None:
    """Such a machine, with a recipe that accepts it."""
    configure(Grading(isolation="resource_limits"), ROOT)
