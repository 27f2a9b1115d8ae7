"""The tool that looks up an attribute of the named entities in the fact tables, without reasoning.

The subtask or the question must name the attribute literally. If an earlier look-up gave an entity, it replaces the
entities of the question.
"""

from __future__ import annotations

from ops.synthetic.formal import find_subjects
from ops.synthetic.knowledge import FACT_UNITS, entities, find_attribute
from ops.synthetic.reading import Task, format_answer


def answer(task: Task) -> str:
    """Return `FACT:` lines, and the answer if one fact determines it."""
    names = find_subjects(task)
    if not names:
        return "I know none of the things named here."
    held = [name for name in FACT_UNITS if name in entities()[names[0]]]
    attribute = find_attribute(task.subtask) or find_attribute(task.question)
    known = [name for name in names if attribute in entities()[name]]
    if attribute is None or not known:
        return f"Say what to look up. On {names[0]} I hold: {', '.join(held)}."
    facts = [(name, entities()[name][attribute]) for name in known]
    unit = FACT_UNITS[attribute]
    lines = [f"FACT: {attribute} of {name} = {value} {unit}".strip() for name, value in facts]
    if len(facts) == 1:
        lines += _conclusion(task, f"{facts[0][1]} {unit}".strip())
    return "\n".join(lines)


def _conclusion(task: Task, value: str) -> list[str]:
    if not task.choices:
        return [format_answer(task, value)]
    letters = [letter for letter, text in task.choices.items() if text.lower() == value.lower()]
    return [f"Answer: {letters[0]}"] if letters else []
