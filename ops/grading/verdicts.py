"""The stored verdicts on programs, so that no program runs twice.

Everything that a verdict depends on is in its key: the grader's version (`ops.grading.version`), the isolation, the
tests and the program. A stored verdict has a score and a reason; it never has a program, a question, or any text about
hidden tests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from ops.core.problem import CodeTest, FailedTest, Grade, HiddenTests, Problem, TestKind
from ops.grading.grader import GRADERS, MAX_CHARACTERS
from ops.grading.isolation import choose_isolation, program_libraries
from ops.grading.version import grader_version
from ops.store import ComputedValue, Kind, ValueStore, open_backend

WITHHELD = "it failed before, and no text about hidden tests is kept"


def is_storable(problem: Problem, answer: str) -> bool:
    """Return whether a verdict on this answer takes a process, so that it is stored."""
    return GRADERS[problem.grader].runs_programs and bool(answer.strip()) and len(answer) <= MAX_CHARACTERS


class VerdictStore:
    """The stored verdicts of a workspace, for any number of processes and threads.

    Only one of them at a time grades a program. An entry that is damaged or not a verdict counts as missing, and the
    next verdict replaces it. Raises the errors of `ValueStore`, and `ConfigError` as a run does.
    """

    def __init__(self, folder: Path) -> None:
        self._store = ValueStore(open_backend(folder), Kind.VERDICT, _decode_verdict)

    def get(self, problem: Problem, program: str) -> Grade | None:
        """Return the stored verdict on this program; None if there is none."""
        key = _verdict_key(problem, program)
        verdict = self._store.get([key]).get(key)
        return None if verdict is None else verdict._replace(extracted=program)

    def get_or_compute(self, problem: Problem, program: str, judge: Callable[[], Grade]) -> Grade:
        """Return the stored verdict on this program, or that of `judge`, which is stored if it is final."""

        def compute(keys: list[str]) -> Mapping[str, ComputedValue[Grade]]:
            verdict = judge()
            return {
                key: ComputedValue(verdict, _encode_verdict(problem, verdict) if verdict.is_final else None)
                for key in keys
            }

        key = _verdict_key(problem, program)
        verdict = self._store.get_or_compute([key], compute)[key]
        return verdict if verdict.extracted else verdict._replace(extracted=program)

    def put(self, problem: Problem, program: str, verdict: Grade) -> None:
        """Store a verdict that is the same on any machine, in place of an earlier one."""
        self._store.put({_verdict_key(problem, program): _encode_verdict(problem, verdict)})

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        self._store.close()


# ── keys ─────────────────────────────────────────────────────────────────────


def _verdict_key(problem: Problem, program: str) -> str:
    parts = (grader_version(problem.grader, program_libraries(problem.benchmark)), choose_isolation())
    own = problem.as_row() if problem.grading else None  # a function sees the problem
    return _digest([*parts, _tests_key(problem.tests, problem.hidden), own, program])


@lru_cache(maxsize=1024)
def _tests_key(tests: tuple[CodeTest, ...], hidden: HiddenTests | None) -> str:
    return _digest([*(test.as_row() for test in tests), *([hidden.digest] if hidden else [])])


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# ── rows ─────────────────────────────────────────────────────────────────────


def _encode_verdict(problem: Problem, verdict: Grade) -> Any:
    reason, failed = verdict.reason, verdict.failed
    if not verdict.correct and problem.has_hidden_tests:
        reason = WITHHELD
        if failed is not None:
            failed = failed._replace(got=WITHHELD, expected="")
            reason = str(failed)
    return [verdict.score, reason, failed]


def _decode_verdict(value: Any) -> Grade | None:
    """Return the verdict of a stored value, without the program; None for a value that is no verdict."""
    match value:
        case [float(score), str(reason), None] if 0 <= score <= 1:
            return Grade(score, "", reason)
        case [0.0, str(reason), [int(number), int(of), str(kind), str(got), str(expected), bool(hidden)]]:
            failed = FailedTest(number, of, cast("TestKind", kind), got, expected, hidden)
            return Grade(0.0, "", reason, failed)
    return None
