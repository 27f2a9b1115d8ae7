"""Profiles: the arithmetic against values computed by hand, and its properties."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.charts import png
from ops.core.problem import Problem
from ops.core.rows import ResponseRow
from ops.evaluation.report import accuracy_against_cost
from ops.precaching.profiles import (
    Score,
    best_single,
    ceiling,
    mean_score,
    profile,
    signal_forecast,
    tallies,
)
from tests.builders import make_response


def row(worker: str, problem: str, score: float, **changes: Any) -> ResponseRow:
    placed = {"worker": worker, "benchmark": problem.split("-")[0], "problem_id": problem, "score": score}
    return make_response(**placed | changes)


ROWS = [
    row("a", "mmlu-0", 1.0, latency_s=1.0, cost_usd=0.1),
    row("a", "mmlu-1", 0.0, latency_s=2.0, cost_usd=0.2),
    row("a", "rlpr-0", 1.0, latency_s=3.0, cost_usd=0.3),
    row("a", "rlpr-1", 0.0, status="refused", latency_s=0.0, cost_usd=0.0),
    row("b", "mmlu-0", 0.0),
    row("b", "mmlu-1", 1.0),
    row("b", "rlpr-0", 0.0, status="unreachable", latency_s=0.0, cost_usd=0.0),
    row("b", "rlpr-1", 0.0),
]


def test_a_profile_by_hand() -> None:
    a, b = profile(ROWS)
    assert (a.worker, a.calls, a.refused, a.unreachable) == ("a", 4, 1, 0)
    assert a.overall == (4, 0.5, pytest.approx(math.sqrt(1 / 3) / 2))
    assert a.by_benchmark["rlpr"] == (2, 0.5, pytest.approx(0.5))
    assert (a.cost_usd, a.total_usd) == (pytest.approx(0.2), pytest.approx(0.6))
    assert a.latency_s == (2.0, 3.0, 3.0)
    assert (b.refused, b.unreachable) == (0, 1)
    assert b.by_benchmark["rlpr"] == (1, 0.0, 0.0)
    assert b.overall.accuracy == pytest.approx(1 / 3)
    assert b.mean_accuracy == pytest.approx(0.25)
    assert json.loads(json.dumps(a.as_row()))["by_benchmark"]["mmlu"]["accuracy"] == 0.5


def test_the_best_single_worker_and_the_oracle_above_it() -> None:
    assert best_single(ROWS).worker == "a"
    scores = ceiling(ROWS)
    assert scores["mmlu"] == (2, 1.0, 0.0)
    assert scores["rlpr"].accuracy == 0.5
    with pytest.raises(ValueError, match="no responses"):
        best_single([])


def test_the_cheaper_of_equally_good_workers_is_best() -> None:
    rows = [row("a", "mmlu-0", 1.0, cost_usd=2.0), row("b", "mmlu-0", 1.0, cost_usd=1.0)]
    assert best_single(rows).worker == "b"


def test_the_oracle_of_a_report_selects_workers_and_not_samples() -> None:
    rows = [row("a", "mmlu-0", score, sample=sample) for sample, score in enumerate([1.0, 0.0])]
    rows += [row("b", "mmlu-0", score, sample=sample) for sample, score in enumerate([0.0, 0.0])]
    assert ceiling(rows)["mmlu"].accuracy == 0.5


def test_samples_of_one_problem_are_one_observation() -> None:
    rows = [row("a", f"mmlu-{n}", float(n), sample=s) for n in (0, 1) for s in range(50)]
    assert profile(rows)[0].overall == (2, 0.5, pytest.approx(0.5))


def test_tallies_count_answers_and_leave_outages_out() -> None:
    rows = [*ROWS, row("a", "mmlu-0", 0.0, sample=1)]
    counts = tallies(rows)
    assert counts["mmlu/mmlu-0"] == {"a": (1.0, 2), "b": (0.0, 1)}
    assert counts["rlpr/rlpr-0"] == {"a": (1.0, 1)}


def test_the_forecast_follows_disagreement() -> None:
    def pool(right: int) -> list[ResponseRow]:
        return [
            row(f"w{worker}", f"mmlu-{number}", float(worker < right), sample=sample)
            for worker in range(4) for number in range(20) for sample in (0, 1)
        ]  # fmt: skip

    unanimous, split = signal_forecast(pool(4), 8), signal_forecast(pool(2), 8)
    assert unanimous < 0.3
    assert split > 0.9
    assert signal_forecast([], 4) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        signal_forecast(ROWS, 0)


def test_shares_of_cut_responses_and_tokens_of_a_call() -> None:
    rows = [
        row("a", "mmlu-0", 0.0, finish_reason="length", prompt_tokens=30),
        row("a", "mmlu-1", 1.0, finish_reason="stop"),
        row("a", "mmlu-2", 0.0, status="refused", prompt_tokens=0),
        row("a", "rlpr-0", 0.0, status="unreachable", prompt_tokens=0),
    ]
    [worker] = profile(rows)
    assert worker.rates == {"refused": 0.25, "truncated": 0.25, "unreachable": 0.25}
    assert worker.usage == {"mmlu": (2, 20.0, 20.0, 0.5)}


def test_domains_and_subjects_come_from_the_problems() -> None:
    problems = [
        Problem("mmlu-0", "mmlu", "mmlu", "train", "?", "A", "choice", subject="law"),
        Problem("mmlu-1", "mmlu", "mmlu", "train", "?", "A", "choice", family="claims"),
        Problem("rlpr-0", "rlpr", "rlpr", "train", "?", "4", "text"),
    ]
    a, b = profile(ROWS, problems)
    assert {name: score.accuracy for name, score in a.by_domain.items()} == {"mmlu": 0.5, "rlpr": 1.0}
    assert {name: score.accuracy for name, score in a.by_subject.items()} == {
        "mmlu/law": 1.0, "mmlu/claims": 0.0, "rlpr/other": 1.0,
    }  # fmt: skip
    assert "rlpr" not in b.by_domain, "an outage is no score"
    assert profile(ROWS)[0].by_subject == {}


def test_the_mean_over_benchmarks_weighs_them_alike() -> None:
    mean = mean_score([Score(100, 0.5, 0.03), Score(4, 0.9, 0.04), Score(0, 0.0, 0.0)])
    assert mean == (104, pytest.approx(0.7), pytest.approx(0.025))
    assert mean_score([]) == (0, 0.0, 0.0)


def test_the_plot_is_a_picture_and_needs_an_answer() -> None:
    free = [row("free", "mmlu-0", 1.0, cost_usd=0.0), *ROWS]
    assert png(accuracy_against_cost(profile(free), Score(4, 0.9, 0.01))).startswith(b"\x89PNG")
    assert png(accuracy_against_cost(profile(free[:1]))).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="nothing to draw"):
        accuracy_against_cost(profile([row("a", "mmlu-0", 0.0, status="unreachable")]))


CELLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from([0.0, 1.0])),
    min_size=1, unique_by=lambda cell: cell[:2],
)  # fmt: skip


@given(cells=CELLS, group=st.integers(1, 64))
def test_bounds(cells: list[tuple[str, int, float]], group: int) -> None:
    rows = [row(worker, f"mmlu-{number}", score) for worker, number, score in cells]
    best = ceiling(rows)["mmlu"]
    solved = {row.problem_id for row in rows if row.score}
    assert best.accuracy == pytest.approx(len(solved) / best.n)
    assert all(p.overall.accuracy * p.overall.n <= len(solved) + 1e-9 for p in profile(rows))
    forecast = signal_forecast(rows, group)
    assert -1e-12 <= forecast <= signal_forecast(rows, group + 1) + 1e-12 <= 1.0 + 1e-12
    if group == 1:
        assert forecast == pytest.approx(0.0)
    assert profile(list(reversed(rows))) == profile(rows)
