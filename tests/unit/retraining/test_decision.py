"""The decisions "below the gate" and "pays": when a champion is trained further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ops.config import PromotionGate, Retraining
from ops.core.rows import ResponseRow
from ops.evaluation.rows import OutcomeRow
from ops.retraining.decision import ORACLE, ZERO_SHOT, Decision, RetrainingEvidence, decision, oracle_rise
from ops.retraining.plan import RetrainingPlan

GATE = PromotionGate(max_loss_against_champion=0.03)
SETTINGS = Retraining(min_oracle_rise=0.02)
REMOVED = RetrainingPlan(evaluate=True, fine_tune="if it falls below the gate")
NEW = RetrainingPlan(precache=("new",), evaluate=True, fine_tune="if a newcomer pays")
PRICE = RetrainingPlan(costs=True)
UNDESCRIBED = RetrainingPlan(precache=("new",), evaluate=True)
"""The plan of a new worker for a champion without worker descriptions."""
BENCHMARKS = ("math500", "mmlu")


def rows(share: float, n: int = 200, **changes: object) -> list[OutcomeRow]:
    """Return rows in which the first `share` of each benchmark's questions are correct."""
    base = OutcomeRow(
        benchmark="", problem_id="", repeat=0, domain="math", correct=0, format_ok=True, failure="", status="answered",
        steps=2, workers=("a", "b"), tokens=100, cost_usd=0.01, latency_s=1.0, completion="", answer="",
        unscorable=False,
    )  # fmt: skip
    return [
        replace(base, benchmark=name, problem_id=str(i), correct=int(i < share * n), **changes)  # type: ignore[arg-type]
        for name in BENCHMARKS
        for i in range(n)
    ]


def responses(worker: str, right: Sequence[int], n: int = 200) -> list[ResponseRow]:
    return [
        ResponseRow(worker, name, str(i), 0, "ok", score=float(i in right)) for name in BENCHMARKS for i in range(n)
    ]


def evidence(now: float = 0.8, before: float = 0.8, best: float = 0.4, **more: object) -> RetrainingEvidence:
    return RetrainingEvidence(rows(now), rows(before), rows(best), **more)  # type: ignore[arg-type]


def test_a_champion_that_passes_on_the_remaining_pool_is_not_trained() -> None:
    made = decision(REMOVED, evidence(), (), GATE, SETTINGS)
    assert (made.fine_tune, made.why) == (False, "the champion holds")
    assert made.pays == ()


def test_a_champion_below_the_gate_is_trained_further_and_the_decision_names_the_check() -> None:
    made = decision(REMOVED, evidence(now=0.6), (), GATE, SETTINGS)
    assert made.fine_tune
    assert "difference to the champion" in made.why


def test_a_champion_below_the_present_best_worker_is_trained_further() -> None:
    made = decision(REMOVED, evidence(best=0.85), (), GATE, SETTINGS)
    assert made.fine_tune
    assert "gain over the best single worker" in made.why


def test_a_newcomer_that_adds_nothing_does_not_pay() -> None:
    known = [*responses("old", range(150)), *responses("new", range(100))]
    made = decision(NEW, evidence(responses=known), ("new",), GATE, SETTINGS)
    assert not made.fine_tune
    assert made.why == "the champion holds, no newcomer pays"
    assert [check.name for check in made.pays] == [ZERO_SHOT, ORACLE]


def test_a_newcomer_pays_where_the_oracle_rises_by_more_than_the_margin() -> None:
    known = [*responses("old", range(150)), *responses("new", range(140, 180))]
    made = decision(NEW, evidence(responses=known), ("new",), GATE, SETTINGS)
    assert made.fine_tune
    assert made.why == f"new: {ORACLE}"
    costlier = SETTINGS.model_copy(update={"min_oracle_rise": 0.2})
    assert not decision(NEW, evidence(responses=known), ("new",), GATE, costlier).fine_tune


def test_a_newcomer_pays_where_the_champion_gains_with_it_on_offer() -> None:
    made = decision(NEW, evidence(now=0.9), ("new",), GATE, SETTINGS)
    assert (made.fine_tune, made.why) == (True, f"new: {ZERO_SHOT}")


def test_a_newcomer_that_pays_and_cannot_be_described_asks_for_a_training_from_the_start() -> None:
    known = [*responses("old", range(150)), *responses("new", range(140, 180))]
    made = decision(UNDESCRIBED, evidence(responses=known), ("new",), GATE, SETTINGS)
    assert (made.fine_tune, made.train_anew) == (False, True)
    assert f"new: {ORACLE}" in made.why and "no worker descriptions" in made.why
    assert [check.name for check in made.pays] == [ORACLE], "it was not on offer"
    assert Decision.of(made.as_dict()) == made
    useless = [*responses("old", range(150)), *responses("new", range(100))]
    made = decision(UNDESCRIBED, evidence(responses=useless), ("new",), GATE, SETTINGS)
    assert (made.train_anew, made.why) == (False, "the champion holds, no newcomer pays")


def test_a_newcomer_does_not_lead_to_training_for_an_earlier_failure_of_the_gate() -> None:
    made = decision(NEW, evidence(best=0.85), ("new",), GATE, SETTINGS)
    assert not made.fine_tune
    assert "below the gate" in made.why


@pytest.mark.parametrize("plan", [REMOVED, PRICE])
def test_a_more_expensive_pool_is_reported_and_does_not_lead_to_training(plan: RetrainingPlan) -> None:
    costly = replace(evidence(), now=rows(0.8, cost_usd=0.05))
    made = decision(plan, costly, (), GATE, SETTINGS)
    assert not made.fine_tune
    assert "cost ratio to the champion" in [check.name for check in made.standing.failed]
    if plan is PRICE:
        assert made.why.startswith("the champion exceeds the gate's cost or latency (cost ratio to the champion: ")


def test_another_price_never_trains_even_below_the_gate() -> None:
    assert not decision(PRICE, evidence(now=0.5), (), GATE, SETTINGS).fine_tune


def test_the_oracle_rises_on_shared_problems_by_sample_0_alone() -> None:
    known = [
        ResponseRow("old", "mmlu", "1", 0, "ok", score=0.0),
        ResponseRow("old", "mmlu", "2", 0, "ok", score=1.0),
        ResponseRow("new", "mmlu", "1", 0, "ok", score=0.0),
        ResponseRow("new", "mmlu", "1", 1, "ok", score=1.0),  # another sample
        ResponseRow("new", "mmlu", "2", 0, "unreachable"),
        ResponseRow("new", "mmlu", "3", 0, "ok", score=1.0),  # no other worker was called
    ]
    assert oracle_rise(known, {"new"}) == {"mmlu": [0.0]}
    known[2] = replace(known[2], score=1.0)
    assert oracle_rise(known, {"new"}) == {"mmlu": [1.0]}


def test_a_decision_is_kept_whole() -> None:
    made = decision(NEW, evidence(now=0.9), ("new",), GATE, SETTINGS)
    assert Decision.of(made.as_dict()) == made
