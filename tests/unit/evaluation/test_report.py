"""Reports: the table's numbers, the Markdown, the pictures; and the reach of a Conductor, whose ceiling counts all
workers."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ops.core.charts import render_png
from ops.precaching.profiles import Score
from ops.results import leaderboard as report
from ops.results.outcome_rows import OutcomeRow
from ops.results.reach import Reach, compute_reach
from ops.results.statistics import MeanEstimate
from ops.results.summary import count_worker_steps, summarize
from ops.spending.bookings import format_usd

PNG = b"\x89PNG\r\n\x1a\n"


def rows(benchmark: str, right: int, n: int, **changes: object) -> list[OutcomeRow]:
    base = OutcomeRow(
        benchmark=benchmark, problem_id="", repeat=0, domain="math", correct=0, format_ok=True, failure="",
        status="answered", steps=2, workers=("a", "b"), tokens=120, cost_usd=0.0004, latency_s=1.0,
        completion="SECRET COMPLETION", answer="SECRET ANSWER", unscorable=False,
    )  # fmt: skip
    made = [replace(base, problem_id=str(i), correct=int(i < right)) for i in range(n)]
    return [replace(row, **changes) for row in made]  # type: ignore[arg-type]


@pytest.fixture
def board() -> report.Leaderboard:
    conductor = rows("gpqa_diamond", 6, 10) + rows("mmlu", 9, 10) + rows("math500", 8, 10)
    best = rows("mmlu", 4, 10, workers=("b",), steps=1) + rows("math500", 2, 10, workers=("b",), steps=1)
    return report.build_leaderboard(
        conductor,
        {
            "best worker (b)": summarize(best),
            "random worker": summarize(rows("mmlu", 3, 10, workers=("a",))),
            "oracle": summarize(rows("mmlu", 7, 10)),
        },
        cold_start=rows("mmlu", 5, 10),
    )


def test_the_table_shows_every_number_and_no_text(board: report.Leaderboard) -> None:
    out = StringIO()
    Console(file=out, width=80).print(report.build_leaderboard_table(board))
    shown = out.getvalue()
    for expected in ("90.0", "59.6 … 98.2", "50.0 ± 16.7", "23.7 … 76.3", "cold start", "120 $0.00040", "p95 1.00 s"):
        assert expected in shown
    assert "SECRET" not in shown


def test_the_first_screen_has_a_row_for_each_system_and_fits_80_columns(board: report.Leaderboard) -> None:
    out = StringIO()
    Console(file=out, width=80).print(report.build_systems_table(board))
    head, *lines = out.getvalue().splitlines()
    assert head.split("  ")[0] == "system"
    assert [line.partition("  ")[0] for line in lines] == [
        "Conductor", "cold start", "best worker (b)", "random worker", "oracle"
    ]  # fmt: skip
    assert " ".join(lines[0].split()) == "Conductor 85.0 (63.3 … 93.3) 60.0 (31.3 … 83.2) 0.000400"
    assert lines[1].split() == ["cold", "start", "50.0", "±", "16.7", "–", "0.000400"]


def test_the_share_of_invalid_workflows_stands_beside_the_cost_that_they_lower() -> None:
    failed = rows("mmlu", 0, 4, format_ok=False, cost_usd=0.0, tokens=0, workers=())
    failing = [*rows("mmlu", 4, 6), *(replace(row, problem_id=f"invalid {row.problem_id}") for row in failed)]
    board = report.build_leaderboard(failing, {"best worker (b)": summarize(rows("mmlu", 4, 10))})
    out = StringIO()
    Console(file=out, width=80).print(report.build_systems_table(board))
    conductor, best = out.getvalue().splitlines()[1:]
    assert conductor.split()[-3:] == ["40%", "invalid", "0.000240"] and best.split()[-2:] == ["–", "0.000400"]
    [row] = [row for row in report.build_tables(board)["tokens_and_usd_a_question"].rows if row[0] == "mmlu"]
    assert row[1:] == ["72 $0.00024, 40% invalid", "120 $0.00040"]


def test_benchmarks_come_in_the_recipes_order(board: report.Leaderboard) -> None:
    assert board.benchmarks == ["math500", "mmlu", "gpqa_diamond"]


def test_means_weigh_benchmarks_alike(board: report.Leaderboard) -> None:
    mean = board.mean_accuracy("Conductor", ["math500", "mmlu"])
    assert mean.mean == pytest.approx(0.85)
    assert mean.standard_error == pytest.approx(math.hypot(0.4 / 3, 0.1) / 2)
    assert math.isnan(board.mean_accuracy("oracle", ["gpqa_diamond"]).mean)


def test_tables_show_accuracies_with_their_errors_and_the_shape_of_the_workflows(board: report.Leaderboard) -> None:
    tables = report.build_tables(board)
    accuracies = tables["accuracy_in_percent"]
    assert accuracies.head == ["benchmark", "n", *board.systems]
    mean = next(row for row in accuracies.rows if row[0] == "in-domain mean")
    assert mean[1:3] == [20, "85.0 (63.3 … 93.3)".replace(" ", "\N{NO-BREAK SPACE}")]
    ends = next(row for row in tables["accuracy_95_percent_intervals"].rows if row[0] == "in-domain mean")
    assert ends[2] == "63.3 … 93.3".replace(" ", "\N{NO-BREAK SPACE}")
    assert [row[0] for row in tables["tokens_and_usd_a_question"].rows] == [row[0] for row in accuracies.rows]
    conductor, *_, oracle = tables["p95_latency_s"].rows[0][1:]
    assert (conductor, oracle) == ("1.00", "–"), "the oracle was not scored on this benchmark"
    assert ["Conductor", "2.00", "100.0%", "100.0%", 0] in tables["workflows"].rows
    assert ["best worker (b)", "1.00", "100.0%", "0.0%", 0] in tables["workflows"].rows
    for columns in tables.values():
        assert len(set(columns.head)) == len(columns.head)
        assert {len(row) for row in columns.rows} <= {len(columns.head)}
    assert "SECRET" not in str(tables)


def test_a_system_that_wrote_no_workflow_has_no_mean_of_them() -> None:
    silent = rows("mmlu", 0, 4, workers=(), steps=0, format_ok=False)
    assert report.build_tables(report.build_leaderboard(silent, {}))["workflows"].rows == [
        ["Conductor", "–", "0.0%", "–", 0]
    ]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "$0"), (1.234, "$1.23"), (0.0238, "$0.024"), (0.000123, "$0.00012"), (math.nan, "–")],
)
def test_money_stays_readable(amount: float, shown: str) -> None:
    assert format_usd(amount) == shown


@pytest.mark.parametrize(
    ("right", "n", "shown"),
    [
        (0, 24, "0.0 (0.0 … 13.8)"), (24, 24, "100.0 (86.2 … 100.0)"), (1, 1, "100.0 (20.7 … 100.0)"),
        (1, 24, "4.2 (0.7 … 20.2)"), (12, 24, "50.0 ± 10.4"), (71, 100, "71.0 ± 4.6"),
    ],
)  # fmt: skip
def test_no_accuracy_is_shown_without_its_uncertainty(right: int, n: int, shown: str) -> None:
    found = summarize(rows("mmlu", right, n))["mmlu"].accuracy
    assert report.format_accuracy(found) == shown
    assert (
        report.format_accuracy(report.estimate_of_score(Score(n, found.mean, 0.0 if n == 1 else found.standard_error)))
        == shown
    )
    assert report.error_bar_of(found).low < report.error_bar_of(found).high


def test_an_error_that_cannot_be_known_is_not_shown() -> None:
    assert report.format_accuracy(MeanEstimate(1.0, math.nan, 1)) == "100.0"
    assert report.format_accuracy(MeanEstimate(math.nan, math.nan, 0)) == "–"


def test_worker_counts() -> None:
    counts = count_worker_steps(rows("mmlu", 1, 3) + rows("mmlu", 0, 1, workers=(), domain="code"))
    assert counts == {"math": {"a": 3, "b": 3}}


def test_pictures_are_pngs(board: report.Leaderboard) -> None:
    curve = report.chart_reward(range(10), [0.1 * i for i in range(10)])
    charts = (
        curve, report.chart_accuracy_by_benchmark(board), report.chart_worker_use(rows("mmlu", 1, 3)),
        report.chart_worker_use([]),
    )  # fmt: skip
    pictures = [render_png(chart) for chart in charts]
    assert all(picture.startswith(PNG) and len(picture) > 2000 for picture in pictures)
    assert len(set(pictures)) == 4


def test_strategies_of_every_system_and_of_the_first_on_each_benchmark() -> None:
    fan_in, chain = {"shape": "aggregate", "pattern": "0 1 2<0,1"}, {"shape": "verify_last", "pattern": "0 1<0"}
    board = report.build_leaderboard(
        rows("mmlu", 1, 6, **chain) + rows("math500", 1, 2, **fan_in) + rows("math500", 1, 2, format_ok=False),
        {"best worker (b)": summarize(rows("mmlu", 1, 3))},
        cold_start=rows("mmlu", 1, 4, **fan_in),
    )
    strategies = report.build_tables(board)["strategies"]
    assert strategies.head == ["strategy", "verify last", "aggregate", "patterns", "diversity (bits)"]
    assert strategies.rows == [
        ["Conductor", "75%", "25%", 2, 0.81],
        ["cold start", "0%", "100%", 1, 0.0],
        ["Conductor on math500", "0%", "100%", 1, 0.0],
        ["Conductor on mmlu", "100%", "0%", 1, 0.0],
    ]


def test_systems_that_write_no_workflows_have_no_strategy(board: report.Leaderboard) -> None:
    assert report.build_tables(board)["strategies"].rows == []


def test_strategies_by_step_are_a_picture() -> None:
    lines = [{"step": i, "shape/chain": 1 - i / 20, "shape/single": i / 20, "diversity": 3 - i / 9} for i in range(20)]
    picture = render_png(report.chart_strategies(lines))
    assert picture.startswith(PNG) and len(picture) > 5000
    assert render_png(report.chart_strategies(lines[:10])) != picture
    assert render_png(report.chart_strategies([{"step": 1}])).startswith(PNG)


# ── reach ─────────────────────────────────────────────────────────────────────


def of(problem: int, correct: bool, **changes: object) -> list[OutcomeRow]:
    return rows("mmlu", 0, 1, problem_id=str(problem), correct=int(correct), **changes)


def measured(*given: Any) -> Reach:
    made = compute_reach(*given)
    assert made is not None
    return made


def test_the_ceiling_counts_all_workers_and_the_share_only_the_conductor() -> None:
    conductor = [*of(1, True, shape="chain"), *of(2, False, shape="single"), *of(3, False), *of(4, False)]
    cold, alone = of(2, True), [*of(1, True), *of(3, True), *of(9, True)]
    made = measured(conductor, cold, alone, ["mmlu"])
    assert made.ceiling == pytest.approx(3 / 4)  # question 9 is not among the Conductor's, and no worker solves 4
    assert made.reached == pytest.approx(1 / 3)


def test_right_if_valid_leaves_out_what_is_no_workflow() -> None:
    conductor = [*of(1, True), *of(2, False), *of(3, False, format_ok=False)]
    made = measured(conductor, (), (), ["mmlu"])
    assert made.valid == pytest.approx(2 / 3)
    assert made.right_if_valid == pytest.approx(1 / 2)


def test_a_strategy_shows_a_workflow_that_paid() -> None:
    first = of(1, True, shape="chain", completion="model_id =\n [1]")
    second = of(2, True, shape="chain", completion="paid")
    made = measured([*first, *second], (), of(1, True), ["mmlu"])
    (strategy,) = made.strategies
    assert (strategy.shape, strategy.share, strategy.where, strategy.paid) == ("chain", 1.0, "mmlu", 1)
    assert strategy.example == "paid"  # no single worker answers question 2


def test_no_example_quotes_a_confidential_benchmark() -> None:
    secret = rows("gpqa_diamond", 3, 3, shape="single")
    made = measured(secret, (), (), ["gpqa_diamond"])
    assert [strategy.example for strategy in made.strategies] == [""]


def test_nothing_scored_has_no_reach_and_a_stored_one_comes_back() -> None:
    assert compute_reach(rows("mmlu", 1, 2), (), (), ["rlpr"]) is None
    made = measured(rows("mmlu", 1, 2, shape="tree"), (), (), ["mmlu"])
    assert Reach.from_json(json.loads(json.dumps(asdict(made)))) == made
