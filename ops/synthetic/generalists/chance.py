"""Chance that can be repeated: the same request gives the same missteps, another sample index others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist
from typing import NamedTuple, TypeVar

from ops.core.response import Namespace, Sample

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
