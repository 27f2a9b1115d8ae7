"""What a verdict rests on, in figures: which versions were compared, on which questions, and how each pair came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import mcnemar
from ops.release.pairs import Pairs

DOSSIER = "dossier.json"
"""The artifact of a version's run that holds it."""
MEAN = "mean of the benchmarks"


@dataclass(frozen=True)
class Pairing:
    """Two systems on the questions of one benchmark that both answered. Accuracies are shares; USD, seconds a
    question."""

    benchmark: str
    """Or `MEAN`, every benchmark weighing the same."""
    questions: int
    ours: float
    theirs: float
    low: float
    high: float
    """Ends of the interval of the difference, at the confidence of the dossier."""
    gains: int
    """Questions that only we answered."""
    losses: int
    usd: float
    their_usd: float
    latency_s: float
    their_latency_s: float


@dataclass(frozen=True)
class Opponent:
    """Whom the challenger was compared with."""

    name: str
    facts: Mapping[str, str]
    """Version, policy, pool, data: what is known of it, in words."""
    pairings: tuple[Pairing, ...]
    note: str = ""
    """What a reader must know of the comparison."""


@dataclass(frozen=True)
class Dossier:
    """All of it, for a page and for the log of the version."""

    version: str
    at: str
    """When it was judged, UTC."""
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
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Dossier:
        """What `as_dict` gave."""
        opponents = (
            Opponent(**{**each, "pairings": tuple(Pairing(**row) for row in each["pairings"])})
            for each in facts["opponents"]
        )
        return cls(**{**facts, "opponents": tuple(opponents)})


def pairings(ours: Sequence[OutcomeRow], theirs: Sequence[OutcomeRow], confidence: float) -> tuple[Pairing, ...]:
    """One a benchmark that both answered questions of, and their mean first; none without a common question."""
    pairs = Pairs(ours, theirs)
    if not pairs.questions:
        return ()
    return (
        _pairing(MEAN, pairs, confidence),
        *(_pairing(name, pairs.of(name), confidence) for name in sorted(pairs.strata())),
    )


def _pairing(name: str, pairs: Pairs, confidence: float) -> Pairing:
    gain, test = pairs.gain(confidence), mcnemar(*pairs.vectors())
    ours, theirs = pairs.accuracies()
    usd, latency = pairs.means("cost_usd"), pairs.means("latency_s")
    return Pairing(
        name, len(pairs.questions), ours, theirs, gain.low, gain.high, test.gains, test.losses, *usd, *latency
    )
