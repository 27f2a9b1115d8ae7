"""The part of a recipe that says how programs are graded: behind which wall, with which libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ops.config.base import Settings


class Grading(Settings):
    """How programs of unknown origin are run."""

    isolation: Literal["bubblewrap", "resource_limits"] = "bubblewrap"
    """The weakest wall that is accepted. "bubblewrap": where it does not work, no program is run.
    "resource_limits": where it does not work, limits and an audit hook alone, which stop accidents and not an
    attacker: for programs of known origin."""
    environments: Mapping[str, str] = Field(default={})
    """Benchmark to the virtual environment whose libraries its programs are given, where that environment is
    there; a path from the project's folder. A benchmark that is not named: `.venv-BENCHMARK`."""
