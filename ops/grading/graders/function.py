"""A user's Python function, which runs in the sandbox for each answer, as programs do.

A function that fails gives no credit, because an answer that makes it fail would otherwise be left out of every
average. A function that always fails is found by the gold answers, which are graded before any worker is asked.

A call has the time of `LIMITS["call"]`: 4 s of CPU time and 10 s by the clock, each multiplied by this machine's
slowness. A function that does not end in this time is stopped once, and the failure is final. A second call, with the
reference answer, shows whether only this answer is concerned: if it ends, other answers are graded as before; if not,
this process calls the function with no other answer.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any

from ops.config import FunctionGrader
from ops.core.problem import Grade, Problem
from ops.grading import sandbox
from ops.grading.grader import MAX_CHARACTERS, Grader, find_own_grader, grade_failure
from ops.grading.graders.code import LIMITS, measure_slowness
from ops.grading.isolation import program_libraries
from ops.grading.values import shorten

_LOG = logging.getLogger(__name__)
_OTHER_ANSWER = "0"
"""The answer of the second call if the function timed out on the reference answer, or if there is none."""
_TRIVIAL_FUNCTION = "def grade(problem, answer):\n    return 1\n"
"""A function that ends immediately, which shows whether the machine runs programs at all."""
_HAS_ENDED: dict[str, bool] = {}
"""Version of a function that was called in this process → whether any call of it ended."""
_PROBE_LOCK = threading.Lock()


def grade_answer(problem: Problem, answer: str) -> Grade:
    """Call the function. An exception, a lack of time, or a value that is not a number from 0 to 1 scores 0."""
    if not answer:
        return Grade(0.0, "", "no answer found")
    if len(answer) > MAX_CHARACTERS:
        return Grade(0.0, answer[:200], f"longer than {MAX_CHARACTERS} characters")
    own = find_own_grader(problem, FunctionGrader)
    failed = f"the grader's function {own.function} failed: "
    if not _HAS_ENDED.get(own.version, True):
        return Grade(0.0, answer, f"{failed}it was stopped on other answers")
    ran = _call_function(problem, answer, own.function, own.source)
    if ran.has_timed_out and _is_machine_at_fault(problem, answer, ran):
        return grade_failure(answer, f"{failed}{ran.error}", is_timeout=True)
    if ran.has_timed_out:
        return Grade(0.0, answer, f"{failed}{_explain_timeout(problem, answer, own, ran)}")
    _HAS_ENDED[own.version] = True
    score, why = _read_score(ran)
    if score is None:
        return grade_failure(answer, f"{failed}{why}", is_timeout=False)
    return Grade(score, answer, f"{own.function} gave {score:g}")


def _is_machine_at_fault(problem: Problem, answer: str, ran: sandbox.SandboxResult) -> bool:
    """Return whether a call was killed before any time was up, or this machine runs not even a trivial function."""
    limits = _call_limits()
    in_memory = ran.seconds < min(limits.cpu_s, limits.wall_s)
    return in_memory or _call_function(problem, answer, "grade", _TRIVIAL_FUNCTION).has_timed_out


def _explain_timeout(problem: Problem, answer: str, own: FunctionGrader, ran: sandbox.SandboxResult) -> str:
    """Return why the function did not end, after a call with another answer, and log it as a warning."""
    what = f"{own.function} of {own.file} was stopped ({ran.error}) on the answer {shorten(answer)!r} to {problem.key}"
    if _ends_on_another_answer(problem, answer, own):
        why = f"{what}; it is not called again with this answer until its source changes. Other answers are graded"
    else:
        why = f"{what}, and on another answer, too; this process does not call it again with any answer"
    _LOG.warning("the grader's function %s", why)
    return why


def _ends_on_another_answer(problem: Problem, answer: str, own: FunctionGrader) -> bool:
    """Return whether the function ends on another answer; it is called once in a process to find out."""
    with _PROBE_LOCK:
        if own.version not in _HAS_ENDED:
            other = problem.answer if problem.answer.strip() not in ("", answer.strip()) else _OTHER_ANSWER
            _HAS_ENDED[own.version] = not _call_function(problem, other, own.function, own.source).has_timed_out
        return _HAS_ENDED[own.version]


def _call_limits() -> sandbox.ProgramLimits:
    return LIMITS["call"].scale(measure_slowness())


def _call_function(problem: Problem, answer: str, function: str, source: str) -> sandbox.SandboxResult:
    shown = {
        "id": problem.id, "question": problem.question, "answer": problem.answer, "choices": list(problem.choices),
        "subject": problem.subject, "level": problem.level,
    }  # fmt: skip
    call = f"{function}({shown!r}, {answer!r})"
    return sandbox.run("call", source, [call], _call_limits(), libraries=program_libraries(problem.benchmark))


def _read_score(ran: sandbox.SandboxResult) -> tuple[float | None, str]:
    """Return the score and ""; None and the reason if there is no score."""
    if ran.results is None or len(ran.results) != 1:
        return None, ran.error or "ended without an answer"
    [(status, value)] = ran.results
    if status != "ok":
        return None, str(value)
    if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
        return float(value), ""
    return None, f"it gave {_describe_value(value)}, not True, False or a number from 0 to 1"


def _describe_value(value: Any) -> str:
    match value:
        case {"other": str(kind)}:
            return f"an object of type {kind[:40]}"
        case dict():
            return f"a {next(iter(value), 'dict')}"
    return f"{value!r:.60}"


GRADER = Grader(
    "function",
    grade_answer=grade_answer,
    gold_template="{}",
    needs_gold=False,
    runs_programs=True,
    needs_settings=True,
)
