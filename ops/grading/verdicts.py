"""Verdicts of programs in one SQLite file beside the response cache, so that no program runs twice.

What a verdict depends on is in its key: the grader's version (`ops.grading.version`), the isolation, the tests and the
program. A stored row has a score and a reason; it never has a program, a question, or any text about hidden tests.
"""

from __future__ import annotations

import hashlib
import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from ops.core.problem import CodeTest, FailedTest, Grade, HiddenTests, Problem, TestKind
from ops.core.value_store import ValueStore
from ops.grading.grader import GRADERS, MAX_CHARACTERS
from ops.grading.isolation import accepted_wall, libraries
from ops.grading.version import grader_version

log = logging.getLogger(__name__)

NAME = "verdicts.sqlite"
WITHHELD = "it failed before, and no text about hidden tests is kept"


def is_stored(problem: Problem, answer: str) -> bool:
    """Return whether the verdict on this answer takes a process, so that it is stored."""
    return GRADERS[problem.grader].runs and bool(answer.strip()) and len(answer) <= MAX_CHARACTERS


class VerdictStore:
    """The stored verdicts of a workspace, for any number of processes and threads (`ValueStore`).

    An entry that is damaged or not a verdict counts as missing, and the next verdict replaces it. Raises `DataError`
    for a file that cannot be used now.
    """

    def __init__(self, folder: Path) -> None:
        self._store = ValueStore(folder / NAME)

    def get(self, problem: Problem, program: str) -> Grade | None:
        """Return the stored verdict on this program; None if there is none. Raises `ConfigError` as a run does."""
        key = _key(problem, program)
        text = self._store.get([key]).get(key)
        if text is None:
            return None
        verdict = _grade(text, program)
        if verdict is None:
            self._store.delete(key)
        return verdict

    def keep(self, problem: Problem, program: str, verdict: Grade) -> None:
        """Store a verdict that is the same on any machine (`grader.is_final`)."""
        self._store.put({_key(problem, program): _text(problem, verdict)})

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        self._store.close()


# ── keys ─────────────────────────────────────────────────────────────────────


def _key(problem: Problem, program: str) -> str:
    parts = (grader_version(problem.grader, libraries(problem.benchmark)), accepted_wall())
    own = problem.as_row() if problem.grading else None  # a function sees the problem
    return _digest([*parts, _tests_key(problem.tests, problem.hidden), own, program])


@lru_cache(maxsize=1024)
def _tests_key(tests: tuple[CodeTest, ...], hidden: HiddenTests | None) -> str:
    return _digest([*(test.as_row() for test in tests), *([hidden.digest] if hidden else [])])


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# ── rows ─────────────────────────────────────────────────────────────────────


def _text(problem: Problem, verdict: Grade) -> str:
    reason, failed = verdict.reason, verdict.failed
    if not verdict.correct and (problem.hidden or any(test.hidden for test in problem.tests)):
        reason = WITHHELD
        if failed is not None:
            failed = failed._replace(got=WITHHELD, expected="")
            reason = str(failed)
    return json.dumps([verdict.score, reason, failed])


def _grade(text: str, program: str) -> Grade | None:
    try:
        match json.loads(text):
            case [float(score), str(reason), None] if 0 <= score <= 1:
                return Grade(score, program, reason)
            case [0.0, str(reason), [int(number), int(of), str(kind), str(got), str(expected), bool(hidden)]]:
                return Grade(
                    0.0, program, reason, FailedTest(number, of, cast("TestKind", kind), got, expected, hidden)
                )
        raise ValueError("the row is not a verdict")
    except ValueError as error:
        log.warning("a stored verdict was ignored (%s): the program runs again", error)
        return None
