"""Units of measurement and money: spellings, SI prefixes, products and powers.

pint's registry accepts more spellings than people use (`c` is the speed of light): on
the forms of `make forms` it rejects five more correct answers than this table,
accepts three wrong ones of which this table accepts none, and takes a second to load.

Temperatures are never converted (Celsius, Fahrenheit and kelvin are three dimensions).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: `factor` converts a value to the dimension's base unit; `dimension` is sorted (base, exponent) pairs."""

    factor: Fraction
    dimension: tuple[tuple[str, int], ...]


_DERIVED = {
    # symbol: (spellings, factor, {base: exponent}, takes SI prefixes)
    "m": ("m meter metre", "1", {"length": 1}, True),
    "g": ("g gram gramme gm", "0.001", {"mass": 1}, True),
    "t": ("t tonne", "1000", {"mass": 1}, False),
    "s": ("s sec second", "1", {"time": 1}, True),
    "min": ("min minute", "60", {"time": 1}, False),
    "h": ("h hr hour", "3600", {"time": 1}, False),
    "day": ("day d", "86400", {"time": 1}, False),
    "week": ("week wk", "604800", {"time": 1}, False),
    "month": ("month mo", "1", {"month": 1}, False),
    "year": ("year yr y", "1", {"year": 1}, False),
    "decade": ("decade", "10", {"year": 1}, False),
    "A": ("A amp ampere", "1", {"current": 1}, True),
    "K": ("K kelvin", "1", {"kelvin": 1}, True),
    "C": ("°C degC celsius centigrade", "1", {"celsius": 1}, False),
    "F": ("°F degF fahrenheit", "1", {"fahrenheit": 1}, False),
    "mol": ("mol mole", "1", {"amount": 1}, True),
    "N": ("N newton", "1", {"mass": 1, "length": 1, "time": -2}, True),
    "J": ("J joule", "1", {"mass": 1, "length": 2, "time": -2}, True),
    "W": ("W watt", "1", {"mass": 1, "length": 2, "time": -3}, True),
    "Pa": ("Pa pascal", "1", {"mass": 1, "length": -1, "time": -2}, True),
    "bar": ("bar", "100000", {"mass": 1, "length": -1, "time": -2}, True),
    "atm": ("atm atmosphere", "101325", {"mass": 1, "length": -1, "time": -2}, False),
    "V": ("V volt", "1", {"mass": 1, "length": 2, "time": -3, "current": -1}, True),
    "ohm": ("ohm Ω Ω", "1", {"mass": 1, "length": 2, "time": -3, "current": -2}, True),
    "coulomb": ("coulomb", "1", {"current": 1, "time": 1}, True),
    "farad": ("farad", "1", {"mass": -1, "length": -2, "time": 4, "current": 2}, True),
    "henry": ("henry", "1", {"mass": 1, "length": 2, "time": -2, "current": -2}, True),
    "T": ("T tesla", "1", {"mass": 1, "time": -2, "current": -1}, True),
    "Hz": ("Hz hertz", "1", {"time": -1}, True),
    "eV": ("eV electronvolt", "1.602176634e-19", {"mass": 1, "length": 2, "time": -2}, True),
    "cal": ("cal calorie", "4.184", {"mass": 1, "length": 2, "time": -2}, True),
    "Wh": ("Wh watthour", "3600", {"mass": 1, "length": 2, "time": -2}, True),
    "hp": ("hp horsepower", "745.7", {"mass": 1, "length": 2, "time": -3}, False),
    "L": ("L l liter litre", "0.001", {"length": 3}, True),
    "gal": ("gal gallon", "0.003785411784", {"length": 3}, False),
    "ha": ("ha hectare", "10000", {"length": 2}, False),
    "acre": ("acre", "4046.8564224", {"length": 2}, False),
    "in": ("in inch inches", "0.0254", {"length": 1}, False),
    "ft": ("ft foot feet", "0.3048", {"length": 1}, False),
    "yd": ("yd yard", "0.9144", {"length": 1}, False),
    "mi": ("mi mile", "1609.344", {"length": 1}, False),
    "lb": ("lb lbs pound-mass", "0.45359237", {"mass": 1}, False),
    "oz": ("oz ounce", "0.028349523125", {"mass": 1}, False),
    "mph": ("mph", "0.44704", {"length": 1, "time": -1}, False),
    "kph": ("kph kmh kmph", "1/3.6", {"length": 1, "time": -1}, False),
    "deg": ("° deg degree", "1", {"degree": 1}, False),
    "rad": ("rad radian", "1", {"radian": 1}, False),
    "byte": ("B byte", "8", {"bit": 1}, True),
    "bit": ("bit", "1", {"bit": 1}, True),
    "%": ("% percent percentage", "0.01", {}, False),
    "pp": ("percentage-point", "1", {"percentage point": 1}, False),
    "dB": ("dB decibel", "1", {"decibel": 1}, False),
    "M": ("M molar", "1000", {"amount": 1, "length": -3}, False),
    "$": ("$ US$ USD dollar buck", "1", {"dollar": 1}, False),
    "cent": ("cent ¢", "0.01", {"dollar": 1}, False),
    "€": ("€ EUR euro", "1", {"euro": 1}, False),
    "£": ("£ GBP pound", "1", {"pound": 1}, False),
    "¥": ("¥ JPY yen", "1", {"yen": 1}, False),
    "rupee": ("₹ INR rupee", "1", {"rupee": 1}, False),
}  # fmt: skip
_PREFIXES = {
    "T": ("tera", 12), "G": ("giga", 9), "M": ("mega", 6), "k": ("kilo", 3), "h": ("hecto", 2),
    "d": ("deci", -1), "c": ("centi", -2), "m": ("milli", -3), "u": ("micro", -6), "µ": ("micro", -6),
    "μ": ("micro", -6), "n": ("nano", -9), "p": ("pico", -12),
}  # fmt: skip
_TOKEN = re.compile(r"([^\W\d_]+\$?|[$€£¥₹¢%°ΩΩ][CF]?)(?:\^?\(?\{?(-?[1-9])\}?\)?)?")
_DANGLING = re.compile(r"^[*·⋅×]|^-(?![^\W\d])|[-*·⋅×/]\s*$|[-*·⋅×/]\s*[-*·⋅×/]")
"""An operator without a unit on both sides; only a slash may begin a unit, as in "/s", or a hyphen: "5-km"."""
_WORDS = (
    (re.compile(r"\bper cent\b", re.I), "percent"),
    (re.compile(r"\bpercentage points?\b", re.I), "percentage-point"),
    (re.compile(r"\bdegrees? (?:celsius|centigrade|c)\b|° ?c\b", re.I), "°C"),
    (re.compile(r"\bdegrees? (?:fahrenheit|f)\b|° ?f\b", re.I), "°F"),
    (re.compile(r"\b(?:u\.s\.|us) dollars?\b", re.I), "dollar"),
    (re.compile(r"\bmiles per hour\b", re.I), "mph"),
    (re.compile(r"\b(?:square|sq\.?) (\w+)", re.I), r"\1^2"),
    (re.compile(r"\b(?:cubic|cu\.?) (\w+)", re.I), r"\1^3"),
    (re.compile(r"\b(\w+) squared\b", re.I), r"\1^2"),
    (re.compile(r"\b(\w+) cubed\b", re.I), r"\1^3"),
    (re.compile(r"\bper\b|\bfor (?:each|every)\b", re.I), "/"),
    (re.compile(r"²"), "^2"),
    (re.compile(r"³"), "^3"),
    (re.compile(r"⁻¹"), "^-1"),
    (re.compile(r"⁻²"), "^-2"),
)  # fmt: skip


@lru_cache(maxsize=1)
def _unit_table() -> dict[str, Unit]:
    """Return every spelling, including prefixed and plural ones; words in lower case, symbols unchanged."""
    table: dict[str, Unit] = {}
    for spellings, factor, bases, prefixed in _DERIVED.values():
        top, _, bottom = factor.partition("/")
        dimension = tuple(sorted(bases.items()))
        unit = Unit(Fraction(top) / Fraction(bottom or "1"), dimension)
        for name in spellings.split():
            table[name] = unit
            if len(name) > 2 and name.isalpha():
                table.setdefault(name + "s", unit)
            if not prefixed:
                continue
            for symbol, (word, power) in _PREFIXES.items():
                scaled = Unit(unit.factor * Fraction(10) ** power, dimension)
                if len(name) <= 2 or name in ("bar", "mol", "cal", "bit"):
                    table.setdefault(symbol + name, scaled)
                if len(name) > 2:
                    table.setdefault(word + name, scaled)
                    table.setdefault(word + name + "s", scaled)
    table["min"], table["mins"] = Unit(Fraction(60), (("time", 1),)), Unit(Fraction(60), (("time", 1),))
    table["hrs"] = table["h"]
    table["yrs"] = table["yr"]
    table["kilo"] = table["kilos"] = table["kg"]
    table["feet"] = table["ft"]
    table["cc"] = Unit(Fraction(1, 10**6), (("length", 3),))
    table["pct"] = table["%"]
    return table


def _lookup(word: str) -> Unit | None:
    table = _unit_table()
    if word in table:
        return table[word]
    lower = word.lower()
    # The case of a short symbol is significant (mW, MW); the case of a word is not.
    return table.get(lower) if len(word) > 2 or lower in ("kg", "km", "cm", "mm", "hz") else None


@lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit | None:
    """Return the unit that `text` spells; None if any part is unknown, or if it is empty or long."""
    text = text.strip().strip(".").strip()
    if not text or len(text) > 80 or _DANGLING.search(text) or text.count("(") != text.count(")"):
        return None
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    if text == "percentage-point":
        return _unit_table()[text]
    factor, sign, position, known = Fraction(1), 1, 0, False
    bases: dict[str, int] = {}
    while position < len(text):
        char = text[position]
        if char in " *·⋅×-()/":
            # Everything after a slash is a divisor: J/(mol K), m/s/s.
            sign, position = (-1 if char == "/" else sign), position + 1
            continue
        match = _TOKEN.match(text, position)
        unit = _lookup(match.group(1)) if match else None
        if match is None or unit is None:
            return None
        exponent = int(match.group(2) or 1) * sign
        factor *= unit.factor**exponent
        for base, power in unit.dimension:
            bases[base] = bases.get(base, 0) + power * exponent
        known, position = True, match.end()
    return Unit(factor, tuple(sorted((b, p) for b, p in bases.items() if p))) if known else None


def find_leading_unit(text: str) -> str:
    """Return the longest beginning of `text` that is a unit: "years" for "years of age"; "" if there is none."""
    words = re.split(r"[,;(]", text)[0].split()
    for count in range(min(len(words), 6), 0, -1):
        head = " ".join(words[:count]).rstrip(".")
        # In "5 a day", "3 in total" and "5 km in all" a short word before other words is not a unit; "in" is not inch.
        is_whole = count == len(words) or (words[count - 1] != "in" and (len(head) > 2 or not head.isalpha()))
        if is_whole and parse_unit(head) is not None:
            return head
    return ""
