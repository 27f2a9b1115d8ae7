"""Formal text that workers pass on in lines `FACT:`, `EXPR:` and `PLAN:`, and formal text in the question itself."""

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
    attribute: str
    name: str
    value: str
    """The value with its unit."""


def read_facts(task: Task) -> list[Fact]:
    """Return the facts that earlier workers looked up, oldest first."""
    return [Fact(*match.groups()) for line in task.marked_lines("FACT") if (match := _FACT.match(line))]


def find_subjects(task: Task) -> list[str]:
    """Return the entities to look up: an earlier look-up's result,
    else those named in the question, else its choices.
    """
    earlier = [line.partition(" = ")[2] for line in task.marked_lines("FACT")]
    shown = [name for text in earlier[-1:] for name in find_entities(text)]
    return shown or find_entities(task.question) or find_entities("; ".join(task.choices.values()))


def read_formula(task: Task) -> tuple[str, str] | None:
    """Return the `EXPR:` lines as one formula and its unit; each line may refer to the previous one as PREV."""
    lines = task.marked_lines("EXPR")
    body, unit = "", ""
    for line in lines:
        match = _EXPRESSION.match(line)
        assert match is not None  # the pattern matches any line
        body = match["body"].replace("PREV", f"({body})") if body else match["body"]
        unit = match["unit"] or unit
    return (body, unit) if lines else None


def find_formula(question: str) -> str | None:
    """Return the sum that the question consists of, else the longest formula between dollar signs, in this
    environment's grammar."""
    if body := sums.find_sum(question):
        return body
    formulas = re.findall(r"\$([^$]+)\$", question)
    return convert_latex(max(formulas, key=len)) if formulas else None


def format_expression_line(question: str, body: str, unit: str) -> str:
    """Return a formula as an `EXPR:` line; it defines a function if the question states a signature."""
    if named := find_signature(question):
        return f"EXPR: {named[0]}({named[1]}) = {body}"
    return f"EXPR: {body} [{unit}]" if unit else f"EXPR: {body}"


def find_signature(question: str) -> tuple[str, str] | None:
    """Return the name and parameters of the function of numbers that a question asks for."""
    match = _SIGNATURE.search(question)
    return (match[1], match[2]) if match else None


def read_function(task: Task) -> str | None:
    """Return the last `EXPR:` line that defines a function, as source text."""
    for line in reversed(task.marked_lines("EXPR")):
        if match := _FUNCTION.match(line):
            return format_function(match[1], match[2], match[3])
    return None


def format_function(name: str, parameters: str, body: str) -> str:
    """Return the source text of a function that returns a formula."""
    return f"def {name}({parameters}):\n    return {body}"


def read_plan(task: Task) -> list[str]:
    """Return the steps of all `PLAN:` lines."""
    return [step for line in task.marked_lines("PLAN") for step in line.split("; ")]
