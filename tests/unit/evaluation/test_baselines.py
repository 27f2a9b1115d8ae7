"""Baselines computed from a small table of responses whose numbers can be checked by hand."""

from __future__ import annotations

import pytest

from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.evaluation.baseline import BASELINES, SoloResponses, collect_scores
from ops.evaluation.stored_scores import select_worker_rows
from ops.precaching.profiles import select_oracle_rows
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import Summary, summarize
from ops.results.table import iterate_records, response_rows_as_scores


def response(
    worker: str, problem: str, score: float, *, sample: int = 0, status: str = "ok", usd: float = 0.01
) -> ResponseRow:
    said = Response("", Usage(10, 2), usd, 0.5, "")
    return ResponseRow(worker, "mmlu", problem, sample, status, said, score)  # type: ignore[arg-type]


def standing(name: str, responses: list[ResponseRow]) -> Summary:
    made = BASELINES[name].compute(SoloResponses(responses, responses))
    return (made[0] if isinstance(made, list) else made).summaries["mmlu"]


def by_oracle(responses: list[ResponseRow]) -> list[OutcomeRow]:
    return list(iterate_records(response_rows_as_scores(select_oracle_rows(responses))))


# a: 1 0 0 1   b: 0 1 0 1   (b costs more)
TABLE = [
    *(response("a", f"q{i}", score) for i, score in enumerate([1, 0, 0, 1])),
    *(response("b", f"q{i}", score, usd=0.03) for i, score in enumerate([0, 1, 0, 1])),
]


def test_single_worker() -> None:
    rows = list(iterate_records(select_worker_rows(TABLE, "b")))
    assert [row.correct for row in rows] == [0, 1, 0, 1]
    summary = summarize(rows)["mmlu"]
    made = (summary.accuracy.mean, summary.values["tokens"], summary.values["cost_usd"], summary.steps)
    assert made == (0.5, 12, pytest.approx(0.03), 1)
    assert list(iterate_records(select_worker_rows(TABLE, "absent"))) == []


def test_the_best_worker_is_chosen_without_the_test() -> None:
    training = [response(worker, "t0", score) for worker, score in (("a", 0), ("b", 1))]
    standing = BASELINES["best_single"].compute(SoloResponses(TABLE, training))
    assert standing.detail == "b"
    assert standing.summaries == summarize(select_worker_rows(TABLE, "b"))


def test_the_cheaper_of_equally_good_workers_is_best() -> None:
    assert BASELINES["best_single"].compute(SoloResponses(TABLE, TABLE)).detail == "a"


def test_without_training_responses_there_is_no_best() -> None:
    with pytest.raises(ValueError, match="no responses"):
        BASELINES["best_single"].compute(SoloResponses(TABLE, []))


def test_random_worker_is_the_exact_expectation() -> None:
    summary = standing("random_worker", TABLE)
    # Expected values of the four questions: ½ ½ 0 1; their deviation √(1/6), over √4.
    assert summary.accuracy.mean == pytest.approx(0.5)
    assert summary.accuracy.standard_error == pytest.approx((1 / 6) ** 0.5 / 2)
    assert summary.values["cost_usd"] == pytest.approx(0.02)


def test_random_worker_averages_samples_first_and_leaves_the_unreachable_out() -> None:
    rows = [
        *(response("a", "q", score, sample=i) for i, score in enumerate([1, 0, 0, 0])),
        response("b", "q", 1),
        response("c", "q", 0, status="unreachable"),
        response("a", "r", 0, status="unreachable"),
    ]
    summary = standing("random_worker", rows)
    assert summary.accuracy.mean == pytest.approx((0.25 + 1) / 2)
    assert (summary.accuracy.n, summary.unscorable) == (1, 1)


def test_oracle_takes_the_right_worker_and_the_cheaper_of_two() -> None:
    rows = by_oracle(TABLE)
    assert [(row.problem_id, row.correct, row.workers[0]) for row in rows] == [
        ("q0", 1, "a"), ("q1", 1, "b"), ("q2", 0, "a"), ("q3", 1, "a"),
    ]  # fmt: skip


def test_the_oracle_selects_workers_and_not_samples() -> None:
    samples = {"a": (1, 0), "b": (0, 1)}
    rows = by_oracle([response(name, "q", own[i], sample=i) for name, own in samples.items() for i in (0, 1)])
    assert summarize(rows)["mmlu"].accuracy.mean == 0.5


@pytest.mark.parametrize(("score", "unscorable"), [(0, True), (1, False)])
def test_an_unreachable_worker_does_not_count_for_the_oracle(score: int, unscorable: bool) -> None:
    [row] = by_oracle([response("a", "q", score), response("b", "q", 0, status="unreachable")])
    assert row.unscorable is unscorable


def test_a_refusal_is_wrong_everywhere() -> None:
    rows = [response("a", "q", 0, status="refused")]
    assert standing("oracle", rows).accuracy.mean == 0
    assert standing("random_worker", rows).accuracy.mean == 0


def test_no_single_worker_beats_the_oracle() -> None:
    best = standing("oracle", TABLE).accuracy.mean
    assert all(best >= summarize(select_worker_rows(TABLE, name))["mmlu"].accuracy.mean for name in "ab")


def test_all_baselines_stand_in_the_tables_order_and_a_recipe_names_some() -> None:
    answers = SoloResponses(TABLE, TABLE)
    oracle = ["oracle (upper bound)", "oracle (by chance)"]
    assert list(collect_scores(answers)) == ["best worker (a)", "random worker", *oracle]
    assert list(collect_scores(answers, ["oracle", "random_worker"])) == [*oracle, "random worker"]


def test_with_two_samples_the_oracle_is_one_column_chosen_by_the_other_sample() -> None:
    # Each worker answers its own half of the questions in every sample, so one answer tells which to choose.
    rows = [
        response(worker, f"q{i}", float((i % 2 == 0) == (worker == "a")), sample=sample, usd=usd)
        for worker, usd in (("a", 0.01), ("b", 0.03)) for i in range(8) for sample in (0, 1)
    ]  # fmt: skip
    made = collect_scores(SoloResponses(rows, rows), ["oracle"])
    assert list(made) == ["oracle"]
    summary = made["oracle"]["mmlu"]
    assert (summary.accuracy.mean, summary.values["cost_usd"]) == (1.0, pytest.approx(0.02))
