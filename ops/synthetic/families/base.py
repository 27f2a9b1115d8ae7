"""The base class of problem families, and helpers that several families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from ops.core.problem import CodeTest
from ops.synthetic.knowledge import read_knowledge_table

MATERIAL_FACTS = ("density", "melting point", "molar mass")
PEOPLE = ("Ana", "Bo", "Chen", "Dara", "Eli", "Fay", "Gus", "Hana")
COUNTRY_WORDS = ("capital", "currency", "language")


class ProblemDraft(NamedTuple):
    """A question with its answer, before it becomes a `Problem`."""

    question: str
    """The text of the question."""
    answer: str
    """The correct answer."""
    proof: tuple[Any, Any]
    """The answer as two independent derivations give it; both must be equal."""
    solution: tuple[tuple[str, str], ...]
    """The shortest known chain of pairs (worker, subtask) that answers the question, for tests and pages only."""
    choices: tuple[str, ...] = ()
    """The choices of a multiple-choice question."""
    tests: tuple[CodeTest, ...] = ()
    """The tests of a programming question."""


@dataclass(frozen=True)
class Family:
    """A generator of problems of one kind."""

    name: str
    """The name of the family."""
    benchmark: str
    """The name of the benchmark to which its problems belong."""
    make: Callable[[Random], ProblemDraft]
    """The function that generates a draft from a random stream."""
    hard: bool = False
    """Whether the problems have the level "hard"."""
    solved_by_tools: bool = True
    """Whether the known solution uses only tools, which make no errors. Otherwise it uses generalists too."""


def look_up_step(attribute: str) -> tuple[str, str]:
    """Return the worker and the subtask that look up an attribute."""
    return ("librarian", f"Look up the {attribute}.")


FORMALIZE = ("analyst", "Write it as a formula.")
PLAN = ("analyst", "Write a plan.")
READ_REST = ("analyst", "Read the rest.")
COMPUTE = ("algebraist", "Compute the result.")
CHOOSE = ("editor", "Choose the letter.")
PROGRAM = ("programmer", "Write the program.")
SOLVE_ALONE = ("solver", "Solve the problem.")
CHECK = ("solver", "Check the answer.")
VOTE = ("editor", "Take the most common answer.")


def pick_material(random: Random) -> tuple[str, dict[str, str]]:
    """Return a random material and its facts."""
    name = random.choice(sorted(read_knowledge_table("materials")))
    return name, read_knowledge_table("materials")[name]


def pick_country(random: Random) -> tuple[str, dict[str, str]]:
    """Return a random country and its facts."""
    name = random.choice(sorted(read_knowledge_table("countries")))
    return name, read_knowledge_table("countries")[name]


def letter_choices(random: Random, right: str, wrong: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return four choices in random order and the letter of the correct one."""
    texts = [right, *random.sample(sorted(set(wrong) - {right}), 3)]
    random.shuffle(texts)
    return tuple(texts), "ABCD"[texts.index(right)]


def format_number(value: float, places: int = 4) -> str:
    """Return a number as a plain decimal without trailing zeros."""
    return f"{value:.{places}f}".rstrip("0").rstrip(".")
