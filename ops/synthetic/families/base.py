"""The base of problem families, and helpers that several share."""

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
    answer: str
    proof: tuple[Any, Any]
    """The answer derived in two independent ways; they must be equal."""
    solution: tuple[tuple[str, str], ...]
    """The shortest known chain of (worker, subtask) that answers the question. For tests and docs only."""
    choices: tuple[str, ...] = ()
    tests: tuple[CodeTest, ...] = ()


@dataclass(frozen=True)
class Family:
    """A generator of problems of one kind."""

    name: str
    benchmark: str
    make: Callable[[Random], ProblemDraft]
    hard: bool = False
    solved_by_tools: bool = True
    """Whether the known solution uses only tools, which make no
    errors; otherwise it uses generalists, which can fail.
    """


def look_up_step(attribute: str) -> tuple[str, str]:
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
    name = random.choice(sorted(read_knowledge_table("materials")))
    return name, read_knowledge_table("materials")[name]


def pick_country(random: Random) -> tuple[str, dict[str, str]]:
    name = random.choice(sorted(read_knowledge_table("countries")))
    return name, read_knowledge_table("countries")[name]


def letter_choices(random: Random, right: str, wrong: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return four shuffled choices and the letter of the right one."""
    texts = [right, *random.sample(sorted(set(wrong) - {right}), 3)]
    random.shuffle(texts)
    return tuple(texts), "ABCD"[texts.index(right)]


def format_number(value: float, places: int = 4) -> str:
    """Return a plain decimal without trailing zeros."""
    return f"{value:.{places}f}".rstrip("0").rstrip(".")
