"""The gate: which challenger is promoted, and which check fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ops.config import PromotionGate, load_gate
from ops.core.errors import ConfigError
from ops.evaluation.rows import OutcomeRow
from ops.release.promotion import GateDecision, decide, override

GATE = PromotionGate(max_loss_against_champion=0.03)


def row(benchmark: str, i: int, correct: bool, **changes: object) -> OutcomeRow:
    base = OutcomeRow(
        benchmark=benchmark, problem_id=str(i), repeat=0, domain="math", correct=int(correct), format_ok=True,
        failure="", status="answered", steps=2, workers=("a", "b"), tokens=100, cost_usd=0.01, latency_s=1.0,
        completion="", answer="", unscorable=False,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def rows(
    share: float, n: int = 100, benchmarks: tuple[str, ...] = ("math500", "mmlu"), **changes: object
) -> list[OutcomeRow]:
    """Return rows in which the first `share` of each benchmark's questions are correct."""
    return [row(name, i, i < share * n, **changes) for name in benchmarks for i in range(n)]


def failed(verdict: GateDecision) -> list[str]:
    return [check.name for check in verdict.failed]


def test_the_first_challenger_needs_only_to_beat_the_best_worker() -> None:
    verdict = decide(rows(0.8), None, rows(0.4), GATE)
    assert verdict.promote
    assert [check.name for check in verdict.checks] == [
        "format compliance",
        "questions shared with the best single worker",
        "gain over the best single worker",
    ]


def test_no_better_than_the_best_worker_is_not_promoted() -> None:
    verdict = decide(rows(0.39), None, rows(0.4), GATE)
    assert not verdict.promote
    assert failed(verdict) == ["gain over the best single worker"]


def test_a_better_challenger_replaces_the_champion() -> None:
    assert decide(rows(0.9), rows(0.8), rows(0.4), GATE).promote


def test_an_equal_challenger_replaces_the_champion_where_the_questions_are_many() -> None:
    assert decide(rows(0.8), rows(0.8), rows(0.4), GATE).promote
    # No loss in forty: a true rate of one in ten is still possible.
    few = decide(rows(0.8, n=20), rows(0.8, n=20), rows(0.4, n=20), GATE)
    assert failed(few) == ["difference to the champion"]


def test_a_clearly_worse_challenger_fails_every_accuracy_check() -> None:
    verdict = decide(rows(0.6), rows(0.8), rows(0.4), GATE)
    assert failed(verdict) == [
        "difference to the champion", "McNemar against the champion", "worst benchmark against the champion",
    ]  # fmt: skip


def test_one_benchmark_worse_is_enough_to_stay_challenger() -> None:
    challenger = rows(0.99, benchmarks=("math500",)) + rows(0.72, benchmarks=("mmlu",))
    verdict = decide(challenger, rows(0.8), rows(0.4), GATE)
    assert failed(verdict) == ["worst benchmark against the champion"]
    [check] = verdict.failed
    assert check.value == pytest.approx(-0.08)
    assert check.bound == -GATE.max_benchmark_loss
    assert "mmlu" in check.explanation


def test_too_costly_and_too_slow() -> None:
    verdict = decide(rows(0.9, cost_usd=0.02, latency_s=1.6), rows(0.8), rows(0.4), GATE)
    assert failed(verdict) == ["cost ratio to the champion", "latency ratio to the champion"]
    assert [check.value for check in verdict.failed] == [pytest.approx(2.0), pytest.approx(1.6)]


def test_only_a_free_challenger_matches_a_free_champions_cost() -> None:
    free = rows(0.8, cost_usd=0.0)
    assert decide(rows(0.8, cost_usd=0.0), free, rows(0.4), GATE).promote
    assert failed(decide(rows(0.8), free, rows(0.4), GATE)) == ["cost ratio to the champion"]


def test_the_share_of_valid_workflows_is_checked() -> None:
    challenger = [
        replace(row, format_ok=i % 10 != 9, correct=row.correct * (i % 10 != 9)) for i, row in enumerate(rows(0.9))
    ]
    verdict = decide(challenger, None, rows(0.4), GATE)
    assert failed(verdict) == ["format compliance"]
    assert verdict.failed[0].value == pytest.approx(0.9)


def test_unscorable_rows_are_no_losses() -> None:
    challenger = [replace(row, unscorable=True, correct=0) if i % 20 == 0 else row for i, row in enumerate(rows(0.8))]
    assert decide(challenger, rows(0.8), rows(0.4), GATE).promote


def test_too_few_shared_questions_fail_the_check() -> None:
    elsewhere = [replace(row, problem_id=f"other {row.problem_id}") for row in rows(0.9)]
    assert failed(decide(rows(0.9), elsewhere, rows(0.4), GATE)) == ["questions shared with the champion"]
    half = [row for row in rows(0.9) if int(row.problem_id) % 2]
    assert "questions shared with the champion" in failed(decide(half, rows(0.8), half, GATE))


def test_nothing_to_judge_is_not_promoted() -> None:
    verdict = decide([], None, [], GATE)
    assert failed(verdict) == ["format compliance", "questions shared with the best single worker"]


def test_an_override_is_recorded_beside_the_gates_verdict() -> None:
    verdict = override(decide(rows(0.3), None, rows(0.4), GATE), "Ada", "demonstration on Friday")
    assert not verdict.promote and verdict.failed
    record = json.loads(json.dumps(verdict.as_dict()))
    assert record["override"] == {"name": "Ada", "reason": "demonstration on Friday"}


@pytest.mark.parametrize(("name", "reason"), [("", "why"), ("Ada", "  ")])
def test_an_override_without_name_or_reason_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        override(decide(rows(0.3), None, rows(0.4), GATE), name, reason)


def test_the_gate_that_is_shipped_loads() -> None:
    root = Path(__file__).resolve().parents[2]
    assert load_gate(root / "config").min_format_compliance == 0.95
