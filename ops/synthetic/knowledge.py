"""Read the fact tables of the synthetic environment, which describe materials, countries and units."""

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
"""The unit of the values of each attribute, or "" if the values are words."""


class FactUnit(NamedTuple):
    """A unit of measurement."""

    name: str
    """The name of the unit."""
    dimension: str
    """The dimension, such as length; units of the same dimension can be converted."""
    factor: float
    """The size of the unit in the reference unit of its dimension."""


@functools.cache
def read_knowledge_table(name: str) -> dict[str, dict[str, str]]:
    """Return `data/knowledge/NAME.csv` as a dictionary from entities to attributes to values."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    key = "unit" if name == "units" else "name"
    return {row[key]: {k: v for k, v in row.items() if k != key} for row in rows}


@functools.cache
def entities() -> dict[str, dict[str, str]]:
    """Return the facts of every entity by its name. The only fact of a capital city is its country."""
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
    """Return the entities that a text names, in the order of the text and without repetitions."""
    names = (_by_lower_case()[match.lower()] for match in _entity_pattern().findall(text))
    return list(dict.fromkeys(names))


def find_attribute(text: str) -> str | None:
    """Return the first attribute that a text names literally, or None if it names none."""
    hits = [(match.start(), name) for name in FACT_UNITS if (match := re.search(rf"\b{name}\b", text, re.I))]
    return min(hits)[1] if hits else None


@functools.cache
def units() -> dict[str, FactUnit]:
    """Return the units by each of their spellings."""
    spellings = {}
    for name, row in read_knowledge_table("units").items():
        for spelling in row["spellings"].split():
            spellings[spelling] = FactUnit(name, row["dimension"], float(row["factor"]))
    return spellings


def convert_unit(value: float, unit: str, target: str) -> float | None:
    """Return `value` in another unit, or None if a unit is unknown or the dimensions differ."""
    source, goal = units().get(unit), units().get(target)
    if source is None or goal is None or source.dimension != goal.dimension:
        return None
    return value * source.factor / goal.factor


_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]+(?:\^\d)?)?")
TOLERANCE = 0.005
"""The largest relative difference of two quantities that count as equal."""


def parse_quantity(text: str) -> tuple[float, str] | None:
    """Return the first number of a text with its unit ("" if it has none), or None if there is no number."""
    match = _QUANTITY.search(text)
    return (float(match[1]), match[2] or "") if match else None


def parse_number(text: str) -> float:
    """Return the first number of a text, or 0 if there is none."""
    first = parse_quantity(text)
    return first[0] if first else 0.0


def find_choice(choices: Mapping[str, str], value: str, converting: bool = True) -> str | None:
    """Return the letter of the choice that equals `value` as a text or as a quantity, or None if no choice does.

    If `converting` is True, quantities in different units are compared after conversion.
    """
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
