"""Fixtures of several grading tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ops.grading import configure, sandbox

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without `bwrap` on its PATH."""
    walls = importlib.import_module("ops.grading.isolation")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        walls._why_bubblewrap_fails.cache_clear()
        yield
    walls._why_bubblewrap_fails.cache_clear()


@pytest.fixture
def limits_alone(no_bubblewrap: None) -> None:
    """The same machine with a recipe that accepts it."""
    configure(ROOT, "resource_limits")


def run_late_programs_once(patch: pytest.MonkeyPatch) -> None:
    """Reuse the first result of a program that ran out of time for its second attempt."""
    real, late = sandbox.run, {}

    def run(kind: Any, program: str, *rest: Any, **more: Any) -> sandbox.SandboxResult:
        if (kind, program) in late:
            return late[kind, program]
        done = real(kind, program, *rest, **more)
        if done.has_timed_out:
            late[kind, program] = done
        return done

    patch.setattr(sandbox, "run", run)


class Ran(NamedTuple):
    """One run of a program in the sandbox."""

    tests: int
    limits: sandbox.ProgramLimits


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Ran]:
    """Every run, in order."""
    seen: list[Ran] = []
    real = sandbox.run

    def noted(kind: Any, program: str, tests: Any, limits: sandbox.ProgramLimits, **more: Any) -> sandbox.SandboxResult:
        seen.append(Ran(len(tests), limits))
        return real(kind, program, tests, limits, **more)

    monkeypatch.setattr(sandbox, "run", noted)
    return seen


@pytest.fixture
def late_programs_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run_late_programs_once(monkeypatch)
