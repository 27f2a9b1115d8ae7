"""The gate: which challenger is promoted, and which check fails."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ops.config import PromotionGate
from ops.core.errors import ConfigError
from ops.release.dossier import Dossier, Opponent, compare_by_benchmark
from ops.release.promotion import GateCheck, GateDecision, decide_promotion, override_decision
from ops.reports.decision_page import make_costs_table
from ops.results.measures import MEASURES
from ops.results.outcome_rows import OutcomeRow
from tests.builders import make_outcome

GATE = PromotionGate(max_loss_against_champion=0.03)


def rows(
    share: float, n: int = 100, benchmarks: tuple[str, ...] = ("math500", "mmlu"), **changes: object
) -> list[OutcomeRow]:
    """Return rows in which the first `share` of each benchmark's questions are correct."""
    return [make_outcome(name, i, correct=int(i < share * n), **changes) for name in benchmarks for i in range(n)]


def failed(verdict: GateDecision) -> list[str]:
    return [check.name for check in verdict.failed]


def test_the_first_challenger_needs_only_to_beat_the_best_worker() -> None:
    verdict = decide_promotion(rows(0.8), None, rows(0.4), GATE)
    assert verdict.promote
    assert [check.name for check in verdict.checks] == [
        "format compliance", "questions shared with the best single worker", "gain over the best single worker",
    ]  # fmt: skip


FREE, WORKER = rows(0.8, cost_usd=0.0), rows(0.4)
UNSCORABLE = [replace(row, unscorable=True, correct=0) if i % 20 == 0 else row for i, row in enumerate(rows(0.8))]
ELSEWHERE = [replace(row, problem_id=f"other {row.problem_id}") for row in rows(0.9)]
WORSE = ["difference to the champion", "McNemar against the champion", "worst benchmark against the champion"]


@pytest.mark.parametrize(
    ("challenger", "champion", "worker", "fails"),
    [
        pytest.param(rows(0.39), None, WORKER, ["gain over the best single worker"], id="no better than the worker"),
        pytest.param([], None, [], ["format compliance", "questions shared with the best single worker"], id="no rows"),
        pytest.param(rows(0.9), rows(0.8), WORKER, [], id="better than the champion"),
        pytest.param(rows(0.8), rows(0.8), WORKER, [], id="equal to the champion, many questions"),
        # No loss in forty: a true rate of one in ten is still possible.
        pytest.param(
            rows(0.8, n=20), rows(0.8, n=20), rows(0.4, n=20), ["difference to the champion"], id="equal, few questions"
        ),
        pytest.param(rows(0.6), rows(0.8), WORKER, WORSE, id="clearly worse than the champion"),
        pytest.param(FREE, FREE, WORKER, [], id="as free as the champion"),
        pytest.param(rows(0.8), FREE, WORKER, ["cost ratio to the champion"], id="not as free as the champion"),
        pytest.param(UNSCORABLE, rows(0.8), WORKER, [], id="unscorable rows are no losses"),
        pytest.param(rows(0.9), ELSEWHERE, WORKER, ["questions shared with the champion"], id="no shared question"),
    ],
)
def test_a_challenger_that_fails_no_check_is_promoted(
    challenger: list[OutcomeRow], champion: list[OutcomeRow] | None, worker: list[OutcomeRow], fails: list[str]
) -> None:
    verdict = decide_promotion(challenger, champion, worker, GATE)
    assert (failed(verdict), verdict.promote) == (fails, not fails)


def test_one_benchmark_worse_is_enough_to_stay_challenger() -> None:
    challenger = rows(0.99, benchmarks=("math500",)) + rows(0.72, benchmarks=("mmlu",))
    [check] = decide_promotion(challenger, rows(0.8), WORKER, GATE).failed
    assert (check.name, check.bound) == ("worst benchmark against the champion", -GATE.max_benchmark_loss)
    assert check.value == pytest.approx(-0.08)
    assert check.explanation.startswith("on mmlu; mean -0.080, 97.5 % interval -0.")


def test_too_costly_and_too_slow() -> None:
    verdict = decide_promotion(rows(0.9, cost_usd=0.02, latency_s=1.6), rows(0.8), WORKER, GATE)
    assert failed(verdict) == ["cost ratio to the champion", "latency ratio to the champion"]
    assert [check.value for check in verdict.failed] == [pytest.approx(2.0), pytest.approx(1.6)]


def test_the_percentile_of_latency_is_checked_where_a_bound_is_set() -> None:
    slow = [replace(row, latency_s=5.0 if int(row.problem_id) % 10 == 0 else 1.0) for row in rows(0.9)]
    bounded = GATE.model_copy(update={"max_p95_latency_ratio": 2.0})
    assert failed(decide_promotion(slow, rows(0.8), WORKER, GATE)) == []
    [check] = decide_promotion(slow, rows(0.8), WORKER, bounded).failed
    assert (check.name, check.value) == ("p95 latency ratio to the champion", 5.0)
    assert check.explanation.startswith("5 against the champion's 1 seconds, on the 200 of 200 questions")
    assert decide_promotion(rows(0.9), None, WORKER, bounded).promote, (
        "without a champion there is nothing to compare with"
    )
    assert {pair.values["latency_p95_s"] for pair in compare_by_benchmark(slow, rows(0.8), 0.95)} == {5.0}


def test_the_share_of_valid_workflows_is_checked() -> None:
    valid = [(i % 10 != 9, row) for i, row in enumerate(rows(0.9))]
    challenger = [replace(row, format_ok=ok, correct=row.correct * ok) for ok, row in valid]
    [check] = decide_promotion(challenger, None, WORKER, GATE).failed
    assert (check.name, check.value) == ("format compliance", pytest.approx(0.9))
    assert "95 % interval of the compliance 0.8" in check.explanation


def test_half_of_the_questions_are_too_few() -> None:
    half = [row for row in rows(0.9) if int(row.problem_id) % 2]
    assert "questions shared with the champion" in failed(decide_promotion(half, rows(0.8), half, GATE))


def test_a_decision_of_an_earlier_version_says_the_same() -> None:
    """Such a decision stored neither the subject of a check nor on which side of the bound the value has to be."""
    strict = GATE.model_copy(
        update={"max_p95_latency_ratio": 2.0, "max_question_usd": 1.0, "max_question_s": 9.0, "planned_analyses": 3}
    )
    invalid = [replace(row, format_ok=False, correct=0) for row in rows(0.8)]
    for champion in (rows(0.8), invalid):
        decision = decide_promotion(rows(0.9), champion, WORKER, strict)
        facts = json.loads(json.dumps(decision.as_dict()))
        assert GateDecision.from_dict(facts) == decision
        for check in facts["checks"]:
            del check["subject"], check["limit"]
        assert GateDecision.from_dict(facts) == decision


def test_evidence_comes_back_as_it_was_stored_and_lacks_what_an_earlier_version_did_not_store() -> None:
    pairings = compare_by_benchmark(rows(0.9), rows(0.8, latency_s=2.0), 0.95)
    dossier = Dossier("2", "now", {}, {}, {}, 0.95, (Opponent("champion", {}, pairings),))
    facts = json.loads(json.dumps(dossier.as_dict()))
    assert Dossier.from_dict(facts) == dossier
    [stored] = facts["opponents"]
    assert (stored["pairings"][0]["latency_s"], stored["pairings"][0]["their_latency_s"]) == (1.0, 2.0)
    del stored["pairings"][0]["latency_p95_s"], stored["pairings"][0]["their_latency_p95_s"]
    shown = make_costs_table(Dossier.from_dict(facts).opponents[0])
    p95 = shown.head.index("challenger p95 latency, s")
    assert [row[p95] for row in shown.rows] == ["–", "1.00", "1.00"]


def test_the_gates_settings_of_a_measure_exist() -> None:
    settings = set(PromotionGate.model_fields)
    for measure in MEASURES:
        assert {measure.max_ratio, measure.max_value} <= settings | {""}, measure.name
        assert measure.unit or not (measure.max_ratio or measure.max_value), measure.name


def test_a_check_is_described_by_readable_figures() -> None:
    check = GateCheck("McNemar against the champion", 6.709e-89, 0.05, False, "")
    assert check.describe_value() == "McNemar against the champion < 0.0001, bound 0.05"
    assert check.describe_bound() == "≥ 0.05"


def test_an_override_is_recorded_beside_the_gates_verdict() -> None:
    verdict = override_decision(decide_promotion(rows(0.3), None, rows(0.4), GATE), "Ada", "demonstration on Friday")
    assert not verdict.promote and verdict.failed
    record = json.loads(json.dumps(verdict.as_dict()))
    assert record["override"] == {"name": "Ada", "reason": "demonstration on Friday"}


@pytest.mark.parametrize(("name", "reason"), [("", "why"), ("Ada", "  ")])
def test_an_override_without_name_or_reason_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        override_decision(decide_promotion(rows(0.3), None, rows(0.4), GATE), name, reason)
