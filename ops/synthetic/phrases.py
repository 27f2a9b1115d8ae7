"""The phrases that the analyst understands, each with the formal text that it stands for.

The named groups of a formula's pattern fill the places in its body. The place `fact` is filled from a `FACT:` line with
the attribute that the formula needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple


class FormulaPhrase(NamedTuple):
    """A phrase that stands for a formula."""

    pattern: str
    """The regular expression that matches the phrase."""
    body: str
    """The formula with places for the named groups of the pattern."""
    unit: str = ""
    """The unit of the result, or "" for a plain number."""
    needs: str = ""
    """The attribute that a librarian must have looked up, or "" if the formula needs none."""


_N = r"(?P<{}>\d+(?:\.\d+)?|\b[a-z]\b)"
_A, _B, _C = (_N.format(name) for name in "abc")

FORMULAS = (
    FormulaPhrase(rf"greatest common divisor of {_A} and {_B}", "gcd({a}, {b})"),
    FormulaPhrase(rf"least common multiple of {_A} and {_B}", "lcm({a}, {b})"),
    FormulaPhrase(rf"remainder when {_A} to the power {_B} is divided by {_C}", "mod({a}**{b}, {c})"),
    FormulaPhrase(rf"choose {_A} of {_B}", "binomial({b}, {a})"),
    FormulaPhrase(rf"last three digits of the sum of the first {_A} positive integers", "mod({a}*({a}+1)/2, 1000)"),
    FormulaPhrase(rf"product of two consecutive positive integers is {_A}", "x*(x-1) = {a}"),
    FormulaPhrase(rf"at {_A} km/h for {_B} hours", "{a}*{b}", "km"),
    FormulaPhrase(rf"covers {_A} km at {_B} km/h", "{a}/{b}", "h"),
    FormulaPhrase(rf"pours {_A} litres a minute for {_B} minutes", "{a}*{b}", "L"),
    FormulaPhrase(rf"earns {_A} euros an hour for {_B} hours", "{a}*{b}", "EUR"),
    FormulaPhrase(rf"{_A} euros at {_B} % simple interest for {_C} years", "{a}*{b}/100*{c}", "EUR"),
    FormulaPhrase(rf"costs {_A} euros plus {_B} euros for each of {_C}", "{a}+{b}*{c}", "EUR"),
    FormulaPhrase(rf"rectangle of {_A} by {_B} is wrapped by a border {_C}", "({a}+2*{c})*({b}+2*{c})-{a}*{b}"),
    FormulaPhrase(rf"discount of {_A} % on {_B} euros and a fee of {_C} euros", "{b}-{b}*{a}/100+{c}", "EUR"),
    FormulaPhrase(rf"mass of {_A} cubic centimetres of \w+ in a box of {_B} g", "{a}*{fact}+{b}", "g", "density"),
    FormulaPhrase(rf"how much is {_A} mol of \w+ in a box of {_B} g", "{a}*{fact}+{b}", "g", "molar mass"),
    FormulaPhrase(rf"(?:weight|mass) of {_A} cubic centimetres of", "{a}*{fact}", "g", "density"),
    FormulaPhrase(rf"how much is {_A} mol of", "{a}*{fact}", "g", "molar mass"),
    FormulaPhrase(rf"how many moles are in {_A} g of", "{a}/{fact}", "mol", "molar mass"),
    FormulaPhrase(rf"room do {_A} g of \w+ take up", "{a}/{fact}", "cm^3", "density"),
)

STORY = {
    r"(?:has|starts with) (\d+)": "{}",
    r"(?:buys|finds|receives) (\d+)": "+{}",
    r"(?:sells|loses|gives away) (\d+)": "-{}",
    r"then doubles": "*2",
    r"then triples": "*3",
    r"shared equally among (\d+)": "/{}",
    r"each of (\d+) friends brings one": "+{}",
}

OPERATIONS = {
    r"sort them": "sort",
    r"reverse (?:the order|them)": "reverse",
    r"keep (?:only )?the even": "evens",
    r"keep (?:only )?the odd": "odds",
    r"square each": "square",
    r"double each": "double",
    r"add one to each": "increment",
    r"flip (?:the|each) sign": "negate",
    r"drop repeats": "unique",
    r"leave out the first": "tail",
    r"running totals": "prefix",
    r"(?:give|return|print) (?:only )?their sum": "sum",
    r"(?:give|return|print) (?:only )?the largest": "max",
    r"(?:give|return|print) (?:only )?how many": "count",
}


def find_phrases(text: str, phrases: dict[str, str]) -> list[str]:
    """Return the formal texts of the phrases that occur in a text, in the order of the text."""
    spoken = [
        (match.start(), reading.format(*match.groups()))
        for pattern, reading in phrases.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    return [reading for _, reading in sorted(spoken)]


CLAUSES = {
    r"(\w+) owns (\d+) \w+": "{0} = {1}",
    r"(\w+) owns (\d+) more than (\w+)": "{0} = {2} + {1}",
    r"(\w+) owns (\d+) fewer than (\w+)": "{0} = {2} - {1}",
    r"(\w+) owns twice as many as (\w+)": "{0} = 2 * {1}",
    r"(\w+) hands (\d+) to (\w+)": "{0} -> {2} {1}",
    r"(\w+) picks up (\d+)": "{0} = {0} + {1}",
    r"(\w+) drops (\d+)": "{0} = {0} - {1}",
}
"""The formal clause for each pattern of a sentence. If several patterns match at one place, the last one counts."""
QUESTION = r"How many does (\w+) own"
_CLAUSE = re.compile(r"(?P<to>\w+) = (?:(?P<factor>\d+) \* )?(?P<from>\w+)(?: (?P<sign>[+-]) (?P<amount>\d+))?")
_GIFT = re.compile(r"(?P<giver>\w+) -> (?P<taker>\w+) (?P<amount>\d+)")


def find_clauses(text: str) -> list[str]:
    """Return the formal clauses of a text in the order of the text."""
    spoken: dict[int, str] = {}
    for pattern, clause in CLAUSES.items():
        for match in re.finditer(pattern, text):
            if not (match[0].endswith((" more", " fewer"))):
                spoken[match.start()] = clause.format(*(group.lower() for group in match.groups()))
    return [spoken[at] for at in sorted(spoken)]


def run_clauses(
    steps: Sequence[str], act: Callable[[Fraction, str], Fraction] = lambda value, _: value
) -> dict[str, Fraction]:
    """Return what each person owns after all clauses.

    `act(value, operation)` returns the result that is used instead of each exact one. Clauses that cannot be read are
    skipped.
    """
    owned: dict[str, Fraction] = {}
    for step in steps:
        if gift := _GIFT.fullmatch(step):
            amount = Fraction(gift["amount"])
            owned[gift["giver"]] = act(owned.get(gift["giver"], Fraction(0)) - amount, f"{step}, giving")
            owned[gift["taker"]] = act(owned.get(gift["taker"], Fraction(0)) + amount, f"{step}, taking")
        elif clause := _CLAUSE.fullmatch(step):
            source = clause["from"]
            value = Fraction(source) if source.isdigit() else owned.get(source, Fraction(0))
            value *= int(clause["factor"] or 1)
            if clause["sign"]:
                value += Fraction(clause["amount"]) * (1 if clause["sign"] == "+" else -1)
            owned[clause["to"]] = value if source.isdigit() else act(value, step)
    return owned
