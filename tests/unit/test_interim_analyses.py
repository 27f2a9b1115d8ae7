"""The gate with a challenger every night: how often a worse one passes, and how often a better one does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ops.config import PromotionGate, load_gate, load_settings
from ops.core.errors import ConfigError
from ops.release.promotion import confidence_of_analysis, decide_promotion
from ops.results.outcome_rows import OutcomeRow
from ops.results.statistics import Stratum, detectable_difference
from tests.builders import make_outcome
from tests.unit.evaluation.simulated import within

GATE = load_gate(Path(__file__).resolve().parents[2] / "config")
BENCHMARKS, QUESTIONS = ("math500", "mmlu"), 100
NIGHTS = 30
RIGHT, DISCORDANT = 0.6, 0.2
"""A champion's accuracy, and the share of questions on which a challenger differs from it."""
LONG = (pytest.mark.soak, pytest.mark.timeout(1800))
Answers = NDArray[np.bool_]


outcome = cache(make_outcome)


def rows(answers: Answers) -> list[OutcomeRow]:
    own = zip(BENCHMARKS, answers, strict=True)
    return [outcome(name, i, correct=int(right)) for name, each in own for i, right in enumerate(each)]


def a_champion(rng: np.random.Generator) -> Answers:
    return rng.random((len(BENCHMARKS), QUESTIONS)) < RIGHT


def a_challenger(champion: Answers, difference: float, rng: np.random.Generator) -> Answers:
    """A challenger whose true accuracy differs by this much from the champion's."""
    lost, gained = (DISCORDANT - difference) / 2 / RIGHT, (DISCORDANT + difference) / 2 / (1 - RIGHT)
    return champion ^ (rng.random(champion.shape) < np.where(champion, lost, gained))


def promoted(
    champion: Answers, difference: float, rng: np.random.Generator, *, analysis: int, gate: PromotionGate
) -> bool:
    challenger = a_challenger(champion, difference, rng)
    no_worker = rows(np.zeros_like(champion))
    return decide_promotion(rows(challenger), rows(champion), no_worker, gate, analysis=analysis).promote


def share_promoted(difference: float, analysis: int, challengers: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    return float(
        np.mean([promoted(a_champion(rng), difference, rng, analysis=analysis, gate=GATE) for _ in range(challengers)])
    )


@pytest.mark.parametrize("challengers", [100, pytest.param(1000, marks=LONG)])
def test_a_worse_challenger_passes_the_first_analysis_no_more_often_than_stated(challengers: int) -> None:
    stated = (1 - confidence_of_analysis(GATE, 1)) / 2
    assert stated == pytest.approx(0.0125)
    share = share_promoted(-GATE.max_loss_against_champion, 1, challengers, seed=1)
    assert share <= stated + within(challengers, stated)


@pytest.mark.parametrize("analysis", [1, NIGHTS])
def test_a_better_challenger_passes_with_the_stated_power(analysis: int) -> None:
    # The difference that a test of this level detects in 80 %, counted from the permitted loss.
    level = 1 - confidence_of_analysis(GATE, analysis)
    found = detectable_difference([Stratum(QUESTIONS, DISCORDANT)] * len(BENCHMARKS), alpha=level, power=0.8)
    better = found - GATE.max_loss_against_champion
    assert 0 < better < DISCORDANT
    assert share_promoted(better, analysis, 100, seed=2) == pytest.approx(0.8, abs=within(100, 0.8))


@pytest.mark.parametrize(
    ("champions", "planned"), [(6, None), *(pytest.param(100, n, marks=LONG) for n in (None, NIGHTS))]
)
def test_over_thirty_nights_a_worse_challenger_takes_a_champions_place_no_more_often_than_stated(
    champions: int, planned: int | None
) -> None:
    rng = np.random.default_rng(3)
    gate = GATE.model_copy(update={"planned_analyses": planned})
    stated = (1 - gate.confidence) / 2
    lost_to_a_worse_one = 0
    for _ in range(champions):
        champion = a_champion(rng)
        nights = (
            promoted(champion, -gate.max_loss_against_champion, rng, analysis=night, gate=gate)
            for night in range(1, NIGHTS + 1)
        )
        lost_to_a_worse_one += any(nights)
    assert lost_to_a_worse_one / champions <= stated + within(champions, stated)


def test_an_uncounted_gate_loses_champions_far_more_often() -> None:
    rng, champions = np.random.default_rng(4), 5
    every_night = GATE.model_copy(update={"planned_analyses": 1})
    lost = 0
    for _ in range(champions):
        champion = a_champion(rng)
        # Analysis 1 of 1 planned, repeated: a gate that does not count its analyses.
        lost += any(
            promoted(champion, -GATE.max_loss_against_champion, rng, analysis=1, gate=every_night)
            for _ in range(NIGHTS)
        )
    assert lost / champions > 0.2


def test_a_copy_of_the_best_workers_answers_does_not_score_above_it() -> None:
    rng, stated, passed, workers = np.random.default_rng(5), (1 - confidence_of_analysis(GATE, 1)) / 2, 0, 150
    for _ in range(workers):
        worker = a_champion(rng)
        passed += decide_promotion(rows(a_challenger(worker, 0.0, rng)), None, rows(worker), GATE).promote
    assert passed / workers <= stated + within(workers, stated)
    worker = a_champion(rng)
    assert not decide_promotion(rows(worker), None, rows(worker), GATE).promote, "the same answers are no gain"


@given(st.integers(1, 3000), st.floats(0.6, 0.999))
def test_all_analyses_together_spend_at_most_the_whole_error_probability(analyses: int, confidence: float) -> None:
    for planned in (None, analyses):
        gate = PromotionGate(confidence=confidence, planned_analyses=planned)
        spent = sum(1 - confidence_of_analysis(gate, analysis) for analysis in range(1, analyses + 1))
        assert spent <= (1 - confidence) * (1 + 1e-6)
        assert spent >= (1 - confidence) * (0.999 if planned else analyses / (analyses + 1) - 1e-6)


def test_later_analyses_have_a_higher_confidence_and_report_it() -> None:
    champion = a_champion(np.random.default_rng(6))
    better = champion.copy()
    better[:, :75] = True
    first, late = (
        decide_promotion(rows(better), rows(champion), rows(~champion), GATE, analysis=analysis) for analysis in (1, 30)
    )
    assert (first.analysis, late.analysis) == (1, 30)
    lows = [next(c for c in v.checks if c.name == "difference to the champion") for v in (first, late)]
    assert lows[0].value > lows[1].value
    assert "97.5 % interval" in lows[0].explanation and "99.9946 % interval" in lows[1].explanation
    assert type(first).from_dict(late.as_dict()).analysis == 30


def test_after_the_planned_analyses_no_version_is_promoted() -> None:
    champion = a_champion(np.random.default_rng(7))
    perfect, gate = np.ones_like(champion), PromotionGate(planned_analyses=3)
    assert decide_promotion(rows(perfect), rows(champion), rows(~perfect), gate, analysis=3).promote
    late = decide_promotion(rows(perfect), rows(champion), rows(~perfect), gate, analysis=4)
    assert [check.name for check in late.failed] == ["analyses against the champion"]


@pytest.mark.parametrize("analysis", [0, -1])
def test_analyses_are_counted_from_one(analysis: int) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        decide_promotion([], None, [], GATE, analysis=analysis)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("planned_analyses: 0", r"planned_analyses \(line 1\): should be greater than or equal to 1"),
        ("planned_analyses: nightly", r"planned_analyses \(line 1\): should be a valid integer"),
        ("confidence: 95", r"confidence \(line 1\): should be less than 1"),
        ("bootstrap_samples: 100", r"bootstrap_samples \(line 1\): is not a known key"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "promotion.yaml"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_settings(PromotionGate, file)


def test_repeats_of_a_question_count_as_one_question() -> None:
    champion = a_champion(np.random.default_rng(8))
    challenger = a_challenger(champion, 0.05, np.random.default_rng(9))
    once = decide_promotion(rows(challenger), rows(champion), rows(~champion), GATE)
    again = [[*side, *(replace(row, repeat=1) for row in side)] for side in (rows(challenger), rows(champion))]
    twice = decide_promotion(*again, rows(~champion), GATE)
    assert [(check.name, check.value) for check in once.checks] == [(check.name, check.value) for check in twice.checks]
