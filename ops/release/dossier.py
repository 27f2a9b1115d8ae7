"""The evidence of a promotion decision: which systems were compared, on which questions, and with what result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ops.results.measures import COMPARED, Measure
from ops.results.statistics import mcnemar_test
from ops.results.summary import QUESTION_KEY, PairedQuestions, format_compliance_by_question
from ops.results.table import Rows, to_table

if TYPE_CHECKING:
    import polars as pl

DOSSIER_FILE = "dossier.json"
"""The artifact of a version's run that has the dossier."""
MEAN_LABEL = "mean of the benchmarks"
"""The name of the row with the mean of all benchmarks, each with the same weight."""


@dataclass(frozen=True)
class PairedComparison:
    """The comparison of two systems on the questions of one benchmark that both answered.

    Accuracies are shares in [0, 1]. `ours` is the challenger's value, `theirs` the other system's.
    """

    benchmark: str
    """The benchmark's name, or `MEAN_LABEL` for the mean of all benchmarks."""
    questions: int
    """The number of questions that both systems answered."""
    ours: float
    theirs: float
    low: float
    """The lower end of the interval of the difference in accuracy, at the confidence of the dossier."""
    high: float
    """The upper end of that interval."""
    gains: int
    """The number of questions that only the challenger answered correctly."""
    losses: int
    """The number of questions that only the other system answered correctly."""
    values: Mapping[str, float]
    """The values of the `COMPARED` measures over the questions for which both systems wrote a valid workflow, by the
    measure's key, such as "usd", and for the other system "their_usd". They are NaN if there is no such question."""
    our_low: float = float("nan")
    """The ends of the 95 % interval of each accuracy. They are NaN in a dossier of a version that did not store them.
    """
    our_high: float = float("nan")
    their_low: float = float("nan")
    their_high: float = float("nan")
    cost_questions: int | None = None
    """The number of questions for which both wrote a valid workflow. It is None in a dossier of a version that did not
    store it, whose measures count every invalid workflow as 0."""
    invalid: float = float("nan")
    """The share of each system's answers to these questions that are no valid workflow. They are NaN in a dossier that
    did not store them."""
    their_invalid: float = float("nan")

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> PairedComparison:
        """Restore a comparison from the values that `as_dict` returned."""
        own = {each.name: facts[each.name] for each in fields(cls) if each.name in facts}
        return cls(**own, values={key: value for key, value in facts.items() if key not in own})

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, with those of the measures beside the others."""
        facts = asdict(self)
        values: dict[str, Any] = facts.pop("values")
        return values | facts

    def pair_values(self, measure: Measure) -> tuple[float, float]:
        """Return both systems' values of a measure; NaN in a dossier of a version that did not store them."""
        ours, theirs = (self.values.get(key, math.nan) for key in (measure.key, f"their_{measure.key}"))
        return ours, theirs


@dataclass(frozen=True)
class Opponent:
    """A system that the challenger was compared with: the champion or the best single worker."""

    name: str
    facts: Mapping[str, str]
    """What is known about the system, as label → text: version, policy, pool, data."""
    pairings: tuple[PairedComparison, ...]
    note: str = ""
    """A reservation about the comparison, as sentences; empty if there is none."""


@dataclass(frozen=True)
class Dossier:
    """The whole evidence of one decision. It is stored with the version and shown as a page."""

    version: str
    at: str
    """The time of the decision in UTC, as text."""
    facts: Mapping[str, str]
    """The challenger's policy, pool, data, commit, recipe, seed and training cost, as label → text."""
    questions: Mapping[str, str]
    """The number of questions of each benchmark and the key that identifies them, as benchmark → text."""
    gate: Mapping[str, Any]
    """The settings of the gate, by name."""
    confidence: float
    """The two-sided confidence of the intervals in this interim analysis, in [0, 1]."""
    opponents: tuple[Opponent, ...]
    cost: str = ""
    """What the version cost, in words (`lineage.describe_cost`). It is empty in a dossier that did not store it."""
    pool_change: str = ""
    """What the change of the pool cost, in one sentence: the challenger beside the champion on the pool before the
    change. It is empty if the pool has not changed since the champion was registered."""

    def as_dict(self) -> dict[str, Any]:
        """Return the dossier as plain values that JSON can hold."""
        opponents = [{**vars(each), "pairings": [pair.as_dict() for pair in each.pairings]} for each in self.opponents]
        return {**vars(self), "opponents": opponents}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Dossier:
        """Restore a dossier from the values that `as_dict` returned."""
        opponents = (
            Opponent(**{**each, "pairings": tuple(map(PairedComparison.from_dict, each["pairings"]))})
            for each in facts["opponents"]
        )
        return cls(**{**facts, "opponents": tuple(opponents)})


def compare_by_benchmark(ours: Rows, theirs: Rows, confidence: float) -> tuple[PairedComparison, ...]:
    """Compare two systems on the questions that both answered: first in the mean of the benchmarks, then on each
    benchmark.

    Returns an empty tuple if they have no question in common. `confidence` is that of the interval of the difference.
    """
    ours, theirs = to_table(ours), to_table(theirs)
    pairs = PairedQuestions.from_rows(ours, theirs)
    if not pairs:
        return ()
    both = PairedQuestions.from_valid_rows(ours, theirs)
    compliance = [format_compliance_by_question(rows) for rows in (ours, theirs)]
    parts = {MEAN_LABEL: (pairs, both)} | {
        name: (pairs.select_benchmark(name), both.select_benchmark(name)) for name in sorted(pairs.strata())
    }
    return tuple(
        _compare(name, part, valid, [_invalid_share(own, part) for own in compliance], confidence)
        for name, (part, valid) in parts.items()
    )


def _invalid_share(compliance: pl.DataFrame, pairs: PairedQuestions) -> float:
    own = compliance.join(pairs.questions, on=QUESTION_KEY, how="semi")
    return 1 - float(own["written"].sum()) / float(own["answers"].sum())


def _compare(
    name: str, pairs: PairedQuestions, valid: PairedQuestions, invalid: Sequence[float], confidence: float
) -> PairedComparison:
    gain, test = pairs.difference_interval(confidence), mcnemar_test(*pairs.accuracy_vectors())
    ours, theirs = pairs.accuracies()
    values: dict[str, float] = {}
    for measure in COMPARED:
        values[measure.key], values[f"their_{measure.key}"] = valid.values(measure)
    return PairedComparison(
        name, len(pairs), ours.mean, theirs.mean, gain.low, gain.high, test.gains, test.losses, values,
        ours.low, ours.high, theirs.low, theirs.high, len(valid), *invalid,
    )  # fmt: skip
