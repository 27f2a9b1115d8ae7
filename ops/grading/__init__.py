"""The graders of training's reward and of evaluation: mathematics, choices, short text, programs, a user's own.

What belongs here: `grade` and `grade_many`, which accept any response text, are safe from any thread, and give the same
result for the same input. What does not: the graders themselves, one file each in `graders`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachetools import LRUCache

from ops.core.errors import ConfigError
from ops.core.problem import Grade, Problem
from ops.grading import hidden_tests
from ops.grading import isolation as walls
from ops.grading.grader import GRADERS, HANGS, HANGS_ALWAYS, OwnGrader, is_final, take_graders, worker_prompt
from ops.grading.isolation import Wall, isolation
from ops.grading.verdicts import VerdictStore, is_stored

__all__ = ["GRADERS", "configure", "grade", "grade_many", "isolation", "unreadable", "worker_prompt"]

_MEMO: LRUCache[tuple[Problem, str], Grade] = LRUCache(4096)
"""Rollouts of one group repeat each other's answers."""
_MEMO_LOCK = threading.Lock()
_MEMO_CHARACTERS = 20_000
"""Longer answers are rare and not worth their memory."""


@dataclass
class _Kept:
    """The store given to `configure`; before that, none."""

    folder: Path | None = None
    store: VerdictStore | None = None


_KEPT = _Kept()


def configure(
    root: Path, wall: Wall = "bubblewrap", environments: Mapping[str, str] | None = None,
    verdicts: Path | None = None, graders: Iterable[OwnGrader] = (),
) -> None:  # fmt: skip
    """Use this isolation, these environments and these benchmarks' own graders in this process.

    `root` is the project's folder, `wall` the weakest isolation of programs that is accepted, `environments` the
    virtual environment of each benchmark's programs (a path from `root`), `verdicts` the folder in
    which verdicts of programs are stored and looked up; None: every program runs.
    Called when a recipe is loaded. A process that never calls it runs programs in bubblewrap only.
    """
    walls.configure(root, wall, environments)
    hidden_tests.configure(root)
    take_graders(graders)
    if verdicts != _KEPT.folder:
        if _KEPT.store is not None:
            _KEPT.store.close()
        _KEPT.folder, _KEPT.store = verdicts, VerdictStore(verdicts) if verdicts else None


def unreadable(problem: Problem) -> str:
    """Return why the problem's grader cannot read the gold answer or the tests; "" if it can. Executes no program."""
    if problem.grader not in GRADERS:
        return f"no grader is called {problem.grader!r}"
    return GRADERS[problem.grader].unreadable(problem)


def grade(problem: Problem, response: str) -> Grade:
    """Judge one response. Never raises on any text; `OSError` when no process can be started, and `ConfigError`
    when a program must run and this machine has no isolation that the recipe accepts (`configure`), or the problem's
    grader asks a worker (`ops.workflow.judging`), and `DataError` when the file of its hidden tests is damaged."""
    return _judge(problem, GRADERS[problem.grader].answer(problem, response))


def grade_many(
    pairs: Iterable[tuple[Problem, str]], *, workers: int | None = None, failures_again: bool = False
) -> list[Grade]:
    """Judge many responses, in their order; each distinct (problem, extracted answer) once.

    Programs run `workers` at a time (default: one per processor), each in its own process. With `failures_again` a
    program that failed before runs again, for its reasons in full.
    """
    keys = [(problem, GRADERS[problem.grader].answer(problem, response)) for problem, response in pairs]
    distinct = list(dict.fromkeys(keys))
    programs = [key for key in distinct if GRADERS[key[0].grader].runs]
    grades = {key: _judge(*key) for key in distinct if not GRADERS[key[0].grader].runs}
    if len(programs) == 1:  # without a thread, which costs more than to look up a verdict
        grades[programs[0]] = _judge(*programs[0], failures_again)
    elif programs:
        with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
            judged = pool.map(lambda key: _judge(key[0], key[1], failures_again), programs)
            grades.update(zip(programs, judged, strict=True))
    return [grades[key] for key in keys]


def _judge(problem: Problem, answer: str, failures_again: bool = False) -> Grade:
    grader = GRADERS[problem.grader]
    if grader.judge is None:
        what = f"is {problem.grader!r}, which grades no single answer here"
        remedy = "A run asks a judge; `podium data gold RECIPE` measures it"
        raise ConfigError("the recipe", f"benchmarks.{problem.benchmark}.grader", what, remedy)
    if (known := _known(problem, answer)) and (known.correct or HANGS in known.reason or not failures_again):
        return known
    every_answer = grader.every_answer(problem) if grader.every_answer and answer.strip() else None
    if every_answer and (hangs := _known(*every_answer)):
        return hangs._replace(extracted=answer)
    judge = partial(grader.judge, problem, answer)
    store = _store(problem, answer) if known is None else None  # a known verdict is judged again, and replaced
    verdict = store.judged(problem, answer, judge) if store else judge()
    if every_answer and HANGS_ALWAYS in verdict.reason:
        _keep(*every_answer, verdict)
    if store is None:
        _keep(problem, answer, verdict)
    elif is_final(verdict):
        _remember(problem, answer, verdict)
    return verdict


def _known(problem: Problem, answer: str) -> Grade | None:
    """Return the verdict that this process remembers, or that is stored."""
    with _MEMO_LOCK:
        if (known := _MEMO.get((problem, answer))) is not None:
            return known
    if (store := _store(problem, answer)) and (known := store.get(problem, answer)):
        _remember(problem, answer, known)
    return known


def _keep(problem: Problem, answer: str, verdict: Grade) -> None:
    """Remember and store a verdict that would be the same at any time."""
    if is_final(verdict):
        if store := _store(problem, answer):
            store.keep(problem, answer, verdict)
        _remember(problem, answer, verdict)


def _store(problem: Problem, answer: str) -> VerdictStore | None:
    return _KEPT.store if is_stored(problem, answer) else None


def _remember(problem: Problem, answer: str, verdict: Grade) -> None:
    if len(answer) <= _MEMO_CHARACTERS:
        with _MEMO_LOCK:
            _MEMO[problem, answer] = verdict
