"""The evidence of a verdict: the versions compared, their questions, and the result of each pairing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ops.results.statistics import mcnemar
from ops.results.summary import Pairs
from ops.results.table import Rows

DOSSIER = "dossier.json"
"""The artifact of a version's run that has the dossier."""
MEAN = "mean of the benchmarks"


@dataclass(frozen=True)
class Pairing:
    """Two systems on the questions of one benchmark that both answered. Accuracies are shares; USD, seconds a
    question."""

    benchmark: str
    """A benchmark, or `MEAN` with equal weight for every benchmark."""
    questions: int
    ours: float
    theirs: float
    low: float
    high: float
    """Ends of the interval of the difference, at the confidence of the dossier."""
    gains: int
    """Questions that only this system answered correctly."""
    losses: int
    usd: float
    their_usd: float
    latency_s: float
    their_latency_s: float
    our_low: float = float("nan")
    """Ends of the 95 % interval of each accuracy; NaN in a dossier that was written without them."""
    our_high: float = float("nan")
    their_low: float = float("nan")
    their_high: float = float("nan")
    latency_p95_s: float = float("nan")
    """The 95th percentiles of latency in seconds; NaN in a dossier that was written without them."""
    their_latency_p95_s: float = float("nan")


@dataclass(frozen=True)
class Opponent:
    """A system that the challenger was compared with."""

    name: str
    facts: Mapping[str, str]
    """Known facts about it, in words: version, policy, pool, data."""
    pairings: tuple[Pairing, ...]
    note: str = ""
    """A caveat of the comparison."""


@dataclass(frozen=True)
class Dossier:
    """The whole evidence, for a page and for the log of the version."""

    version: str
    at: str
    """Time of the judgement, UTC."""
    facts: Mapping[str, str]
    """Policy, pool, data, commit, recipe, seed, training cost of the challenger."""
    questions: Mapping[str, str]
    """Benchmark → how many questions, and their key."""
    gate: Mapping[str, Any]
    """The gate's settings."""
    confidence: float
    """Two-sided confidence of the intervals in this interim analysis."""
    opponents: tuple[Opponent, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the dossier as a mapping for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Dossier:
        """Restore a dossier from `as_dict`."""
        opponents = (
            Opponent(**{**each, "pairings": tuple(Pairing(**row) for row in each["pairings"])})
            for each in facts["opponents"]
        )
        return cls(**{**facts, "opponents": tuple(opponents)})


def pairings(ours: Rows, theirs: Rows, confidence: float) -> tuple[Pairing, ...]:
    """Return the mean and one pairing per benchmark with common questions; nothing without a common question."""
    pairs = Pairs.of(ours, theirs)
    if not pairs:
        return ()
    parts = {MEAN: pairs} | {name: pairs.on(name) for name in sorted(pairs.strata())}
    return tuple(_pairing(name, part, part.latency_p95(ours, theirs), confidence) for name, part in parts.items())


def _pairing(name: str, pairs: Pairs, latency_p95: tuple[float, float], confidence: float) -> Pairing:
    gain, test = pairs.gain(confidence), mcnemar(*pairs.vectors())
    ours, theirs = pairs.accuracies()
    usd, latency = pairs.means("cost_usd"), pairs.means("latency_s")
    return Pairing(
        name, len(pairs), ours.mean, theirs.mean, gain.low, gain.high, test.gains, test.losses,
        *usd, *latency, ours.low, ours.high, theirs.low, theirs.high, *latency_p95,
    )  # fmt: skip
