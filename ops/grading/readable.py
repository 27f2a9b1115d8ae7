"""Check whether a grader can read a gold answer, for every problem and before any worker is called."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from ops.core.problem import AnswerForm, Problem
from ops.grading import choice, extract, latex, program, text


def unreadable(problem: Problem) -> str:
    """Return why the problem's grader cannot read the gold answer or the tests; "" if it can. Executes no program."""
    reader = _READERS.get(problem.grader)
    return reader(problem) if reader else f"no grader is called {problem.grader!r}"


def _math(problem: Problem) -> str:
    boxed = extract.boxed(rf"\boxed{{{problem.answer}}}")
    if boxed != problem.answer.strip():
        return "its braces do not pair up"
    return "" if latex.clean(problem.answer).value else "nothing is left of it but spacing and units"


def _choice(problem: Problem) -> str:
    letters = choice.offered(problem)
    if not problem.choices:
        return "there are no choices"
    return "" if problem.answer in [*letters] else f"no letter of {letters}"


def _text(problem: Problem) -> str:
    answer = problem.answer
    if len(answer) > text.MAX_CHARACTERS:
        return f"longer than {text.MAX_CHARACTERS} characters"
    # Letters, numbers and symbols (an infinity sign, a currency) count as content.
    says = any(unicodedata.category(char)[0] in "LNS" for char in answer)
    return "" if says else "nothing is left of it but punctuation"


def _code(problem: Problem) -> str:
    if not problem.tests:
        return "there are no tests"
    sources = [("the program", problem.answer, "exec")]
    modes = {"call": "eval", "unittest": "exec"}
    numbered = enumerate(problem.tests, start=1)
    sources += [(f"test {n}", test.input, modes[test.kind]) for n, test in numbered if test.kind in modes]
    for what, source, mode in sources:
        if why := _broken(source, mode):
            return f"{what} is no Python ({why})"
    return ""


def _broken(source: str, mode: str) -> str:
    try:
        program.tree(source.strip() if mode == "eval" else source, mode)
    except program.UNPARSED as error:
        return type(error).__name__
    return ""


_READERS: dict[AnswerForm, Callable[[Problem], str]] = {
    "math": _math,
    "choice": _choice,
    "text": _text,
    "code": _code,
}
