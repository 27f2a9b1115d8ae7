"""The graders of training's reward and of evaluation: mathematics, choices, short text, programs, a user's own.

`grade` and `grade_many` accept any response text, are safe from any thread, and give the same result for the same
input. The graders themselves are in `graders`, one file each.
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

from ops.config import BenchmarkGrader
from ops.core.errors import ConfigError
from ops.core.problem import Grade, Problem
from ops.grading import hidden_tests
from ops.grading import isolation as isolation_module
from ops.grading.grader import GRADERS, OWN_GRADERS, worker_prompt
from ops.grading.isolation import Isolation, find_available_isolation
from ops.grading.verdicts import VerdictStore, is_storable

__all__ = [
    "GRADERS",
    "configure",
    "find_available_isolation",
    "find_gold_error",
    "grade",
    "grade_many",
    "worker_prompt",
]

_MEMO: LRUCache[tuple[Problem, str], Grade] = LRUCache(4096)
"""The last verdicts of this process, because rollouts of one group repeat each other's answers."""
_MEMO_LOCK = threading.Lock()
_MEMO_CHARACTERS = 20_000
"""The length from which an answer is not remembered; longer answers are rare and not worth their memory."""


@dataclass
class _VerdictStoreState:
    """The store of verdicts that `configure` opened; none before that."""

    folder: Path | None = None
    store: VerdictStore | None = None


_VERDICTS = _VerdictStoreState()


def configure(
    root: Path, isolation: Isolation = "bubblewrap", environments: Mapping[str, str] | None = None,
    verdicts: Path | None = None, graders: Iterable[BenchmarkGrader] = (),
) -> None:  # fmt: skip
    """Apply a recipe's grading settings in this process: isolation, environments, stored verdicts and own graders.

    `root` is the project's folder, `isolation` the weakest isolation of programs that is accepted, and `environments`
    the virtual environment of each benchmark's programs (a path from `root`). `verdicts` is the folder in which
    verdicts of programs are stored; with None every program runs. Called when a recipe is loaded. A process that never
    calls it runs programs in bubblewrap only.
    """
    isolation_module.configure(root, isolation, environments)
    hidden_tests.configure(root)
    OWN_GRADERS.update((grader.version, grader) for grader in graders)
    if verdicts != _VERDICTS.folder:
        if _VERDICTS.store is not None:
            _VERDICTS.store.close()
        _VERDICTS.folder, _VERDICTS.store = verdicts, VerdictStore(verdicts) if verdicts else None


def find_gold_error(problem: Problem) -> str:
    """Return why the problem's grader cannot read the gold answer or the tests; "" if it can. Executes no program."""
    if problem.grader not in GRADERS:
        return f"no grader is called {problem.grader!r}"
    return GRADERS[problem.grader].find_gold_error(problem)


def grade(problem: Problem, response: str) -> Grade:
    """Grade one response.

    Never raises because of the response's text. Raises `OSError` when no process can be started, `ConfigError` when a
    program must run and this machine has no isolation that the recipe accepts (`configure`) or when the problem's
    grader asks a judge (`ops.workflow.judging`), and `DataError` when the file of its hidden tests is damaged.
    """
    return _grade_answer(problem, GRADERS[problem.grader].extract_answer(problem, response))


def grade_many(
    pairs: Iterable[tuple[Problem, str]], *, workers: int | None = None, rerun_failures: bool = False
) -> list[Grade]:
    """Grade many responses, in their order; each distinct pair of problem and extracted answer is graded once.

    Programs run `workers` at a time (default: one per processor), each in its own process. With `rerun_failures` a
    program that failed hidden tests before runs again, because no text about these is stored.
    """
    keys = [(problem, GRADERS[problem.grader].extract_answer(problem, response)) for problem, response in pairs]
    distinct = list(dict.fromkeys(keys))
    programs = [key for key in distinct if GRADERS[key[0].grader].runs_programs]
    grades = {key: _grade_answer(*key) for key in distinct if not GRADERS[key[0].grader].runs_programs}
    if len(programs) == 1:  # without a thread, which costs more than to look up a verdict
        grades[programs[0]] = _grade_answer(*programs[0], rerun_failures)
    elif programs:
        with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
            judged = pool.map(lambda key: _grade_answer(key[0], key[1], rerun_failures), programs)
            grades.update(zip(programs, judged, strict=True))
    return [grades[key] for key in keys]


def _grade_answer(problem: Problem, answer: str, rerun_failures: bool = False) -> Grade:
    grader = GRADERS[problem.grader]
    if grader.grade_answer is None:
        what = f"is {problem.grader!r}, which grades no single answer here"
        remedy = "A run asks a judge; `podium data gold RECIPE` measures it"
        raise ConfigError("the recipe", f"benchmarks.{problem.benchmark}.grader", what, remedy)
    if (known := _find_known_verdict(problem, answer)) and (
        known.correct or not (rerun_failures and problem.has_hidden_tests)
    ):
        return known
    judge = partial(grader.grade_answer, problem, answer)
    store = _store_for(problem, answer)
    verdict = store.get_or_compute(problem, answer, judge) if store and known is None else judge()
    if verdict.is_final:
        if store and known is not None:
            store.put(problem, answer, verdict)
        _remember(problem, answer, verdict)
    return verdict


def _find_known_verdict(problem: Problem, answer: str) -> Grade | None:
    """Return the verdict that this process remembers or that is stored; None if there is none."""
    with _MEMO_LOCK:
        if (known := _MEMO.get((problem, answer))) is not None:
            return known
    if (store := _store_for(problem, answer)) and (known := store.get(problem, answer)):
        _remember(problem, answer, known)
    return known


def _store_for(problem: Problem, answer: str) -> VerdictStore | None:
    return _VERDICTS.store if is_storable(problem, answer) else None


def _remember(problem: Problem, answer: str, verdict: Grade) -> None:
    if len(answer) <= _MEMO_CHARACTERS:
        with _MEMO_LOCK:
            _MEMO[problem, answer] = verdict
