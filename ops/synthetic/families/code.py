"""Families that imitate LiveCodeBench, with questions that ask for a program or a function and have tests."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from contextlib import redirect_stdout
from random import Random
from typing import Any

from ops.core.problem import CodeTest
from ops.synthetic.families.base import (
    CHECK,
    FORMALIZE,
    PLAN,
    PROGRAM,
    READ_REST,
    SOLVE_ALONE,
    Family,
    ProblemDraft,
    look_up_step,
    pick_material,
)

Numbers = list[int]

OPERATIONS: dict[str, tuple[str, Callable[[Numbers], Numbers], str]] = {
    "sort": ("sort them", sorted, "sorted(xs)"),
    "reverse": ("reverse the order", lambda xs: list(reversed(xs)), "xs[::-1]"),
    "evens": ("keep the even ones", lambda xs: [x for x in xs if not x % 2], "[x for x in xs if x % 2 == 0]"),
    "odds": ("keep the odd ones", lambda xs: [x for x in xs if x % 2], "[x for x in xs if x % 2 == 1]"),
    "square": ("square each", lambda xs: [x**2 for x in xs], "[x * x for x in xs]"),
    "double": ("double each", lambda xs: [x + x for x in xs], "[2 * x for x in xs]"),
    "increment": ("add one to each", lambda xs: [x + 1 for x in xs], "[x + 1 for x in xs]"),
    "negate": ("flip the sign", lambda xs: [0 - x for x in xs], "[-x for x in xs]"),
    "tail": ("leave out the first", lambda xs: xs[1:], "xs[1:]"),
    "prefix": (
        "take running totals",
        lambda xs: list(itertools.accumulate(xs)),
        "[sum(xs[:i + 1]) for i in range(len(xs))]",
    ),
}
"""The words and the meaning of each operation by its name. The meaning is given as a function and, for the second
derivation, as source text."""


def pick_operations(random: Random, count: int) -> list[str]:
    """Return `count` different operations in random order whose result depends on the input and on the first ones."""
    tried = sample_inputs(random, 6)
    while True:
        names = random.sample(sorted(OPERATIONS), count)
        results = [[apply_operations(names[skipped:], xs) for xs in tried] for skipped in range(count + 1)]
        if len({tuple(xs) for xs in results[0]}) > 3 and results[0] not in results[1:]:
            return names


def apply_operations(names: list[str], xs: Numbers) -> Numbers:
    """Return the result of operations that are applied to a list one after another."""
    for name in names:
        xs = OPERATIONS[name][1](xs)
    return xs


def write_source(names: list[str]) -> str:
    """Return the source of a reference program that reads integers from a line and prints the result."""
    lines = [f"xs = {OPERATIONS[name][2]}" for name in names]
    return "\n".join(["xs = [int(t) for t in input().split()]", *lines, "print(*xs)"])


def sample_inputs(random: Random, count: int) -> list[Numbers]:
    """Return random lists of four to six integers between -9 and 9."""
    return [[random.randint(-9, 9) for _ in range(random.randint(4, 6))] for _ in range(count)]


def run_program(program: str, line: str) -> str:
    """Return what a program of this module prints for one line of input."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(program, {"input": lambda: line})
    return out.getvalue().strip()


def _format_list(xs: Numbers) -> str:
    return " ".join(map(str, xs))


def _draft_program(
    random: Random, names: list[str], question: str, solution: tuple[tuple[str, str], ...]
) -> ProblemDraft:
    cases = [(_format_list(xs), _format_list(apply_operations(names, xs))) for xs in sample_inputs(random, 6)]
    program = write_source(names)
    again = [run_program(program, given) for given, _ in cases]
    tests = tuple(CodeTest("stdin", given, wanted) for given, wanted in cases)
    return ProblemDraft(question, program, ([wanted for _, wanted in cases], again), solution, (), tests)


def from_examples(random: Random) -> ProblemDraft:
    """Ask for the rule behind three examples, without a description."""
    names = pick_operations(random, random.choice((1, 2, 2)))
    examples = [[random.randint(-9, 9) for _ in range(4)] for _ in range(3)]
    shown = "\n".join(
        f"Input: {_format_list(xs)}\nOutput: {_format_list(apply_operations(names, xs))}" for xs in examples
    )
    question = f"Read integers from one line and print them changed by the rule of these examples.\n{shown}"
    return _draft_program(random, names, question, (PROGRAM,))


def from_more_examples(random: Random) -> ProblemDraft:
    """Ask for a rule of three operations: beyond the programmer's search depth, and easier to check than to find."""
    names = pick_operations(random, 3)
    examples = [[random.randint(-9, 9) for _ in range(5)] for _ in range(3)]
    shown = "\n".join(
        f"Input: {_format_list(xs)}\nOutput: {_format_list(apply_operations(names, xs))}" for xs in examples
    )
    question = (
        f"Read integers from one line and print what a machine makes of them. It was watched three times.\n{shown}"
    )
    return _draft_program(random, names, question, (SOLVE_ALONE, CHECK, CHECK, CHECK, CHECK))


_OPENINGS = ("Read integers from one line", "Take the integers of a line", "Given a line of integers")


def described(random: Random) -> ProblemDraft:
    """Describe three steps in words."""
    names = pick_operations(random, 3)
    words = ", ".join(OPERATIONS[name][0] for name in names)
    return _draft_program(random, names, f"{random.choice(_OPENINGS)}, {words}, and print the result.", (PLAN, PROGRAM))


def long_description(random: Random) -> ProblemDraft:
    """Describe more steps than the analyst reads at a time."""
    names = pick_operations(random, random.choice((5, 6)))
    words = ", ".join(OPERATIONS[name][0] for name in names)
    question = f"{random.choice(_OPENINGS)}, {words}, and print the result."
    return _draft_program(random, names, question, (PLAN, READ_REST, PROGRAM))


def draft_function(
    question: str, body: str, name: str, values: list[Any], solution: tuple[tuple[str, str], ...]
) -> ProblemDraft:
    """Ask for a function of one variable `k`, tested on values."""
    program = f"def {name}(k):\n    return {body}"
    scope: dict[str, Any] = {}
    exec(program, scope)
    direct = [round(eval(body, {"k": value}), 4) for value in values]
    again = [round(scope[name](value), 4) for value in values]
    tests = tuple(
        CodeTest("call", f"round({name}({value}), 4)", repr(wanted))
        for value, wanted in zip(values, direct, strict=True)
    )
    return ProblemDraft(question, program, (direct, again), solution, (), tests)


def tariff(random: Random) -> ProblemDraft:
    """Ask for a function that a sentence describes."""
    a, b, c = random.randint(2, 60), random.randint(2, 30), random.randint(2, 9)
    values = random.sample(range(1, 50), 4)
    words, body = random.choice((
        (f"what a ride costs that costs {a} euros plus {b} euros for each of k km", f"{a} + {b} * k"),
        (f"how far one gets at {a} km/h for k hours", f"{a} * k"),
        (f"what somebody earns who earns {a} euros an hour for k hours", f"{a} * k"),
        (f"the interest on {a * 10} euros at {c} % simple interest for k years", f"{a * 10} * {c} / 100 * k"),
        (f"how much a pipe gives that pours {b} litres a minute for k minutes", f"k * {b}"),
    ))  # fmt: skip
    question = f"Write a function `f(k)` that returns {words}."
    return draft_function(question, body, "f", values, (FORMALIZE, PROGRAM))


def tariff_with_fact(random: Random) -> ProblemDraft:
    """Ask for a function that needs a property of a material."""
    name, facts = pick_material(random)
    box, values = random.randint(2, 80), random.sample(range(1, 90), 4)
    words, attribute = random.choice((
        (f"the mass of k cubic centimetres of {name} in a box of {box} g", "density"),
        (f"how much is k mol of {name} in a box of {box} g", "molar mass"),
    ))  # fmt: skip
    body = f"k * {facts[attribute]} + {box}"
    question = f"Write a function `f(k)` that returns {words}."
    return draft_function(question, body, "f", values, (look_up_step(attribute), FORMALIZE, PROGRAM))


FAMILIES = (
    Family("from_examples", "livecodebench", from_examples),
    Family("described", "livecodebench", described),
    Family("long_description", "livecodebench", long_description, hard=True),
    Family("tariff", "livecodebench", tariff),
    Family("tariff_with_fact", "livecodebench", tariff_with_fact, hard=True),
    Family("from_more_examples", "livecodebench", from_more_examples, hard=True, solved_by_tools=False),
)
