"""Programs on lists of integers: from a plan, from a formula, or by search from examples.

It follows `PLAN:` and `EXPR:` lines that it is shown. Without them it searches every
composition of up to two operations that agrees with the question's examples.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from ops.miniature.reading import Task

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
_READ, _WRITE = "xs = [int(t) for t in input().split()]", "print(*xs)"
_EXAMPLE = re.compile(r"^Input: (.*)\nOutput: (.*)$", re.MULTILINE)
_FUNCTION = re.compile(r"^(\w+)\(([\w, ]*)\) = (.+)$")
SEARCH_DEPTH = 2


def answer(task: Task) -> str:
    """A complete program in one block, or what is missing."""
    for line in reversed(task.lines("EXPR")):
        if match := _FUNCTION.match(line):
            name, names, body = match.groups()
            return _block(f"def {name}({names}):\n    return {body}")
    plan = [step for line in task.lines("PLAN") for step in line.split("; ")]
    if plan and all(step in OPERATIONS for step in plan):
        return _block(_program(plan, task))
    examples = [(_integers(left), _integers(right)) for left, right in _EXAMPLE.findall(task.question)]
    if len(examples) >= 2 and (found := _search(examples)) is not None:
        return _block(_program(found, task))
    return "I need a plan or a formula, or examples that two operations explain, to write the program."


def _block(source: str) -> str:
    return f"```python\n{source}\n```"


def _program(steps: list[str], task: Task) -> str:
    lines = [OPERATIONS[step] for step in steps]
    if match := re.search(r"`(\w+)\(xs\)`", task.question):
        return "\n    ".join([f"def {match[1]}(xs):", *lines, "return xs"])
    return "\n".join([_READ, *lines, _WRITE])


def _integers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", text)]


Operation = Callable[[list[int]], list[int]]
_RUNS: dict[str, Operation] = {
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


def _search(examples: list[tuple[list[int], list[int]]]) -> list[str] | None:
    for steps in _candidates():
        if all(_run(steps, given) == wanted for given, wanted in examples):
            return list(steps)
    return None


def _candidates() -> Iterator[tuple[str, ...]]:
    for depth in range(1, SEARCH_DEPTH + 1):
        yield from itertools.product(OPERATIONS, repeat=depth)


def _run(steps: tuple[str, ...], xs: list[int]) -> list[int]:
    for step in steps:
        xs = _RUNS[step](xs)
    return xs
