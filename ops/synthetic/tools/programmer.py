"""The tool that writes programs on lists of integers from a plan, from a formula or from examples.

It follows `PLAN:` and `EXPR:` lines of earlier workers. Without them it searches every composition of up to two
operations that agrees with the question's examples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ops.synthetic.formal import read_function, read_plan
from ops.synthetic.lists import OPERATIONS, ListExample, apply_operations, find_examples, write_program
from ops.synthetic.reading import Task

SEARCH_DEPTH = 2


def answer(task: Task) -> str:
    """Return a complete program in one code block, or a remark on what is missing."""
    if source := read_function(task):
        return _block(source)
    plan = read_plan(task)
    if plan and all(step in OPERATIONS for step in plan):
        return _block(write_program(plan, task.question))
    given = find_examples(task.question)
    if given and (steps := _search(given)) is not None:
        return _block(write_program(steps, task.question))
    return "I need a plan or a formula, or examples that two operations explain, to write the program."


def _block(source: str) -> str:
    return f"```python\n{source}\n```"


def _search(given: Sequence[ListExample]) -> list[str] | None:
    for steps in _candidates():
        if all(apply_operations(steps, example.given) == example.wanted for example in given):
            return list(steps)
    return None


def _candidates() -> Iterator[tuple[str, ...]]:
    for depth in range(1, SEARCH_DEPTH + 1):
        yield from itertools.product(OPERATIONS, repeat=depth)
