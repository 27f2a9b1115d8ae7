"""Accounts of several people: sentences, their formal clauses, and what the clauses come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

CLAUSES = {
    r"(\w+) owns (\d+) \w+": "{0} = {1}",
    r"(\w+) owns (\d+) more than (\w+)": "{0} = {2} + {1}",
    r"(\w+) owns (\d+) fewer than (\w+)": "{0} = {2} - {1}",
    r"(\w+) owns twice as many as (\w+)": "{0} = 2 * {1}",
    r"(\w+) hands (\d+) to (\w+)": "{0} -> {2} {1}",
    r"(\w+) picks up (\d+)": "{0} = {0} + {1}",
    r"(\w+) drops (\d+)": "{0} = {0} - {1}",
}
"""Sentence → clause; a later pattern that matches at the same place is the better one."""
QUESTION = r"How many does (\w+) own"
_CLAUSE = re.compile(r"(?P<to>\w+) = (?:(?P<factor>\d+) \* )?(?P<from>\w+)(?: (?P<sign>[+-]) (?P<amount>\d+))?")
_GIFT = re.compile(r"(?P<giver>\w+) -> (?P<taker>\w+) (?P<amount>\d+)")


def clauses(text: str) -> list[str]:
    """The formal clauses of a text, in its order."""
    spoken: dict[int, str] = {}
    for pattern, clause in CLAUSES.items():
        for match in re.finditer(pattern, text):
            if not (match[0].endswith((" more", " fewer"))):
                spoken[match.start()] = clause.format(*(group.lower() for group in match.groups()))
    return [spoken[at] for at in sorted(spoken)]


def run(steps: Sequence[str], act: Callable[[Fraction, str], Fraction] = lambda value, _: value) -> dict[str, Fraction]:
    """Name → what it owns in the end.

    `act(value, operation)` may change each result; clauses that cannot be read are passed over.
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
