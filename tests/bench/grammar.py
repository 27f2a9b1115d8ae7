"""The grammar: whole workflows beside the parts of Python's library that parse the same lists, and a megabyte of
hostile text beside a megabyte of prose.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable

from ops.workflow.grammar import Step, Workflow, parse_workflow
from tests.bench.row import Row, sized

COUNT = sized(20_000, 200)
ROUNDS = sized(5, 1)
REASONING = "The question has two parts, so two models look at it from different ends before a third one decides. " * 3
HOSTILE = {
    "quotes": 'subtasks = ["' + '"' * 1_000_000,
    "brackets": "access_list = " + "[" * 1_000_000,
    "empty lists": "access_list = [" + "[]," * 333_333 + "]",
    "numbers": "model_id = [" + "1," * 500_000 + "]",
    "assignments": "subtasks=[" * 100_000,
    "escapes": 'subtasks=["\\x"]' * 66_666,
}
"""Hostile texts of a megabyte each; the tests have more kinds, none of them slower."""
NAIVE = re.compile(r"(?:model_id|subtasks|access_list) = (\[.*\])")


def rows() -> list[Row]:
    """Measure completions of about 570 characters and three steps, parsed and validated; then the hostile ones.

    The fastest of alternating rounds counts, because other work on the machine only adds.
    """
    texts = [f"{REASONING}\n{_workflow(number).render()}" for number in range(COUNT)]
    ours, naive = _fastest(COUNT, lambda: _parse(texts), lambda: _read_naively(texts))
    prose = f"{REASONING * (1_000_000 // len(REASONING))}\n{_workflow(0).render()}"
    kinds = [lambda text=text: _parse([text]) for text in (prose, *HOSTILE.values())]
    benign, *hostile = _fastest(1, *kinds)
    return [
        Row("grammar: a workflow read and checked", ours * 1e6, "re and ast.literal_eval", naive * 1e6, 3.0, "CPU µs"),
        Row("grammar: slowest hostile megabyte", max(hostile) * 1e3, "a megabyte of prose", benign * 1e3, 12, "CPU ms"),
    ]


def _workflow(number: int) -> Workflow:
    return Workflow((
        Step(number % 7, f"Work out part {number} of the question and state what you assumed."),
        Step((number + 1) % 7, "Solve the same part another way, without looking at the choices."),
        Step((number + 2) % 7, "Compare both, resolve any difference and give the final answer.", "all"),
    ))  # fmt: skip


def _parse(texts: list[str]) -> None:
    for text in texts:
        parse_workflow(text, offered=7)


def _read_naively(texts: list[str]) -> None:
    """Parse as a short script does: no other spellings, no bounds, no validation."""
    for text in texts:
        assert len([ast.literal_eval(match) for match in NAIVE.findall(text)]) == 3


def _fastest(count: int, *ways: Callable[[], None]) -> list[float]:
    """Return CPU seconds of each way for each of `count` texts; the ways take turns."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, times in zip(ways, taken, strict=True):
            began = time.process_time()
            way()
            times.append((time.process_time() - began) / count)
    return [min(times) for times in taken]


PARTS = (rows,)
"""The measurements of `make bench`."""
