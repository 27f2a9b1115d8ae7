"""The fact tables of the embedded world: materials, countries, units."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from ops.core.installation import resources_folder

FOLDER = resources_folder() / "data" / "knowledge"

FACT_UNITS = {
    "density": "g/cm^3",
    "melting point": "K",
    "molar mass": "g/mol",
    "population": "million",
    "symbol": "",
    "capital": "",
    "currency": "",
    "language": "",
    "country": "",
}
"""Attribute → unit of its values ("" for words)."""


class FactUnit(NamedTuple):
    name: str
    dimension: str
    factor: float
    """Size in the dimension's reference unit."""


@functools.cache
def read_knowledge_table(name: str) -> dict[str, dict[str, str]]:
    """Return `data/knowledge/NAME.csv` as entity → attribute → value."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    key = "unit" if name == "units" else "name"
    return {row[key]: {k: v for k, v in row.items() if k != key} for row in rows}


@functools.cache
def entities() -> dict[str, dict[str, str]]:
    """Return every entity with its facts; a capital city is an entity whose only fact is its country."""
    facts_of = {**read_knowledge_table("materials"), **read_knowledge_table("countries")}
    for country, facts in read_knowledge_table("countries").items():
        facts_of.setdefault(facts["capital"], {"country": country})
    return facts_of


@functools.cache
def _entity_pattern() -> re.Pattern[str]:
    names = sorted(entities(), key=len, reverse=True)
    return re.compile(r"\b(" + "|".join(re.escape(name) for name in names) + r")\b", re.IGNORECASE)


@functools.cache
def _by_lower_case() -> dict[str, str]:
    return {name.lower(): name for name in entities()}


def find_entities(text: str) -> list[str]:
    """Return the entities that the text names, in order and without repetition."""
    names = (_by_lower_case()[match.lower()] for match in _entity_pattern().findall(text))
    return list(dict.fromkeys(names))


def find_attribute(text: str) -> str | None:
    """Return the first attribute that the text names literally, if there is one."""
    hits = [(match.start(), name) for name in FACT_UNITS if (match := re.search(rf"\b{name}\b", text, re.I))]
    return min(hits)[1] if hits else None


@functools.cache
def units() -> dict[str, FactUnit]:
    """Return every spelling of a unit → the unit."""
    spellings = {}
    for name, row in read_knowledge_table("units").items():
        for spelling in row["spellings"].split():
            spellings[spelling] = FactUnit(name, row["dimension"], float(row["factor"]))
    return spellings


def convert_unit(value: float, unit: str, target: str) -> float | None:
    """Return `value` in another unit of the same dimension; None if no conversion exists."""
    source, goal = units().get(unit), units().get(target)
    if source is None or goal is None or source.dimension != goal.dimension:
        return None
    return value * source.factor / goal.factor


_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]+(?:\^\d)?)?")
TOLERANCE = 0.005
"""Relative difference of two quantities that count as the same."""


def parse_quantity(text: str) -> tuple[float, str] | None:
    """Return the first number of a text with its unit ("" without one)."""
    match = _QUANTITY.search(text)
    return (float(match[1]), match[2] or "") if match else None


def parse_number(text: str) -> float:
    """Return the first number of a text; 0 without one."""
    first = parse_quantity(text)
    return first[0] if first else 0.0


def find_choice(choices: Mapping[str, str], value: str, converting: bool = True) -> str | None:
    """Return the letter of the choice that equals `value`: as text, or as a quantity in any unit."""
    for letter, text in choices.items():
        if text.strip().lower() == value.strip().lower() or _same_quantity(text, value, converting):
            return letter
    return None


def _same_quantity(text: str, value: str, converting: bool) -> bool:
    offered, given = parse_quantity(text), parse_quantity(value)
    if not offered or not given:
        return False
    amount: float | None = given[0]
    if offered[1] and given[1] and offered[1] != given[1]:
        amount = convert_unit(given[0], given[1], offered[1]) if converting else None
    return amount is not None and abs(amount - offered[0]) <= TOLERANCE * abs(amount)
