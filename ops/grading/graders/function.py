"""A user's Python function, run in the sandbox for each answer, as programs are.

A function that fails gives no credit: an answer that makes it fail would otherwise be left out of every mean. One that
always fails is found by the gold answers, which are graded before any worker is asked.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

from ops.core.problem import Grade, Problem
from ops.grading import sandbox
from ops.grading.grader import MAX_CHARACTERS, NOT_FINAL, Grader, own_grader
from ops.grading.graders.code import GRACE, LIMITS, slowness
from ops.grading.isolation import libraries


class Function(Protocol):
    """The settings of `ops.config.FunctionGrader`."""

    @property
    def function(self) -> str: ...

    @property
    def source(self) -> str: ...


def judge(problem: Problem, answer: str) -> Grade:
    """Call the function. An exception, a lack of time, or a value that is not a number from 0 to 1 scores 0."""
    if not answer:
        return Grade(0.0, "", "no answer found")
    if len(answer) > MAX_CHARACTERS:
        return Grade(0.0, answer[:200], f"longer than {MAX_CHARACTERS} characters")
    own = cast("Function", own_grader(problem))
    for grace in (1.0, GRACE):
        ran = _run(problem, answer, own, grace)
        if not ran.overran:
            break
    score, why = _score(ran)
    if score is None:
        late = f" ({NOT_FINAL}: a faster machine may say otherwise)" if ran.overran else ""
        return Grade(0.0, answer, f"the grader's function {own.function} failed: {why}{late}")
    return Grade(score, answer, f"{own.function} gave {score:g}")


def _run(problem: Problem, answer: str, own: Function, grace: float) -> sandbox.SandboxResult:
    shown = {
        "id": problem.id, "question": problem.question, "answer": problem.answer, "choices": list(problem.choices),
        "subject": problem.subject, "level": problem.level,
    }  # fmt: skip
    call = f"{own.function}({shown!r}, {answer!r})"
    limits = LIMITS["call"].times(slowness(), grace)
    return sandbox.run("call", own.source, [call], limits, chosen=libraries(problem.benchmark))


def _score(ran: sandbox.SandboxResult) -> tuple[float | None, str]:
    """Return the score; None and the reason if there is none."""
    if ran.results is None or len(ran.results) != 1:
        return None, ran.why or "ended without an answer"
    [(status, value)] = ran.results
    if status != "ok":
        return None, str(value)
    if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
        return float(value), ""
    return None, f"it gave {_shown(value)}, not True, False or a number from 0 to 1"


def _shown(value: Any) -> str:
    match value:
        case {"other": str(kind)}:
            return f"an object of type {kind[:40]}"
        case dict():
            return f"a {next(iter(value), 'dict')}"
    return f"{value!r:.60}"


GRADER = Grader("function", judge=judge, gold="{}", needs_gold=False, runs=True, own=True)
