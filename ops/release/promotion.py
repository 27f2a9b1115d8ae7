"""Decide from score rows whether a challenger is promoted. All functions here are pure.

Suppose that a challenger arrives every night, and that the gate passes a worse one with a probability of 1 in 40. After
a month it has more likely than not passed one. All interim analyses against one champion therefore share one error
probability: each analysis gets a part of it, and the parts add up to at most the whole, for any number of analyses and
any dependence between them (Bonferroni's inequality). The method assumes neither independent challengers nor unchanged
questions.

An invalid workflow calls no worker, so it costs nothing. If it entered a mean of cost, a system would look cheaper the
more often it fails: a failing champion could hardly be replaced, and a failing challenger would pass. Cost and latency
are therefore compared on the questions for which both systems wrote a valid workflow, and the challenger's own invalid
workflows have bounds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ops.config import PromotionGate
from ops.core.errors import ConfigError, format_figure
from ops.results.measures import COMPARED, MEASURES, Measure
from ops.results.statistics import Interval, estimate_accuracy, mcnemar_test, score_interval
from ops.results.summary import (
    QUESTION_KEY,
    PairedQuestions,
    average_by_question,
    filter_valid,
    format_compliance_by_question,
)
from ops.results.table import Rows, to_table

NO_CHAMPION = "none"
"""The value that is recorded in place of the champion's version if there is no champion."""


_RATIO = " ratio to the champion"
_COMPARED = "questions to compare cost and latency on"
_BOUNDED = tuple(measure for measure in MEASURES if measure.max_value)
"""The measures whose value for the challenger itself has a bound. A check has the name of the unit."""
_ANALYSES = "analyses against the champion"


@dataclass(frozen=True)
class GateCheck:
    """One condition of the gate with its measured value, its bound, and an explanation in words."""

    name: str
    value: float
    bound: float
    passed: bool
    explanation: str
    subject: Literal["quality", "cost"] = "quality"
    """"cost" if the check is about a measure such as USD or latency. Training lowers none of them, so a failure of such
    a check does not cause one."""
    limit: Literal["at least", "at most"] = "at least"
    """On which side of the bound the value has to be."""

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> GateCheck:
        """Restore a check from its fields. In decisions of an earlier version, which did not store subject and limit,
        they follow from the name."""
        name = facts["name"]
        is_bounded = name.endswith(_RATIO) or name in {measure.unit for measure in _BOUNDED}
        subject = "cost" if is_bounded or name == _COMPARED else "quality"
        limit = "at most" if is_bounded or name == _ANALYSES else "at least"
        return cls(**{"subject": subject, "limit": limit, **facts})

    def describe_value(self) -> str:
        """Return name, value and bound in a few words."""
        return f"{self.name} {format_figure(self.value)}, bound {format_figure(self.bound)}"

    def describe_bound(self) -> str:
        """Return the bound with its direction, such as "≥ 0.95"."""
        return f"{'≤' if self.limit == 'at most' else '≥'} {format_figure(self.bound)}"


@dataclass(frozen=True)
class Override:
    """A person's decision to promote a version although the gate did not."""

    name: str
    reason: str


@dataclass(frozen=True)
class GateDecision:
    """A decision of the gate with its evidence, and a person's override if there is one."""

    promote: bool
    """Whether the gate promotes the version. An override does not change this value."""
    checks: tuple[GateCheck, ...]
    override: Override | None = None
    analysis: int = 1
    """The number of the interim analysis against this champion, counted from 1."""
    against: str | None = None
    """The version of the champion; `NO_CHAMPION` if there was none; None if it was not recorded."""

    @property
    def failed(self) -> tuple[GateCheck, ...]:
        """Return the checks that failed."""
        return tuple(check for check in self.checks if not check.passed)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> GateDecision:
        """Restore a decision from the values that `as_dict` returned."""
        by = facts["override"]
        checks = tuple(map(GateCheck.from_dict, facts["checks"]))
        override = Override(**by) if by else None
        return cls(facts["promote"], checks, override, facts["analysis"], facts.get("against"))

    def as_dict(self) -> dict[str, Any]:
        """Return the decision as plain values that JSON can hold, for the log of the version."""
        return asdict(self)


def decide_promotion(
    challenger: Rows,
    champion: Rows | None,
    best_worker: Rows,
    gate: PromotionGate,
    *,
    analysis: int = 1,
) -> GateDecision:
    """Decide whether the challenger is promoted, from its rows, the champion's (None if there is no champion) and the
    best worker's.

    The comparisons are paired: only questions that both sides answered count, and every benchmark has the same weight.
    The check fails if two sides share too few questions, because the difference is then unknown. Cost and latency are
    compared on the questions for which both wrote a valid workflow. If these are too few, the gate's own bounds of a
    question's cost and latency decide, and the challenger is refused if there are none. `analysis` is the
    number of this interim analysis against the champion, from 1; later analyses use wider intervals
    (`confidence_of_analysis`). Raises `ValueError` if it is less than 1.
    """
    confidence = confidence_of_analysis(gate, analysis)
    challenger = to_table(challenger)
    ours = average_by_question(challenger)
    checks = [
        _check_format(challenger, gate),
        *_check_against_best_worker(PairedQuestions(ours, average_by_question(best_worker)), gate, confidence),
    ]
    if champion is not None:
        pairs = PairedQuestions(ours, average_by_question(champion))
        checks += _check_against_champion(pairs, gate, confidence)
        if pairs:
            checks += _compare_costs(challenger, to_table(champion), pairs, gate)
    checks += _check_own_costs(challenger, gate)
    if gate.planned_analyses is not None:
        checks.append(_check_planned_analyses(analysis, gate.planned_analyses))
    return GateDecision(all(check.passed for check in checks), tuple(checks), analysis=analysis)


def override_decision(decision: GateDecision, name: str, reason: str) -> GateDecision:
    """Add a person's decision to promote the version although the gate did not. Raises `ConfigError` if the name or the
    reason is blank."""
    for field, value in (("name", name), ("reason", reason)):
        if not value.strip():
            raise ConfigError("promotion override", field, "is empty", "Give both `--by NAME` and `--reason WHY`")
    return replace(decision, override=Override(name.strip(), reason.strip()))


def _compare_costs(challenger: Rows, champion: Rows, pairs: PairedQuestions, gate: PromotionGate) -> list[GateCheck]:
    """Compare cost and latency on the questions for which both wrote a valid workflow, and check how many the
    challenger's own invalid workflows leave out."""
    both = PairedQuestions.from_valid_rows(challenger, champion)
    checks = _check_shared_workflows(challenger, champion, pairs, gate)
    on = f"the {len(both)} of {len(pairs)} questions for which both wrote a valid workflow"
    needed = min(gate.min_cost_questions, math.ceil(gate.min_paired_share * len(pairs) - 1e-9))
    if len(both) < needed:
        unset = [measure.max_value for measure in _BOUNDED if getattr(gate, measure.max_value) is None]
        then = f"config/promotion.yaml does not set {' and '.join(unset)}" if unset else "its own bounds decide instead"
        said = f"{on}, which are too few; {then}"
        return [*checks, GateCheck(_COMPARED, len(both), needed, not unset, said, "cost")]
    return checks + [
        _check_ratio(measure, *both.values(measure), bound, on)
        for measure in COMPARED
        if (bound := getattr(gate, measure.max_ratio)) is not None
    ]


def _check_shared_workflows(
    challenger: Rows, champion: Rows, pairs: PairedQuestions, gate: PromotionGate
) -> list[GateCheck]:
    written = average_by_question(filter_valid(champion)).join(pairs.questions, on=QUESTION_KEY, how="semi")
    asked = format_compliance_by_question(challenger).join(written, on=QUESTION_KEY, how="semi")
    if asked.is_empty():
        return []
    answers, valid = int(asked["answers"].sum()), int(asked["written"].sum())
    return [
        _check_minimum(
            "workflows where the champion wrote one",
            valid / answers,
            gate.min_shared_workflows,
            f"{answers - valid} of {answers} completions gave no workflow, on {asked.height} questions for which the "
            "champion wrote one",
        )
    ]


def _check_own_costs(challenger: Rows, gate: PromotionGate) -> list[GateCheck]:
    """Check the challenger's cost and latency against the bounds of the gate that are set."""
    checks, valid = [], None
    for measure in _BOUNDED:
        if (bound := getattr(gate, measure.max_value)) is not None:
            valid = average_by_question(filter_valid(challenger)) if valid is None else valid
            value = math.fsum(valid[measure.name]) / valid.height if valid.height else math.inf
            said = f"mean of the {valid.height} questions for which it wrote a valid workflow"
            checks.append(_check_maximum(measure.unit, value, bound, said, "cost"))
    return checks


def _check_format(rows: Rows, gate: PromotionGate) -> GateCheck:
    compliance = format_compliance_by_question(rows)
    answers, written = int(compliance["answers"].sum()), int(compliance["written"].sum())
    found = estimate_accuracy(compliance["share"])
    ends = f"; 95 % interval of the compliance {found.low:.3f} to {found.high:.3f}" if found.has_interval else ""
    return _check_minimum(
        "format compliance",
        written / answers if answers else 0.0,
        gate.min_format_compliance,
        f"{answers - written} of {answers} completions gave no workflow{ends}",
    )


def _check_planned_analyses(analysis: int, planned: int) -> GateCheck:
    explanation = "challengers of this champion; later ones would be promoted by chance too often"
    return _check_maximum(_ANALYSES, analysis, planned, explanation)


def _check_against_best_worker(pairs: PairedQuestions, gate: PromotionGate, confidence: float) -> list[GateCheck]:
    coverage = _check_coverage(pairs, "the best single worker", gate)
    if not pairs:
        return [coverage]
    gain = pairs.difference_interval(confidence)
    return [
        coverage,
        _check_minimum(
            "gain over the best single worker",
            gain.low,
            gate.min_gain_over_best_worker,
            f"{_describe_interval(gain, confidence)}; {pairs.describe_discordance()}",
        ),
    ]


def _check_against_champion(pairs: PairedQuestions, gate: PromotionGate, confidence: float) -> list[GateCheck]:
    coverage = _check_coverage(pairs, "the champion", gate)
    if not pairs:
        return [coverage]
    gain = pairs.difference_interval(confidence)
    worst, loss = min(((name, sum(d) / len(d)) for name, d in pairs.strata().items()), key=lambda item: item[1])
    ends = score_interval([pairs.strata()[worst]], confidence=confidence)
    test = mcnemar_test(*pairs.accuracy_vectors())
    # This test can only refuse, so each analysis applies it at its full level, which is the stricter choice.
    significantly_worse = test.losses > test.gains and test.p_value < 1 - gate.confidence
    return [
        coverage,
        _check_minimum(
            "difference to the champion",
            gain.low,
            -gate.max_loss_against_champion,
            _describe_interval(gain, confidence),
        ),
        GateCheck(
            "McNemar against the champion",
            test.p_value,
            1 - gate.confidence,
            not significantly_worse,
            f"{pairs.describe_discordance()}; fails when there are significantly more losses",
        ),
        _check_minimum(
            "worst benchmark against the champion",
            loss,
            -gate.max_benchmark_loss,
            f"on {worst}; {_describe_interval(ends, confidence)}",
        ),
    ]


def _describe_interval(gain: Interval, confidence: float) -> str:
    # 97.5 %, 99.5946 %: as many digits as the error probability needs.
    return f"mean {gain.mean:+.3f}, {100 * confidence:.6g} % interval {gain.low:+.3f} to {gain.high:+.3f}"


def _check_minimum(name: str, value: float, bound: float, explanation: str) -> GateCheck:
    return GateCheck(name, value, bound, value >= bound, explanation)


def _check_maximum(
    name: str, value: float, bound: float, explanation: str, subject: Literal["quality", "cost"] = "quality"
) -> GateCheck:
    return GateCheck(name, value, bound, value <= bound, explanation, subject, "at most")


def _check_coverage(pairs: PairedQuestions, whom: str, gate: PromotionGate) -> GateCheck:
    share = len(pairs) / pairs.asked if pairs.asked else 0.0
    explanation = f"{len(pairs)} of {pairs.asked} questions were scored by both"
    return _check_minimum(f"questions shared with {whom}", share, gate.min_paired_share, explanation)


def _check_ratio(measure: Measure, ours: float, theirs: float, bound: float, on: str) -> GateCheck:
    # Only a cost of zero matches a champion whose prices are all 0.
    ratio = ours / theirs if theirs > 0 else (1.0 if ours == 0 else float("inf"))
    explanation = f"{ours:.6g} against the champion's {theirs:.6g} {measure.unit}, on {on}"
    # "max_p95_latency_ratio" becomes "p95 latency ratio to the champion".
    name = measure.max_ratio.removeprefix("max_").removesuffix("_ratio").replace("_", " ") + _RATIO
    return _check_maximum(name, ratio, bound, explanation, "cost")


def confidence_of_analysis(gate: PromotionGate, analysis: int) -> float:
    """Return the two-sided confidence, in [0, 1], of the intervals in interim analysis number `analysis` (from 1)
    against one champion.

    Without the setting `planned_analyses`, the parts of the error probability are 1/2, 1/6, 1/12 … 1/(k·(k+1)), which
    add up to 1. The first challengers get most of it, and the number of analyses is unlimited. With `planned_analyses`
    each analysis gets the same part, and `decide_promotion` refuses later ones. Raises `ValueError` if `analysis` is
    less than 1.
    """
    if analysis < 1:
        raise ValueError(f"analyses are counted from 1, got {analysis}")
    part = 1 / (analysis * (analysis + 1)) if gate.planned_analyses is None else 1 / gate.planned_analyses
    return 1 - (1 - gate.confidence) * part
