"""Operations on lists of integers with their meaning and their source text, and programs that combine them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ops.synthetic.phrases import OPERATIONS as PHRASES
from ops.synthetic.phrases import find_phrases

Numbers = list[int]
OPERATIONS = {
    "sort": "xs = sorted(xs)",
    "reverse": "xs = xs[::-1]",
    "evens": "xs = [x for x in xs if x % 2 == 0]",
    "odds": "xs = [x for x in xs if x % 2 == 1]",
    "square": "xs = [x * x for x in xs]",
    "double": "xs = [2 * x for x in xs]",
    "increment": "xs = [x + 1 for x in xs]",
    "negate": "xs = [-x for x in xs]",
    "unique": "xs = list(dict.fromkeys(xs))",
    "tail": "xs = xs[1:]",
    "prefix": "xs = [sum(xs[: i + 1]) for i in range(len(xs))]",
    "sum": "xs = [sum(xs)]",
    "max": "xs = [max(xs, default=0)]",
    "count": "xs = [len(xs)]",
}
"""The source text of each operation by its name."""
_MEANINGS: dict[str, Callable[[Numbers], Numbers]] = {
    "sort": sorted,
    "reverse": lambda xs: xs[::-1],
    "evens": lambda xs: [x for x in xs if x % 2 == 0],
    "odds": lambda xs: [x for x in xs if x % 2 == 1],
    "square": lambda xs: [x * x for x in xs],
    "double": lambda xs: [2 * x for x in xs],
    "increment": lambda xs: [x + 1 for x in xs],
    "negate": lambda xs: [-x for x in xs],
    "unique": lambda xs: list(dict.fromkeys(xs)),
    "tail": lambda xs: xs[1:],
    "prefix": lambda xs: list(itertools.accumulate(xs)),
    "sum": lambda xs: [sum(xs)],
    "max": lambda xs: [max(xs, default=0)],
    "count": lambda xs: [len(xs)],
}
_READ, _WRITE = "xs = [int(t) for t in input().split()]", "print(*xs)"
_EXAMPLE = re.compile(r"^(?:Input: |>>> g\()(.*?)\)?\n(?:Output: )?(.*)$", re.MULTILINE)


class ListExample(NamedTuple):
    """An example of what a program does with a list."""

    given: Numbers
    """The input list."""
    wanted: Numbers
    """The expected result."""


def apply_operations(steps: Sequence[str], xs: Numbers) -> Numbers:
    """Return the result of operations that are applied to a list one after another."""
    for step in steps:
        xs = _MEANINGS[step](xs)
    return xs


def find_examples(question: str) -> list[ListExample]:
    """Return the examples that a question shows, or none if it shows fewer than two."""
    shown = [ListExample(_integers(left), _integers(right)) for left, right in _EXAMPLE.findall(question)]
    return shown if len(shown) >= 2 else []


def find_operations(question: str) -> list[str]:
    """Return the names of the operations that a question describes, in the order of the question."""
    return find_phrases(question, PHRASES)


def write_program(steps: Sequence[str], question: str) -> str:
    """Return the source text of a program that applies the given operations.

    It is a function if the question names one, and otherwise a program that reads a line of integers.
    """
    lines = [OPERATIONS[step] for step in steps]
    if match := re.search(r"`(\w+)\(xs\)`", question):
        return "\n    ".join([f"def {match[1]}(xs):", *lines, "return xs"])
    return "\n".join([_READ, *lines, _WRITE])


def _integers(text: str) -> Numbers:
    return [int(word) for word in re.findall(r"-?\d+", text)]
