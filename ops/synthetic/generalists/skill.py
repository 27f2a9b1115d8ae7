"""How often a generalist's steps go wrong: its whole character in numbers."""

from __future__ import annotations

from typing import NamedTuple


class Skill(NamedTuple):
    """The rates of missteps (in [0, 1], each step by itself) and the budgets of one generalist."""

    reading: float
    """A clause, a number or a sentence's sense is misread; a sixth more with every clause before it."""
    arithmetic: float
    """An operation gives a wrong number; twice as often with numbers over 100."""
    algebra: float
    """What is asked of a function is taken for something else, or its rule misapplied."""
    programming: float
    """An operation of a program is written as another."""
    memory: float
    """Share of the facts that it knows at all. What it does not know it makes up."""
    units: float
    """A conversion goes wrong by a power of ten."""
    tries: int
    """Pairs of numbers that it tries, where only trying helps."""
    search: int
    """Programs that it tries on examples."""
    trust: float
    """Probability that it passes on an earlier worker's answer as it is, unless its subtask asks for a check."""


SKILLS: dict[str, Skill] = {
    "apprentice": Skill(
        reading=0.20,
        arithmetic=0.10,
        algebra=0.40,
        programming=0.15,
        memory=0.15,
        units=0.30,
        tries=6,
        search=900,
        trust=0.8,
    ),
    "scholar": Skill(
        reading=0.12,
        arithmetic=0.13,
        algebra=0.40,
        programming=0.25,
        memory=0.60,
        units=0.15,
        tries=5,
        search=100,
        trust=0.5,
    ),
    "solver": Skill(
        reading=0.08,
        arithmetic=0.05,
        algebra=0.15,
        programming=0.10,
        memory=0.30,
        units=0.12,
        tries=10,
        search=350,
        trust=0.3,
    ),
}
"""By name as in `local/NAME`: cheap, medium and strong."""
