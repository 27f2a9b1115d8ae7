"""The tool that turns the results of earlier workers into a final answer.

It picks the largest of several facts (or the smallest, if the subtask says so), decides whether a claim is true, finds
the letter of the choice that equals a value, converts units, and counts votes.
"""

from __future__ import annotations

import re
from collections import Counter

from ops.synthetic.formal import read_facts
from ops.synthetic.knowledge import convert_unit, find_choice, parse_number, units
from ops.synthetic.reading import Task, find_answers, format_answer

_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]+(?:\^\d)?)?")
_RESULT = re.compile(r"(?:\\boxed\{(.+)\}|Answer: (.+))")

_NOTHING = (
    "There is nothing to edit yet. I pick the largest or smallest, choose the letter, convert units, "
    "or take the most common answer."
)


def answer(task: Task) -> str:
    """Return the final answer in the requested form."""
    if "most" in task.subtask and find_answers(task):
        return _vote(task)
    shown = read_facts(task)
    if len(shown) >= 2:
        return _compare(task, [(fact.name, parse_number(fact.value)) for fact in shown])
    value = _last_result(task)
    if value is None and not task.choices:
        value = _first_quantity(task.question)
    if value is None:
        return _NOTHING
    if task.choices:
        return _choose(task, value)
    return format_answer(task, _convert_to_goal(value, task.question))


def _last_result(task: Task) -> str | None:
    results = [match for response in task.context for match in _RESULT.findall(response)]
    return next((boxed or short for boxed, short in reversed(results)), None)


def _first_quantity(question: str) -> str | None:
    match = next((m for m in _QUANTITY.finditer(question) if m[2] in units()), None)
    return match[0] if match else None


def _compare(task: Task, values: list[tuple[str, float]]) -> str:
    if task.question.lower().startswith("true or false"):
        first, second = values[0][1], values[1][1]
        smaller = "smallest" in task.subtask
        return format_answer(task, str((first < second) if smaller else (first > second)))
    pick = min if "smallest" in task.subtask else max
    name = pick(values, key=lambda value: value[1])[0]
    letters = [letter for letter, text in task.choices.items() if text.lower() == name.lower()]
    return format_answer(task, letters[0] if letters else name)


def _choose(task: Task, value: str) -> str:
    letter = find_choice(task.choices, value)
    return f"Answer: {letter}" if letter else f"None of the choices is {value}."


def _vote(task: Task) -> str:
    """Return the most frequent answer of the visible responses; among equally frequent ones the first counts."""
    voices = Counter(find_answers(task))
    answer = voices.most_common(1)[0][0]
    return f"```python\n{answer}\n```" if task.form == "program" else format_answer(task, answer)


def _convert_to_goal(value: str, question: str) -> str:
    """Return `value` in the unit that the question asks for ("in kilometres"), if it names one."""
    given = _QUANTITY.search(value)
    goal = re.search(r"\b(?:in|to|into) ([A-Za-z]+)", question)
    if not given or not given[2] or not goal or goal[1] not in units():
        return value
    converted = convert_unit(float(given[1]), given[2], goal[1])
    if converted is None:
        return value
    return f"{converted:.4f}".rstrip("0").rstrip(".") + f" {units()[goal[1]].name}"
