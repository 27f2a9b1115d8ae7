"""Decide whether a champion needs training after a change of its pool. Two pure functions return the decision with its
figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ops.config import PromotionGate, Retraining
from ops.core.response_rows import ResponseRow
from ops.precaching.profiles import tabulate_scores
from ops.release.promotion import GateCheck, GateDecision, decide_promotion
from ops.results.statistics import Interval, estimate_choice_gain, score_interval
from ops.results.summary import PairedQuestions
from ops.results.table import Rows
from ops.retraining.retraining_plan import BELOW, BELOW_OR_PAYS, NEVER, RetrainingPlan

ZERO_SHOT, ORACLE = "gain with the newcomers on offer", "gain of the oracle"


@dataclass(frozen=True)
class TrainingDecision:
    """The decision whether to fine-tune the champion, with its reasons."""

    fine_tune: bool
    why: str
    standing: GateDecision
    """The result of the promotion gate for the champion on the current pool, compared with the champion on the previous
    pool."""
    pays: tuple[GateCheck, ...] = ()
    """Checks whether new workers are worth the training. One passed check suffices."""
    train_anew: bool = False
    """Whether a new worker would pay although the champion cannot use it, because it was trained without descriptions
    of the workers. A person decides in this case."""

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """Return the names of the gate's failed checks, without those of cost and latency."""
        return tuple(check.name for check in self.standing.failed if check.subject != "cost")

    @property
    def checks(self) -> tuple[GateCheck, ...]:
        """Return all checks: those of the gate and those of new workers."""
        return (*self.standing.checks, *self.pays)

    def as_dict(self) -> dict[str, Any]:
        """Return the decision as plain values that JSON can hold."""
        standing = self.standing.as_dict()
        return {
            "fine_tune": self.fine_tune,
            "why": self.why,
            "standing": standing,
            "pays": [vars(check) for check in self.pays],
            "train_anew": self.train_anew,
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> TrainingDecision:
        """Restore a decision from the values that `as_dict` returned."""
        pays = tuple(map(GateCheck.from_dict, facts["pays"]))
        standing = GateDecision.from_dict(facts["standing"])
        return cls(facts["fine_tune"], facts["why"], standing, pays, facts["train_anew"])


@dataclass(frozen=True)
class RetrainingEvidence:
    """The measurements behind a decision.

    `rows_now` and `rows_before` are the champion's rows on the current and on the previous pool, each at the prices of
    its time. `best_worker` are the best single worker's rows on the current pool. `responses` are the precached answers
    of every worker, and `subjects` maps the key of a precached problem to its subject.
    """

    rows_now: Rows
    rows_before: Rows
    best_worker: Rows
    responses: Sequence[ResponseRow] = ()
    subjects: Mapping[str, str] = field(default_factory=dict)


def decide_training(
    plan: RetrainingPlan,
    evidence: RetrainingEvidence,
    newcomers: Collection[str],
    gate: PromotionGate,
    settings: Retraining,
) -> TrainingDecision:
    """Decide from the measurements whether the champion is trained further.

    There are two conditions. The champion *falls below the gate* if, on the current pool, it fails the gate that a
    challenger would have to pass. Checks of cost and latency are ignored, because a price is no reason to train. A new
    worker *pays* if the champion's accuracy rises when the newcomers are offered to it, or if the score of the oracle
    over single workers rises by `min_oracle_rise` on the training problems. Both use the lower end of the interval. A
    champion that was trained without descriptions of the workers is not offered newcomers. For it only the oracle
    decides whether they pay, and training that starts from the champion cannot use them. Raises `ValueError` if there
    are no rows.
    """
    standing = decide_promotion(evidence.rows_now, evidence.rows_before, evidence.best_worker, gate)
    pays = _check_newcomers(evidence, newcomers, settings, offered=plan.offers_newcomers) if newcomers else ()
    made = TrainingDecision(False, "", standing, pays)
    paying = [check.name for check in pays if check.passed]
    train_anew = bool(paying) and not plan.offers_newcomers
    said = f"{', '.join(sorted(newcomers))}: {' and '.join(paying)}"
    reasons = []
    if made.failed_checks and plan.fine_tune in (BELOW, BELOW_OR_PAYS):
        reasons.append(f"below the gate ({', '.join(made.failed_checks)})")
    if paying and plan.offers_newcomers:
        reasons.append(said)
    if reasons:
        why = "; ".join(reasons)
    elif plan.fine_tune == NEVER and not newcomers:
        why = _describe_costs(standing)
    elif made.failed_checks:
        why = f"below the gate as before the change ({', '.join(made.failed_checks)})"
    else:
        why = "the champion holds"
    if newcomers and not paying:
        why += ", no newcomer pays"
    if train_anew:
        why += f"; {said}, and the champion has no worker descriptions to use it by"
    return TrainingDecision(bool(reasons), why, standing, pays, train_anew)


def _describe_costs(standing: GateDecision) -> str:
    costly = [f"{check.name}: {check.explanation}" for check in standing.failed if check.subject == "cost"]
    return f"the champion exceeds the gate's cost or latency ({'; '.join(costly)})" if costly else "the champion holds"


def _check_newcomers(
    evidence: RetrainingEvidence, newcomers: Collection[str], settings: Retraining, *, offered: bool
) -> tuple[GateCheck, ...]:
    checks = []
    if offered and (gained := PairedQuestions.from_rows(evidence.rows_now, evidence.rows_before).strata()):
        checks.append(_check_gain(ZERO_SHOT, gained, 0.0, settings.confidence))
    if risen := estimate_oracle_rise(evidence.responses, newcomers, evidence.subjects, settings.confidence):
        checks.append(_make_check(ORACLE, risen.gain, settings.min_oracle_rise, settings.confidence, risen.basis))
    return tuple(checks)


def _check_gain(name: str, strata: Mapping[str, Sequence[float]], bound: float, confidence: float) -> GateCheck:
    return _make_check(name, score_interval(list(strata.values()), confidence=confidence), bound, confidence)


def _make_check(name: str, gain: Interval, bound: float, confidence: float, basis: str = "") -> GateCheck:
    words = f"mean {gain.mean:+.3f}, {100 * confidence:.6g} % interval {gain.low:+.3f} to {gain.high:+.3f}{basis}"
    passed = gain.low > 0 and gain.low >= bound
    return GateCheck(name, gain.low, bound, passed, words)


class OracleRise(NamedTuple):
    """What choosing the best worker for each problem gains if the newcomers may be chosen too, and on which data the
    estimate is based."""

    gain: Interval
    basis: str


def estimate_oracle_rise(
    rows: Iterable[ResponseRow], newcomers: Collection[str], subjects: Mapping[str, str], confidence: float
) -> OracleRise | None:
    """Estimate by how much newcomers raise the oracle's accuracy; None if no problem was answered by newcomers and
    others.

    The oracle chooses a worker for each problem without the answers on which the choice is scored
    (`estimate_choice_gain`), so that a newcomer that is right by luck where others fail adds nothing. The estimate uses
    the problems that both newcomers and others answered, and as many samples as every worker gave. With one sample, it
    can only find a newcomer that is better on whole subjects or benchmarks. `subjects` maps the key of a problem to its
    subject.
    """
    reached = [row for row in rows if row.status != "unreachable"]
    sides: dict[str, set[bool]] = defaultdict(set)
    given: dict[str, set[int]] = defaultdict(set)
    for row in reached:
        sides[row.problem_key].add(row.worker in newcomers)
        given[row.worker].add(row.sample)
    shared = [row for row in reached if len(sides[row.problem_key]) == 2]
    if not shared:
        return None
    workers = sorted({row.worker for row in shared})
    samples = min(len(given[worker]) for worker in workers)
    found = tabulate_scores([row for row in shared if row.sample < samples], workers).values()
    others = [place for place, worker in enumerate(workers) if worker not in newcomers]
    gain = estimate_choice_gain(
        [own.scores for own in found],
        over=others,
        subjects=[[subjects.get(key, "") for key in own.problems] for own in found],
        confidence=confidence,
    )
    one = "; one sample shows no gain within a subject, and precaching.samples: 2 would"
    return OracleRise(gain, f"; {len(sides)} problems{one if samples == 1 else ''}")
