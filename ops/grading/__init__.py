"""The graders of training's reward and of evaluation: mathematics, choices, short text, programs.

What belongs here: `grade` and `grade_many`, which accept any response text, are safe from any thread, and give the same
result for the same input. What does not: the graders themselves, one file each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cachetools import LRUCache

from ops.core.problem import AnswerForm, Grade, Problem
from ops.grading import choice, code, math, text
from ops.grading.isolation import configure, isolation
from ops.grading.readable import unreadable

__all__ = ["configure", "grade", "grade_many", "isolation", "unreadable"]


class Grader(NamedTuple):
    """`extracted` finds the answer in a response; `judge` compares it with the gold one."""

    extracted: Callable[[Problem, str], str]
    judge: Callable[[Problem, str], Grade]


GRADERS: dict[AnswerForm, Grader] = {
    "math": Grader(math.extracted, math.judge),
    "choice": Grader(choice.extracted, choice.judge),
    "text": Grader(text.extracted, text.judge),
    "code": Grader(code.extracted, code.judge),
}
_MEMO: LRUCache[tuple[Problem, str], Grade] = LRUCache(4096)
"""Rollouts of one group repeat each other's answers."""
_MEMO_LOCK = threading.Lock()
_MEMO_CHARACTERS = 20_000
"""Longer answers are rare and not worth their memory."""


def grade(problem: Problem, response: str) -> Grade:
    """Judge one response. Never raises on any text; `OSError` when no process can be started, and `ConfigError`
    when a program must run and this machine has no isolation that the recipe accepts (`configure`)."""
    return _judge(problem, GRADERS[problem.grader].extracted(problem, response))


def grade_many(pairs: Iterable[tuple[Problem, str]], *, workers: int | None = None) -> list[Grade]:
    """Judge many responses, in their order; each distinct (problem, extracted answer) once.

    Programs run `workers` at a time (default: one per processor), each in its own process.
    """
    keys = [(problem, GRADERS[problem.grader].extracted(problem, response)) for problem, response in pairs]
    distinct = list(dict.fromkeys(keys))
    programs = [key for key in distinct if key[0].grader == "code"]
    grades = {key: _judge(*key) for key in distinct if key[0].grader != "code"}
    if programs:
        with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
            grades.update(zip(programs, pool.map(lambda key: _judge(*key), programs), strict=True))
    return [grades[key] for key in keys]


def _judge(problem: Problem, answer: str) -> Grade:
    key = (problem, answer)
    with _MEMO_LOCK:
        if (known := _MEMO.get(key)) is not None:
            return known
    verdict = GRADERS[problem.grader].judge(problem, answer)
    if (problem.grader != "code" or code.is_final(verdict)) and len(answer) <= _MEMO_CHARACTERS:
        with _MEMO_LOCK:
            _MEMO[key] = verdict
    return verdict
