"""Targets of the Makefile that measure a policy again and again; `test_documented_commands.py` has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.documented import finished, make

LONG = ("reproduce", "seeds", "vote", "ablations")
"""The last two are the second one's command with another study."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout after `make run`."""
    return finished(tmp_path_factory.mktemp("studies"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1400)  # less than of test_documented_commands.py, which begins first and makes the run
@pytest.mark.parametrize(
    "target", ["reproduce", "seeds", *(pytest.param(name, marks=pytest.mark.soak) for name in ("vote", "ablations"))]
)
def test_a_target_that_studies_a_policy(project: Path, target: str) -> None:
    make(project, target, "SEED=3" if target == "reproduce" else "SEEDS=3")
