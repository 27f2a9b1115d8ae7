"""What a grader is, and how a benchmark that a recipe grades in its own way finds its grader's settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ops.core.errors import ConfigError
from ops.core.messages import Message
from ops.core.problem import Grade, Problem, choice_lines
from ops.core.registry import Registry
from ops.core.reply_text import answer_text
from ops.grading.harness.mains import STATUS_OF_THE_MACHINE

MAX_CHARACTERS = 200_000
"""The longest answer that a grader runs; a longer one scores 0."""
NOT_FINAL = "not final"
"""Part of the reason of a verdict that may differ on another or a quieter machine."""
HANGS = "it is not called again"
"""Part of the reason of a verdict on a function that was stopped, which is final: the function never runs again on the
same answer. `HANGS_ALWAYS`: on no answer."""
HANGS_ALWAYS = f"{HANGS} with any answer"
NO_REPORT = "ended without an answer"
_OF_THE_MACHINE = re.compile(
    rf"{NOT_FINAL}|{NO_REPORT}|malformed report|crashed|killed by signal|{STATUS_OF_THE_MACHINE}"
    r"|(?<![A-Za-z])(?:\w*Memory|OS|IO|BlockingIO|ChildProcess|Interrupted|Permission|Timeout|Connection\w*)Error"
    r"|Errno|can't start new thread|[Uu]nable to allocate|[Nn]o space left|[Tt]emporarily unavailable"
)
"""Reasons that a machine without memory, disk, processes or time for the sandbox may have caused."""


def is_final(grade: Grade) -> bool:
    """Return whether a verdict would be the same on any machine, so that it may be stored."""
    return grade.correct or not _OF_THE_MACHINE.search(grade.reason)


def _whole(_problem: Problem, response: str) -> str:
    return response.strip()


def _equal(one: str, other: str, _problem: Problem) -> bool:
    return one == other


@dataclass(frozen=True)
class Grader:
    """How answers of one form are found and judged. A grader either has `judge`, or asks a worker (`ask`, `read`)."""

    name: str
    """The name of its file."""
    form: str = ""
    """The last line of the prompt: the form of answer that it expects; "": any."""
    extracted: Callable[[Problem, str], str] = _whole
    """Finds the answer in a response without reasoning; `answer` is called instead of it."""
    judge: Callable[[Problem, str], Grade] | None = None
    """Compares the answer with the gold one."""
    ask: Callable[[Problem, str], list[Message]] | None = None
    """Writes the messages with which a worker is asked for the verdict."""
    read: Callable[[Problem, str, str], Grade] | None = None
    """Reads that worker's reply."""
    unreadable: Callable[[Problem], str] = lambda _: ""
    """Why it cannot read the problem's gold answer or tests; "" if it can. Executes no program."""
    same: Callable[[str, str, Problem], bool] = _equal
    """Whether two answers are equal, the first being taken as gold."""
    normal: Callable[[str], str] = str.strip
    """The answer in a form in which its layout does not matter; "" if there is none."""
    gold: str = "Answer: {}"
    """The gold answer as a worker would give it."""
    needs_gold: bool = True
    runs: bool = False
    """Whether it starts a process for each answer."""
    every_answer: Callable[[Problem], tuple[Problem, str]] | None = None
    """The problem and the answer under which a verdict on every answer is stored (`HANGS_ALWAYS`)."""
    own: bool = False
    """Whether a benchmark that uses it needs settings of its own: `benchmarks.NAME.grader` of the recipe."""

    def answer(self, problem: Problem, response: str) -> str:
        """Return the answer in a response as a model wrote it: what stands in its reasoning is none, and control tokens
        of the chat template are no part of one."""
        return self.extracted(problem, answer_text(response))

    def gold_response(self, problem: Problem) -> str:
        """Return the gold answer in the form that the prompt asks for."""
        return self.gold.format(problem.answer)


GRADERS = Registry("ops.grading.graders", Grader)


def worker_prompt(problem: Problem) -> str:
    """Return the question as a worker reads it: its text, its choices, and the form of the answer."""
    form = GRADERS[problem.grader].form
    return "\n".join([problem.question, *choice_lines(problem), *([form] if form else [])])


@dataclass(frozen=True)
class OwnGrader:
    """A recipe's settings of one benchmark's grader, as plain values: of a function, or of a judge.

    Grading imports no configuration, because a change there would then change the version of every grader
    (`ops.benchmarks.graded` makes these values).
    """

    version: str
    """A hash of everything that can change a verdict; problems carry it (`Problem.grading`)."""
    file: str = ""
    """The user's Python file with the function."""
    function: str = ""
    source: str = ""
    """The text of that file."""
    rubric: str = ""
    """When an answer is right, for a judge."""
    judge: object = None
    """The worker that judges (`ops.config.Worker`), which grading only hands on."""


_OWN: dict[str, OwnGrader] = {}


def take_graders(graders: Iterable[OwnGrader]) -> None:
    """Let `own_grader` find these settings in this process."""
    _OWN.update((grader.version, grader) for grader in graders)


def own_grader(problem: Problem) -> OwnGrader:
    """Return the settings of a problem's own grader. Raises `ConfigError` if this process has no such version."""
    if (known := _OWN.get(problem.grading)) is None:
        raise ConfigError(
            "the recipe",
            f"benchmarks.{problem.benchmark}.grader",
            f"is not the one with which the problems in data/raw were loaded ({problem.grading or 'none'})",
            "Load them again: `podium data raw RECIPE`",
        )
    return known
