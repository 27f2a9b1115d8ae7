"""Read and write formal text, which workers pass on in lines that begin with `FACT:`, `EXPR:` or `PLAN:`.

Formal text in the question itself, such as a formula between dollar signs, is read too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.synthetic import sums
from ops.synthetic.formula import convert_latex
from ops.synthetic.knowledge import find_entities
from ops.synthetic.reading import Task

_FACT = re.compile(r"(?P<attribute>.+) of (?P<name>.+) = (?P<value>.+)")
_EXPRESSION = re.compile(r"^(?P<body>.*?)(?: \[(?P<unit>[^\]]+)\])?$")
_FUNCTION = re.compile(r"^(\w+)\(([\w, ]*)\) = (.+)$")
_SIGNATURE = re.compile(r"`(\w+)\((\w(?:, \w)*)\)`")


class Fact(NamedTuple):
    """A fact that a worker looked up."""

    attribute: str
    """The attribute, such as "density"."""
    name: str
    """The name of the entity."""
    value: str
    """The value with its unit."""


def read_facts(task: Task) -> list[Fact]:
    """Return the facts that earlier workers looked up, beginning with the oldest."""
    return [Fact(*match.groups()) for line in task.marked_lines("FACT") if (match := _FACT.match(line))]


def find_subjects(task: Task) -> list[str]:
    """Return the entities to look up.

    These are the result of an earlier look-up, or else the entities that the question names, or else those that its
    choices name.
    """
    earlier = [line.partition(" = ")[2] for line in task.marked_lines("FACT")]
    shown = [name for text in earlier[-1:] for name in find_entities(text)]
    return shown or find_entities(task.question) or find_entities("; ".join(task.choices.values()))


def read_formula(task: Task) -> tuple[str, str] | None:
    """Return the formula in the `EXPR:` lines and its unit, or None if there are no such lines.

    Each line may refer to the formula of the previous line as PREV.
    """
    lines = task.marked_lines("EXPR")
    body, unit = "", ""
    for line in lines:
        match = _EXPRESSION.match(line)
        assert match is not None  # the pattern matches any line
        body = match["body"].replace("PREV", f"({body})") if body else match["body"]
        unit = match["unit"] or unit
    return (body, unit) if lines else None


def find_formula(question: str) -> str | None:
    """Return the formula in a question in the grammar of `ops.synthetic.formula`, or None if there is none.

    It is the sum that the question consists of, or else the longest formula between dollar signs.
    """
    if body := sums.find_sum(question):
        return body
    formulas = re.findall(r"\$([^$]+)\$", question)
    return convert_latex(max(formulas, key=len)) if formulas else None


def format_expression_line(question: str, body: str, unit: str) -> str:
    """Return a formula as an `EXPR:` line, which defines a function if the question states a signature."""
    if named := find_signature(question):
        return f"EXPR: {named[0]}({named[1]}) = {body}"
    return f"EXPR: {body} [{unit}]" if unit else f"EXPR: {body}"


def find_signature(question: str) -> tuple[str, str] | None:
    """Return the name and the parameters of the function that a question asks for, or None if it asks for none."""
    match = _SIGNATURE.search(question)
    return (match[1], match[2]) if match else None


def read_function(task: Task) -> str | None:
    """Return the source text of the last `EXPR:` line that defines a function, or None if there is no such line."""
    for line in reversed(task.marked_lines("EXPR")):
        if match := _FUNCTION.match(line):
            return format_function(match[1], match[2], match[3])
    return None


def format_function(name: str, parameters: str, body: str) -> str:
    """Return the source text of a function that returns a formula."""
    return f"def {name}({parameters}):\n    return {body}"


def read_plan(task: Task) -> list[str]:
    """Return the steps of all `PLAN:` lines in their order."""
    return [step for line in task.marked_lines("PLAN") for step in line.split("; ")]
