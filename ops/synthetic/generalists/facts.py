"""Methods for questions about facts and about order.

They find an attribute of a thing, compare things by an attribute, decide whether a claim is true, or find a place in a
row.
"""

from __future__ import annotations

import itertools
import re

from ops.synthetic.formal import find_subjects
from ops.synthetic.generalists.skills import GeneralistTask, MethodResult
from ops.synthetic.knowledge import FACT_UNITS, entities, find_attribute, find_entities, parse_number

_ATTRIBUTES = (
    (r"governed from", "country"),
    (r"government|ministers", "capital"),
    (r"money|cash", "currency"),
    (r"speak", "language"),
    (r"chemists|stand for", "symbol"),
    (r"for its size|liquid\?$|heavy liquid", "density"),
    (r"solid|turns liquid", "melting point"),
    (r"people", "population"),
    (r"atoms", "molar mass"),
)
"""Phrases for an attribute that a question does not name; the first match counts."""
_SMALLEST = re.compile(r"lightest|lighter|floats|fewest|turns liquid|smallest", re.IGNORECASE)


def look_up_attribute(mind: GeneralistTask) -> MethodResult | None:
    """Look up the attribute that the subtask names, for everything that the question or an earlier look-up names."""
    attribute = find_attribute(mind.task.subtask)
    if attribute is None or "look up" not in mind.task.subtask:
        return None
    names = [name for name in find_subjects(mind.task) if attribute in entities()[name]]
    lines = tuple(
        f"FACT: {attribute} of {name} = {mind.recall_fact(name, attribute)} {FACT_UNITS[attribute]}".strip()
        for name in names
    )
    if not lines:
        return None
    return MethodResult(lines[0].partition(" = ")[2] if len(lines) == 1 else "", "", lines)


def compare_things(mind: GeneralistTask) -> MethodResult | None:
    """Answer which thing is first by an attribute, or whether a claim that compares two things is true."""
    text = mind.task.question
    claim = text.lower().startswith("true or false")
    names = find_entities(text if claim else "; ".join(mind.task.choices.values()))
    attribute = _guess_attribute(mind, text)
    if attribute is None or len(names) < (2 if claim else 3):
        return None
    values = {name: mind.recall_fact(name, attribute) for name in names}
    if any(value is None for value in values.values()):
        return None
    numbers = {name: parse_number(value or "") for name, value in values.items()}
    smallest = _SMALLEST.search(f"{text if 'pick' not in mind.task.subtask else mind.task.subtask}") is not None
    if mind.is_misread(0, "which side"):
        mind.missteps.record_misstep("reading", "the question", "the other end of the scale was taken")
        smallest = not smallest
    notes = tuple(f"{attribute} of {name}: {value}" for name, value in values.items())
    if claim:
        first, second = (numbers[name] for name in names[:2])
        return MethodResult(str(first < second if smallest else first > second), "", notes)
    best = (min if smallest else max)(names, key=lambda name: numbers[name])
    return MethodResult(best, "", notes)


def recall_attribute(mind: GeneralistTask) -> MethodResult | None:
    """Return one attribute of one thing, through the country if only its capital is named."""
    text = mind.task.question
    names = find_subjects(mind.task)
    if not names:
        return None
    name = names[0]
    if re.search(r"governed from", text) and (country := mind.recall_fact(name, "country")):
        name = country if country in entities() else name
    attribute = find_attribute(mind.task.subtask) or find_attribute(text) or _guess_attribute(mind, text)
    if attribute is None or (value := mind.recall_fact(name, attribute)) is None:
        return None
    return MethodResult(value, FACT_UNITS[attribute], (f"I remember the {attribute} of {name}.",))


def _guess_attribute(mind: GeneralistTask, text: str) -> str | None:
    attribute = next((name for pattern, name in _ATTRIBUTES if re.search(pattern, text, re.IGNORECASE)), None)
    if attribute is None or not mind.is_misread(1, f"the sense: {attribute}"):
        return attribute
    kin = [name for name in FACT_UNITS if bool(FACT_UNITS[name]) == bool(FACT_UNITS[attribute]) and name != attribute]
    other = mind.missteps.choose(kin, "reading", "the sense")
    mind.missteps.record_misstep("reading", "the question's sense", f"{attribute} was taken for {other}")
    return other


_ABOVE = r"\b(\w+) (?:is taller than|melts at more heat than) (\w+)"
_BELOW = r"\b(\w+) (?:is shorter than|melts at less heat than) (\w+)"
_PLACE = re.compile(r"(second )?(tallest|shortest|last to melt|first to melt)\?", re.IGNORECASE)


def order_things(mind: GeneralistTask) -> MethodResult | None:
    """Return the row that agrees with as many sentences, as they were read, as possible."""
    text = mind.task.question
    place = _PLACE.search(text)
    if place is None:
        return None
    pairs: list[tuple[str, str]] = []
    for match in re.finditer(f"{_ABOVE}|{_BELOW}", text):
        above = (match[1], match[2]) if match[1] else (match[4], match[3])
        index = len(pairs)
        if mind.is_misread(index, match[0]):
            mind.missteps.record_misstep("reading", f"clause {index + 1}", f"{match[0]} was read the other way round")
            above = (above[1], above[0])
        pairs.append(above)
    names = sorted({name for pair in pairs for name in pair})
    if not 2 <= len(names) <= 7:
        return None
    rows = list(itertools.permutations(names))
    held = [sum(row.index(high) < row.index(low) for high, low in pairs) for row in rows]
    best = [row for row, count in zip(rows, held, strict=True) if count == max(held)]
    row = mind.missteps.choose(best, "reading", "the row")
    if place[2].lower() in ("shortest", "first to melt"):
        row = row[::-1]
    return MethodResult(row[1 if place[1] else 0], "", (f"I put them in a row: {', '.join(row)}.",))
