"""What precaching leaves behind: profiles in a file, and where the workers' own answers lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.store import questions_key
from ops.config import Worker, digest
from ops.core.problem import Problem
from ops.core.rows import Origin
from ops.core.workspace import Workspace
from ops.precaching.profiles import Profile, Score


class Cell(NamedTuple):
    """One partition of the responses."""

    worker: str
    benchmark: str


class Profiles(NamedTuple):
    """What `data/profiles.json` holds: a profile per worker, what the pool can do, the share of groups with signal."""

    workers: list[Profile]
    oracle: dict[str, Score]
    """Benchmark → what choosing the best worker for each problem would score."""
    best: str
    """The worker that is best in the mean over benchmarks."""
    forecast: float


def evaluation_folder(workspace: Workspace) -> Path:
    """Where the workers' own answers to the evaluation questions lie: baselines, never training data."""
    return workspace.scores / "workers"


def answers_origin(worker: Worker, questions: Sequence[Problem], samples: int) -> Origin:
    """What a worker's answers to evaluation questions are answers of."""
    return {"worker": digest(worker.identity), "questions": questions_key(questions), "samples": str(samples)}
