"""The stored results of precaching: the profiles, and the folder of the single workers' evaluation answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.graded import GRADER_KEY, graders_key
from ops.benchmarks.problem_files import questions_key
from ops.config import Setup, Worker, digest
from ops.core.once import Key, add_code_version
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.precaching.profiles import Profile, Score


class WorkerBenchmark(NamedTuple):
    """A pair of worker and benchmark, which has one table of responses."""

    worker: str
    benchmark: str


class Profiles(NamedTuple):
    """The contents of `data/profiles.json`: the workers' profiles, the oracle's scores, the best worker, the expected
    signal."""

    workers: list[Profile]
    oracle: dict[str, Score]
    """Benchmark → the score of choosing the best worker for each problem."""
    best_worker: str
    """The name of the worker with the highest mean accuracy over benchmarks."""
    signal_forecast: float
    """The expected share (0 to 1) of GRPO groups whose rewards differ."""


def evaluation_folder(workspace: Workspace) -> Path:
    """Return the folder of the single workers' answers to the evaluation questions, which are never used for
    training."""
    return workspace.scores / "workers"


def with_grading_code(key: Key) -> Key:
    """Return the key of graded answers with the version of the code that asks and grades."""
    return add_code_version(key, "ops.precaching.precache")


def responses_key(worker: Worker, questions: Sequence[Problem], samples: int, setup: Setup | None = None) -> Key:
    """Return the key of a worker's graded answers: the worker, the questions, the number of samples, and the graders.

    `setup` is that of the evaluation, and None for precached answers (see `graders_key`).
    """
    return {
        "worker": digest(worker.identity),
        "questions": questions_key(questions),
        "samples": str(samples),
        GRADER_KEY: graders_key(questions, setup),
    }
