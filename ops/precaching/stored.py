"""Precaching's stored results: the profiles file and the folder of the solo workers' evaluation answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.graded import GRADER_KEY, graders_key
from ops.benchmarks.problem_files import questions_key
from ops.config import Setup, Worker, digest
from ops.core.once import Key, with_code
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.precaching.profiles import Profile, Score


class WorkerBenchmark(NamedTuple):
    """One table of the responses: a worker on a benchmark."""

    worker: str
    benchmark: str


class Profiles(NamedTuple):
    """Contents of `data/profiles.json`: profiles, the oracle's and the best worker's scores, the expected signal."""

    workers: list[Profile]
    oracle: dict[str, Score]
    """Benchmark → score of choosing the best worker for each problem."""
    best_worker: str
    """Name of the worker with the highest mean accuracy over benchmarks."""
    signal_forecast: float


def evaluation_folder(workspace: Workspace) -> Path:
    """Folder of the solo workers' answers to the evaluation questions: baselines, never training data."""
    return workspace.scores / "workers"


def with_grading_code(key: Key) -> Key:
    """Return the key of graded answers with the version of the code that asks and grades."""
    return with_code(key, "ops.precaching.precache")


def responses_key(worker: Worker, questions: Sequence[Problem], samples: int, setup: Setup | None = None) -> Key:
    """Return what a worker's graded answers depend on: worker, questions, number of samples, and graders.

    `setup`: that of the evaluation; None for precached answers (`graders_key`).
    """
    return {
        "worker": digest(worker.identity),
        "questions": questions_key(questions),
        "samples": str(samples),
        GRADER_KEY: graders_key(questions, setup),
    }
