"""The tool that translates prose to formal text. It writes a formula for a story and a plan for a description.

It computes nothing. It reads at most `SPAN` clauses at a time: the subtask selects the first part or the rest. Values
that a formula needs and the question does not give come from `FACT:` lines.
"""

from __future__ import annotations

import re

from ops.synthetic import phrases, sums
from ops.synthetic.formal import format_expression_line, read_facts
from ops.synthetic.phrases import FORMULAS, OPERATIONS, STORY, FormulaPhrase, find_phrases
from ops.synthetic.reading import Task

SPAN = 4
"""The largest number of clauses that the analyst reads at a time."""


def answer(task: Task) -> str:
    """Return an `EXPR:` or a `PLAN:` line, with a remark if something is missing or was not read."""
    question = task.question
    if body := sums.find_sum(question):
        return format_expression_line(question, body, "")
    for formula in FORMULAS:
        if match := re.search(formula.pattern, question, re.IGNORECASE):
            return _write_formula(task, formula, match)
    if steps := find_phrases(question, OPERATIONS):
        return _write_part("PLAN", steps, "; ", task)
    if clauses := phrases.find_clauses(question):
        return _write_part("PLAN", clauses, "; ", task)
    if clauses := find_phrases(question, STORY):
        return _write_story(clauses, task)
    return "I find nothing here to write as a formula or a plan."


def _write_formula(task: Task, formula: FormulaPhrase, match: re.Match[str]) -> str:
    values = match.groupdict()
    if formula.needs:
        known = [fact.value.split()[0] for fact in read_facts(task) if fact.attribute == formula.needs]
        if not known:
            return f"A formula needs the {formula.needs}: look up the {formula.needs} first."
        values["fact"] = known[-1]
    return format_expression_line(task.question, formula.body.format(**values), formula.unit)


def _select_span(clauses: list[str], task: Task) -> tuple[list[str], bool]:
    rest = "rest" in task.subtask
    return (clauses[SPAN:] or clauses[-1:]) if rest else clauses[:SPAN], rest


def _write_part(mark: str, clauses: list[str], glue: str, task: Task) -> str:
    part, rest = _select_span(clauses, task)
    line = f"{mark}: {glue.join(part)}"
    unread = len(clauses) - SPAN
    return line if rest or unread <= 0 else f"{line}\nI read the first part only; the rest is unread."


def _write_story(clauses: list[str], task: Task) -> str:
    part, rest = _select_span(clauses, task)
    body = "PREV" if rest else ""
    for clause in part:
        body = f"({body}){clause}" if body and clause[0] in "+-*/" else f"{body}{clause.lstrip('+')}"
    unread = "" if rest or len(clauses) <= SPAN else "\nI read the first part only; the rest is unread."
    return f"EXPR: {body}{unread}"
