"""The skills of generalists, their random missteps, and how they read a question.

Missteps are random but reproducible. The same request gives the same missteps, and another sample index gives others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist
from typing import NamedTuple, TypeVar

from ops.core.messages import Namespace, Sample
from ops.synthetic.formal import read_facts
from ops.synthetic.knowledge import entities
from ops.synthetic.reading import Task


class Skill(NamedTuple):
    """The rates of missteps (in [0, 1], independent for each step) and the budgets of one generalist."""

    reading: float
    """The rate at which a clause, a number or a sentence is misread. Each earlier clause raises it by a sixth."""
    arithmetic: float
    """The rate at which an operation gives a wrong number. It doubles for numbers above 100."""
    algebra: float
    """The rate at which a question about a function is mistaken for another, or its rule is applied wrongly."""
    programming: float
    """The rate at which an operation of a program is written as another one."""
    memory: float
    """The share of facts that the generalist remembers. It makes up the others."""
    units: float
    """The rate at which a conversion of units is wrong by a power of ten."""
    tries: int
    """The number of pairs that the generalist tries for a question that needs trials."""
    search: int
    """The number of programs that the generalist tries on examples."""
    trust: float
    """The probability that the generalist repeats an earlier worker's answer, unless its subtask asks for a check."""


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
"""The skills of the cheap, the medium and the strong generalist by the NAME in `local/NAME`."""


_NORMAL = NormalDist()
T = TypeVar("T")
SHARED_MISSTEP_VARIANCE = 0.4
"""The share of a misstep's variance that belongs to the question. It lets generalists err on the same questions."""
SHARED_RECALL_VARIANCE = 0.5
"""The share of the variance of recall that belongs to the fact, and not to the generalist."""


class Misstep(NamedTuple):
    """One misstep on the way to an answer."""

    kind: str
    """The skill that failed, such as "reading" or "arithmetic"."""
    where: str
    """The part of the question or of the calculation in which it failed."""
    what: str
    """A phrase that gives the original and its erroneous replacement."""


@dataclass
class MisstepModel:
    """Draws the random missteps of one request.

    A misstep has a part that belongs to the question (`SHARED_MISSTEP_VARIANCE`), a part that belongs to the worker and
    the question (it recurs at every attempt), and a part that is drawn anew for each request and sample index.
    `temperature` is the last part's share of the remaining variance, so it controls the independence of samples and not
    their quality. At temperature 0 all samples are equal. Above 1 missteps also become more frequent.
    """

    worker: str
    """The name of the generalist."""
    question: str
    """The question with its choices as one text."""
    request: str
    """The messages as one text, so that another subtask or context has other draws."""
    sample: str = "0"
    """The sample as `sample_seed` returns it."""
    temperature: float = 1.0
    """The sampling temperature of the request."""
    missteps: list[Misstep] = field(default_factory=list)
    """The missteps so far."""

    def has_misstep(self, rate: float, kind: str, where: str) -> bool:
        """Return whether the step `where` goes wrong; the result is the same for repeated calls."""
        if rate <= 0:
            return False
        fresh = (1 - SHARED_MISSTEP_VARIANCE) * min(1.0, max(0.0, self.temperature))
        parts = [
            (SHARED_MISSTEP_VARIANCE, _uniform(self.question, kind, where)),
            (1 - SHARED_MISSTEP_VARIANCE - fresh, self._uniform(kind, where)),
        ]
        if fresh > 0:
            parts.append((fresh, self._uniform(kind, where, self.request, self.sample)))
        luck = sum(share**0.5 * _NORMAL.inv_cdf(uniform) for share, uniform in parts)
        return _NORMAL.cdf(luck) < min(0.95, rate * max(1.0, self.temperature))

    def record_misstep(self, kind: str, where: str, what: str) -> None:
        """Record a misstep, which explains a wrong answer."""
        self.missteps.append(Misstep(kind, where, what))

    def choose(self, options: Sequence[T], kind: str, where: str) -> T:
        """Draw one of `options` for this request."""
        return self.random_stream(kind, where).choice(options)

    def random_stream(self, kind: str, where: str) -> Random:
        """Return a random stream for this request; at temperature 0, for the question alone."""
        now = (self.request, self.sample) if self.temperature > 0 else ()
        return Random(self._uniform("draw", kind, where, *now))

    def _uniform(self, *parts: str) -> float:
        """Return a number in (0, 1) that is determined by the worker, the question and `parts`."""
        return _uniform(self.worker, self.question, *parts)


def _uniform(*parts: str) -> float:
    text = "\x1f".join(parts)
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 0.5) / 2**56


def sample_seed(sample: Sample) -> str:
    """Return the seed text of a sample's draws, distinct for each sample with an index below a million."""
    number = f"{sample.repetition}{sample.index:06}" if sample.repetition else str(sample.index)
    return number if sample.namespace is Namespace.ANSWERS else f"{sample.namespace} {number}"


def fact_difficulty(worker: str, name: str, attribute: str) -> float:
    """Return the difficulty of a fact for this worker, in (0, 1): equal for all requests."""
    fame = _NORMAL.inv_cdf(_uniform(name, attribute)) * SHARED_RECALL_VARIANCE**0.5
    return _NORMAL.cdf(fame + _NORMAL.inv_cdf(_uniform(worker, name, attribute)) * (1 - SHARED_RECALL_VARIANCE) ** 0.5)


CLAUSES_PER_DOUBLED_ERROR = 6
"""The number of clauses after which the probability of misreading has doubled."""


class MethodResult(NamedTuple):
    """The result of a method for a question."""

    value: str
    """The answer before formatting, or a program."""
    unit: str = ""
    """The unit of the answer, or "" if it has none."""
    notes: tuple[str, ...] = ()
    """Notes for the response on what was read and done."""
    is_verified: bool = False
    """Whether the result was verified."""


@dataclass(frozen=True)
class GeneralistTask:
    """A task together with the generalist that works on it."""

    task: Task
    """The task."""
    skill: Skill
    """The skills of the generalist."""
    missteps: MisstepModel
    """The random missteps of this request."""

    def is_misread(self, index: int, text: str) -> bool:
        """Return whether clause `index` (from 0) is misread."""
        rate = self.skill.reading * (1 + index / CLAUSES_PER_DOUBLED_ERROR)
        return self.missteps.has_misstep(rate, "reading", f"clause {index + 1}: {text}")

    def read_number(self, index: int, text: str) -> str:
        """Return a number of the question as this generalist reads it."""
        if not self.is_misread(index, text):
            return text
        seen = self.missteps.choose(_misread_numerals(text), "reading", text)
        self.missteps.record_misstep("reading", f"clause {index + 1}", f"{text} was read as {seen}")
        return seen

    def recall_fact(self, name: str, attribute: str) -> str | None:
        """Return a fact from the context or from memory, or else a random value. Returns None for an unknown fact."""
        for fact in reversed(read_facts(self.task)):
            if fact.attribute == attribute and fact.name.lower() == name.lower():
                return fact.value.split(" ")[0] if _is_number(fact.value.split(" ")[0]) else fact.value
        value = entities()[name].get(attribute)
        if value is None or self._is_remembered(name, attribute):
            return value
        others = sorted({facts[attribute] for facts in entities().values() if attribute in facts})
        guess = self.missteps.choose(others, "memory", f"{attribute} of {name}")
        self.missteps.record_misstep("memory", f"{attribute} of {name}", f"{value} became {guess}")
        return guess

    def _is_remembered(self, name: str, attribute: str) -> bool:
        """Return whether the generalist remembers a fact, which is the same for all of its requests."""
        return fact_difficulty(self.missteps.worker, name, attribute) < self.skill.memory


Method = Callable[[GeneralistTask], MethodResult | None]
"""A function that answers questions of one kind, and returns None for other questions."""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _misread_numerals(text: str) -> list[str]:
    """Return numbers that look similar to the given one, for example with a changed digit or two swapped digits."""
    whole = text.partition(".")[0]
    similar = {str(int(whole) + delta) for delta in (-1, 1, 10) if int(whole) + delta > 0}
    if len(whole) > 1:
        similar.add(whole[:-2] + whole[-1] + whole[-2])
    return sorted(similar - {text}) or [f"{text}0"]
