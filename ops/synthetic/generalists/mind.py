"""What every method of a generalist needs: its skills, its chance, the task, and its senses.

Chance can be repeated: the same request gives the same missteps, another sample index others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist
from typing import NamedTuple, TypeVar

from ops.core.response import Namespace, Sample
from ops.synthetic.formal import facts
from ops.synthetic.knowledge import entities
from ops.synthetic.reading import Task


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


_NORMAL = NormalDist()
T = TypeVar("T")
TREACHERY = 0.4
"""Share of a misstep's variance that belongs to the question: what misleads one generalist misleads others."""
FAME = 0.5
"""Share of a fact's being known that belongs to the fact."""


class Misstep(NamedTuple):
    """One thing that went wrong on the way to an answer."""

    kind: str
    """The skill that failed: "reading", "arithmetic", …"""
    where: str
    what: str
    """What was made of what."""


@dataclass
class Chance:
    """Random draws of one request.

    A misstep has a part that belongs to the question (`TREACHERY`), one that belongs to the worker and the question
    (it happens again at every attempt), and one that is drawn anew for each request and sample index. `temperature`
    is the last one's share of what the question leaves, so it controls how independent samples are, not how good: at 0
    all samples are the same. Above 1 missteps also grow more frequent.
    """

    worker: str
    question: str
    request: str
    """The messages as one text: another subtask or context draws anew."""
    sample: str = "0"
    """As `drawn` gives it."""
    temperature: float = 1.0
    missteps: list[Misstep] = field(default_factory=list)

    def slips(self, rate: float, kind: str, where: str) -> bool:
        """Whether the step `where` goes wrong; asked again of the same step, the answer is the same."""
        if rate <= 0:
            return False
        fresh = (1 - TREACHERY) * min(1.0, max(0.0, self.temperature))
        parts = [(TREACHERY, _uniform(self.question, kind, where)), (1 - TREACHERY - fresh, self._uniform(kind, where))]
        if fresh > 0:
            parts.append((fresh, self._uniform(kind, where, self.request, self.sample)))
        luck = sum(share**0.5 * _NORMAL.inv_cdf(uniform) for share, uniform in parts)
        return _NORMAL.cdf(luck) < min(0.95, rate * max(1.0, self.temperature))

    def note(self, kind: str, where: str, what: str) -> None:
        """Record a misstep, which explains why the answer is wrong."""
        self.missteps.append(Misstep(kind, where, what))

    def pick(self, options: Sequence[T], kind: str, where: str) -> T:
        """One of `options`, drawn for this request."""
        return self.random(kind, where).choice(options)

    def random(self, kind: str, where: str) -> Random:
        """A stream of draws for this request; for the question alone at temperature 0."""
        now = (self.request, self.sample) if self.temperature > 0 else ()
        return Random(self._uniform("draw", kind, where, *now))

    def _uniform(self, *parts: str) -> float:
        """A number in (0, 1) that belongs to the worker, the question and `parts`."""
        return _uniform(self.worker, self.question, *parts)


def _uniform(*parts: str) -> float:
    text = "\x1f".join(parts)
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 0.5) / 2**56


def drawn(sample: Sample) -> str:
    """The text that a sample's chance is drawn from, one for each sample with an index below a million."""
    number = f"{sample.repetition}{sample.index:06}" if sample.repetition else str(sample.index)
    return number if sample.namespace is Namespace.ANSWERS else f"{sample.namespace} {number}"


def memory(worker: str, name: str, attribute: str) -> float:
    """How hard a fact is to remember, in (0, 1): equal for all requests and workers."""
    fame = _NORMAL.inv_cdf(_uniform(name, attribute)) * FAME**0.5
    return _NORMAL.cdf(fame + _NORMAL.inv_cdf(_uniform(worker, name, attribute)) * (1 - FAME) ** 0.5)


CLAUSES_PER_DOUBLED_ERROR = 6
"""Clauses after which the probability of misreading has doubled."""


class MethodResult(NamedTuple):
    """A method's result for a question."""

    value: str
    """The answer before it has the form that is asked for, or a program."""
    unit: str = ""
    notes: tuple[str, ...] = ()
    """What was read and done, for the response."""
    proven: bool = False
    """The result was verified."""


@dataclass(frozen=True)
class Mind:
    """One generalist at one task."""

    task: Task
    skill: Skill
    chance: Chance

    def misreads(self, index: int, text: str) -> bool:
        """Whether clause `index` (from 0) is misread."""
        rate = self.skill.reading * (1 + index / CLAUSES_PER_DOUBLED_ERROR)
        return self.chance.slips(rate, "reading", f"clause {index + 1}: {text}")

    def numeral(self, index: int, text: str) -> str:
        """A number of the question as this reader sees it."""
        if not self.misreads(index, text):
            return text
        seen = self.chance.pick(_misread_numerals(text), "reading", text)
        self.chance.note("reading", f"clause {index + 1}", f"{text} was read as {seen}")
        return seen

    def recall(self, name: str, attribute: str) -> str | None:
        """A fact: from what it was shown, else from memory, else made up; None where there is no such fact."""
        for fact in reversed(facts(self.task)):
            if fact.attribute == attribute and fact.name.lower() == name.lower():
                return fact.value.split(" ")[0] if _is_number(fact.value.split(" ")[0]) else fact.value
        value = entities()[name].get(attribute)
        if value is None or self._knows(name, attribute):
            return value
        others = sorted({facts[attribute] for facts in entities().values() if attribute in facts})
        guess = self.chance.pick(others, "memory", f"{attribute} of {name}")
        self.chance.note("memory", f"{attribute} of {name}", f"{value} became {guess}")
        return guess

    def _knows(self, name: str, attribute: str) -> bool:
        """Memory does not change from one request to the next; what is widely known is known to most."""
        return memory(self.chance.worker, name, attribute) < self.skill.memory


Method = Callable[[Mind], MethodResult | None]
"""A way to answer; None where the question is not of its kind."""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _misread_numerals(text: str) -> list[str]:
    """Numbers that look like this one: a digit off, two digits swapped, the point elsewhere."""
    whole = text.partition(".")[0]
    similar = {str(int(whole) + delta) for delta in (-1, 1, 10) if int(whole) + delta > 0}
    if len(whole) > 1:
        similar.add(whole[:-2] + whole[-1] + whole[-2])
    return sorted(similar - {text}) or [f"{text}0"]
