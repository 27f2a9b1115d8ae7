"""The table of one system against many: pairs, families, and undetectable differences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import OVERALL, Contrast, contrasts, holm, question_means

ROW = OutcomeRow(
    benchmark="mmlu", problem_id="0", repeat=0, domain="mmlu", correct=1, format_ok=True, failure="",
    status="answered", steps=1, workers=("a",), tokens=1, cost_usd=0.0, latency_s=0.0, completion="", answer="",
    unscorable=False,
)  # fmt: skip


def means(right: int, n: int = 50, first: int = 0) -> dict[str, float]:
    return {str(i): float(i < right) for i in range(first, first + n)}


SYSTEMS = {
    "conductor": {"mmlu": means(40), "aime25": means(20, 30)},
    "guesser": {"mmlu": means(10), "aime25": means(3, 30)},
    "rival": {"mmlu": means(39), "aime25": means(21, 30), "livecodebench": means(5)},
}


def table() -> dict[tuple[str, str], Contrast]:
    return {(row.system, row.benchmark): row for row in contrasts(SYSTEMS, "conductor", samples=2000)}


def test_rows_come_by_system_with_the_mean_first_and_shared_benchmarks_only() -> None:
    assert list(table()) == [
        ("guesser", OVERALL), ("guesser", "mmlu"), ("guesser", "aime25"),
        ("rival", OVERALL), ("rival", "mmlu"), ("rival", "aime25"),
    ]  # fmt: skip


def test_a_difference_by_hand() -> None:
    rows = table()
    assert rows["guesser", "mmlu"].difference == pytest.approx(0.6)
    assert rows["guesser", "aime25"].difference == pytest.approx(17 / 30)
    assert rows["guesser", OVERALL].difference == pytest.approx((0.6 + 17 / 30) / 2)
    assert rows["guesser", OVERALL].n == 80
    assert rows["guesser", "mmlu"].mcnemar == (30, 0, pytest.approx(2**-29))
    assert rows["guesser", OVERALL].mcnemar is None
    assert rows["guesser", "mmlu"].low < 0.6 < rows["guesser", "mmlu"].high
    assert rows["rival", "mmlu"].p_value == 1.0, "one question alone may fall either way"


def test_p_values_are_adjusted_in_two_families() -> None:
    rows = list(table().values())
    for overall in (True, False):
        family = [row for row in rows if (row.benchmark == OVERALL) is overall]
        assert [row.p_adjusted for row in family] == pytest.approx(holm([row.p_value for row in family]))
        assert any(row.p_adjusted > row.p_value for row in family)


def test_the_detectable_difference_depends_on_size_and_discordance() -> None:
    rows = table()
    assert 0 < rows["rival", OVERALL].detectable < rows["rival", "aime25"].detectable < 0.3
    assert rows["rival", "mmlu"].detectable < rows["guesser", "mmlu"].detectable


def test_only_shared_questions_are_paired() -> None:
    shifted = {"ours": {"mmlu": means(40)}, "theirs": {"mmlu": means(0, 50, first=30)}, "absent": {"mmlu": {}}}
    [overall, mmlu] = contrasts(shifted, "ours", samples=500)
    assert (overall.system, mmlu.n, mmlu.difference) == ("theirs", 20, 0.5)


def test_a_system_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        contrasts(SYSTEMS, "absent")


def test_question_means_leave_out_what_could_not_be_scored() -> None:
    rows = [
        ROW, replace(ROW, repeat=1, correct=0), replace(ROW, repeat=2, correct=0, unscorable=True),
        replace(ROW, problem_id="1", unscorable=True), replace(ROW, benchmark="aime25", correct=0),
    ]  # fmt: skip
    assert question_means(rows) == {"mmlu": {"0": 0.5}, "aime25": {"0": 0.0}}


def test_one_question_gives_a_difference_and_no_interval() -> None:
    [overall, _] = contrasts({"a": {"mmlu": {"0": 1.0}}, "b": {"mmlu": {"0": 0.0}}}, "a", samples=100)
    assert overall.difference == 1.0 and overall.p_value == 1.0
    assert math.isnan(overall.low) and math.isnan(overall.standard_error)
