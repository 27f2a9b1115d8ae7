"""The graders of training's reward and of evaluation: mathematics, choices, short text, programs, a user's own.

What belongs here: `grade` and `grade_many`, which accept any response text, are safe from any thread, and give the same
result for the same input. What does not: the graders themselves, one file each in `graders`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cachetools import LRUCache

from ops.core.errors import ConfigError
from ops.core.problem import Grade, Problem
from ops.grading import isolation as walls
from ops.grading.grader import GRADERS, OwnGrader, is_final, take_graders, worker_prompt
from ops.grading.isolation import GradingSettings, isolation

__all__ = ["GRADERS", "configure", "grade", "grade_many", "isolation", "unreadable", "worker_prompt"]

_MEMO: LRUCache[tuple[Problem, str], Grade] = LRUCache(4096)
"""Rollouts of one group repeat each other's answers."""
_MEMO_LOCK = threading.Lock()
_MEMO_CHARACTERS = 20_000
"""Longer answers are rare and not worth their memory."""


def configure(settings: GradingSettings, root: Path, graders: Iterable[OwnGrader] = ()) -> None:
    """Use these grading settings and these benchmarks' own graders in this process; `root` is the project's folder.

    Called when a recipe is loaded. A process that never calls it runs programs in bubblewrap only.
    """
    walls.configure(settings, root)
    take_graders(graders)


def unreadable(problem: Problem) -> str:
    """Return why the problem's grader cannot read the gold answer or the tests; "" if it can. Executes no program."""
    if problem.grader not in GRADERS:
        return f"no grader is called {problem.grader!r}"
    return GRADERS[problem.grader].unreadable(problem)


def grade(problem: Problem, response: str) -> Grade:
    """Judge one response. Never raises on any text; `OSError` when no process can be started, and `ConfigError`
    when a program must run and this machine has no isolation that the recipe accepts (`configure`), or the problem's
    grader asks a worker (`ops.workflow.judging`)."""
    return _judge(problem, GRADERS[problem.grader].extracted(problem, response))


def grade_many(pairs: Iterable[tuple[Problem, str]], *, workers: int | None = None) -> list[Grade]:
    """Judge many responses, in their order; each distinct (problem, extracted answer) once.

    Programs run `workers` at a time (default: one per processor), each in its own process.
    """
    keys = [(problem, GRADERS[problem.grader].extracted(problem, response)) for problem, response in pairs]
    distinct = list(dict.fromkeys(keys))
    programs = [key for key in distinct if GRADERS[key[0].grader].runs]
    grades = {key: _judge(*key) for key in distinct if not GRADERS[key[0].grader].runs}
    if programs:
        with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
            grades.update(zip(programs, pool.map(lambda key: _judge(*key), programs), strict=True))
    return [grades[key] for key in keys]


def _judge(problem: Problem, answer: str) -> Grade:
    key = (problem, answer)
    with _MEMO_LOCK:
        if (known := _MEMO.get(key)) is not None:
            return known
    if (judge := GRADERS[problem.grader].judge) is None:
        what = f"is {problem.grader!r}, which grades no single answer here"
        remedy = "A run asks a judge; `podium data gold RECIPE` measures it"
        raise ConfigError("the recipe", f"benchmarks.{problem.benchmark}.grader", what, remedy)
    verdict = judge(problem, answer)
    if is_final(verdict) and len(answer) <= _MEMO_CHARACTERS:
        with _MEMO_LOCK:
            _MEMO[key] = verdict
    return verdict
