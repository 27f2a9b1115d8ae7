"""The definition of a grader, and the settings that a recipe gives to its benchmarks' own graders."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ops.config import BenchmarkGrader, FunctionGrader, JudgeGrader
from ops.core.errors import ConfigError
from ops.core.messages import Message
from ops.core.problem import FailedTest, Grade, Problem, format_choices
from ops.core.registry import Registry
from ops.core.reply_text import extract_answer_text
from ops.grading.harness.mains import MACHINE_FAULT_STATUS

MAX_CHARACTERS = 200_000
"""The maximum length in characters of an answer for which a process is started; a longer one scores 0."""
NO_REPORT = "ended without an answer"
_MACHINE_FAULT = re.compile(
    rf"{NO_REPORT}|malformed report|crashed|killed by signal|{MACHINE_FAULT_STATUS}"
    r"|(?<![A-Za-z])(?:\w*Memory|OS|IO|BlockingIO|ChildProcess|Interrupted|Permission|Timeout|Connection\w*)Error"
    r"|Errno|can't start new thread|[Uu]nable to allocate|[Nn]o space left|[Tt]emporarily unavailable"
)
"""Errors that a machine without memory, disk, processes or time for the sandbox may have caused."""


def grade_failure(program: str, reason: str, *, is_timeout: bool, failed: FailedTest | None = None) -> Grade:
    """Return the verdict on a program, or on an answer to a function, that failed in the sandbox."""
    late = " (not final: a faster machine may say otherwise)" if is_timeout else ""
    return Grade(0.0, program, reason + late, failed, is_final=not (is_timeout or _MACHINE_FAULT.search(reason)))


def _strip_response(_problem: Problem, response: str) -> str:
    return response.strip()


def _is_identical(one: str, other: str, _problem: Problem) -> bool:
    return one == other


@dataclass(frozen=True)
class Grader:
    """How answers of one form are found and graded.

    A grader either has `grade_answer`, or asks a judge (`build_judge_messages` and `parse_judge_reply`).
    """

    name: str
    """The name of its file."""
    answer_format: str = ""
    """The last line of the prompt, which states the form of the answer; "" if any form is accepted."""
    find_answer: Callable[[Problem, str], str] = _strip_response
    """Finds the answer in a response without reasoning. `extract_answer` is called in its place."""
    grade_answer: Callable[[Problem, str], Grade] | None = None
    """Compares an answer with the gold answer, or runs a program on its tests."""
    build_judge_messages: Callable[[Problem, str], list[Message]] | None = None
    """Writes the messages with which a judge is asked for the verdict."""
    parse_judge_reply: Callable[[Problem, str, str], Grade] | None = None
    """Reads the judge's reply."""
    find_gold_error: Callable[[Problem], str] = lambda _: ""
    """Says why the grader cannot read the problem's gold answer or tests; "" if it can. Executes no program."""
    is_same_answer: Callable[[str, str, Problem], bool] = _is_identical
    """Says whether two answers are equal; the first is taken as gold."""
    normalize: Callable[[str], str] = str.strip
    """Returns the answer in a form in which its layout does not matter; "" if there is no answer."""
    gold_template: str = "Answer: {}"
    """The gold answer as a worker would give it."""
    needs_gold: bool = True
    """True if every problem needs a gold answer."""
    runs_programs: bool = False
    """True if the grader starts a process for each answer."""
    needs_settings: bool = False
    """True if a recipe must give settings for this grader (`benchmarks.NAME.grader`)."""

    def extract_answer(self, problem: Problem, response: str) -> str:
        """Return the answer in a response.

        Text in a model's reasoning is not an answer, and control tokens of the chat template are not part of one.
        """
        return self.find_answer(problem, extract_answer_text(response))

    def format_gold_response(self, problem: Problem) -> str:
        """Return the gold answer in the form that the prompt asks for."""
        return self.gold_template.format(problem.answer)


GRADERS = Registry("ops.grading.graders", Grader)


def worker_prompt(problem: Problem) -> str:
    """Return the question as a worker reads it: its text, its choices, and the form of the answer."""
    form = GRADERS[problem.grader].answer_format
    return "\n".join([problem.question, *format_choices(problem), *([form] if form else [])])


OWN_GRADERS: dict[str, BenchmarkGrader] = {}
"""The recipe's settings of its benchmarks' own graders by their version (`Problem.grading`), see
`ops.grading.configure`."""
_T = TypeVar("_T", FunctionGrader, JudgeGrader)


def find_own_grader(problem: Problem, kind: type[_T]) -> _T:
    """Return the settings of a benchmark's own grader. Raises `ConfigError` if this process does not have them."""
    if not isinstance(known := OWN_GRADERS.get(problem.grading), kind):
        raise ConfigError(
            "the recipe",
            f"benchmarks.{problem.benchmark}.grader",
            f"is not the one with which the problems in data/raw were loaded ({problem.grading or 'none'})",
            "Load them again: `podium data raw RECIPE`",
        )
    return known
