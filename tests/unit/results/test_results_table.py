"""The results table: rows survive the disk, are priced by usage, and their figures are those of a plain loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq
import pytest

from ops.config import Pool, Price, Worker
from ops.core.digests import write_digest
from ops.core.errors import DataError
from ops.core.response_rows import RESPONSE_DEFAULTS, load_responses
from ops.core.usage import Usage
from ops.precaching.precache import write_responses
from ops.results.measures import MEASURES, Measure
from ops.results.outcome_rows import CallUsage, OutcomeRow
from ops.results.statistics import MeanEstimate
from ops.results.summary import PairedQuestions, average_by_question, gains_over_seeds, mean_usd, summarize
from ops.results.table import (
    iterate_records,
    load_rows,
    reprice_rows,
    response_rows_as_scores,
    save_rows,
    scan_responses,
    scan_rows,
    to_table,
    write_rows,
)
from tests.builders import make_outcome, make_response

POOL = Pool(
    name="p",
    workers=(
        Worker(name="ada", model="local/ada", price=Price(input=1.0, output=3.0)),
        Worker(name="bob", model="local/bob", price=Price(input=0.1, output=0.2)),
        Worker(name="listed", model="openai/gpt-5"),
    ),
)


def drawn(seed: int, *, texts: str = "") -> list[OutcomeRow]:
    """Return rows of two benchmarks, 30 questions and three repeats, with every kind of row."""
    chance = random.Random(seed)
    return [
        make_outcome(
            benchmark, f"{question:02}", repeat=repeat, correct=int(chance.random() < 0.6),
            format_ok=chance.random() < 0.9, unscorable=chance.random() < 0.1, steps=chance.randrange(1, 5),
            workers=tuple(chance.choices(("ada", "bob"), k=chance.randrange(1, 4))), tokens=chance.randrange(900),
            usage=tuple(
                CallUsage("ada", Usage(chance.randrange(90), chance.randrange(90))) for _ in range(chance.randrange(4))
            ),
            cost_usd=chance.random() / 100, latency_s=chance.expovariate(1.0), completion=texts, answer=texts,
            shape=chance.choice(("single", "chain")), pattern=chance.choice(("0", "0 1<0")),
        )
        for benchmark in ("mmlu", "aime25")
        for question in range(30)
        for repeat in range(3)
    ]  # fmt: skip


def test_a_summary_of_a_file_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    rows = drawn(1, texts="said")
    save_rows(rows, tmp_path / "rows.parquet")
    found = summarize(scan_rows(tmp_path / "rows.parquet"))
    assert list(found) == ["aime25", "mmlu"] and list(summarize(rows)) == ["mmlu", "aime25"], "by first appearance"
    for name, summary in found.items():
        every = [row for row in rows if row.benchmark == name]
        scored, written = [row for row in every if not row.unscorable], [row for row in every if row.format_ok]
        questions = {row.problem_id: [r.correct for r in scored if r.problem_id == row.problem_id] for row in scored}
        assert (summary.rows, summary.unscorable) == (len(every), len(every) - len(scored))
        assert summary.accuracy.mean == pytest.approx(fmean(map(fmean, questions.values())))
        assert summary.accuracy.n == len(questions)
        assert summary.values["tokens"] == pytest.approx(fmean(row.tokens for row in scored))
        assert summary.values["cost_usd"] == pytest.approx(fmean(row.cost_usd for row in scored), rel=1e-12)
        assert summary.values["calls"] == pytest.approx(fmean(len(row.usage) for row in scored))
        assert summary.values["latency_s"] == pytest.approx(fmean(row.latency_s for row in scored), rel=1e-12)
        assert summary.values["latency_p95_s"] == pytest.approx(np.percentile([row.latency_s for row in scored], 95))
        assert summary.steps == fmean(row.steps for row in written)
        assert summary.format_compliance == len(written) / len(every) and summary.written == len(written)
        assert summary.multi_worker_share == fmean(len(set(row.workers)) > 1 for row in written)
        assert summary.shapes["chain"] == sum(row.shape == "chain" for row in written)
    assert mean_usd(rows) == pytest.approx(fmean(row.cost_usd for row in rows))


def test_a_summary_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = drawn(2)
    shuffled = random.Random(3).sample(rows, len(rows))
    assert summarize(shuffled)["mmlu"].accuracy == summarize(rows)["mmlu"].accuracy
    assert average_by_question(shuffled)["answers"].to_list() == average_by_question(rows)["answers"].to_list()


def test_repeats_of_a_question_add_no_certainty() -> None:
    def accuracy(repeats: int) -> MeanEstimate:
        rows = [make_outcome(problem=i, repeat=r, correct=i % 2) for i in range(4) for r in range(repeats)]
        away = make_outcome(problem=9, unscorable=True)  # a question without a scored answer
        return summarize([*rows, away])["mmlu"].accuracy

    assert accuracy(4) == accuracy(1) and accuracy(1).n == 4


def test_costs_are_those_of_the_usage_at_the_pools_prices() -> None:
    def costs(rows: Sequence[OutcomeRow]) -> list[float]:
        return [row.cost_usd for row in iterate_records(reprice_rows(rows, POOL))]

    both = (CallUsage("ada", Usage(100, 10)), CallUsage("bob", Usage(1000, 0)))
    kept = [(), (CallUsage("ada", Usage(1, 1)), CallUsage("listed", Usage(1, 1))), (CallUsage("gone", Usage(1, 1)),)]
    rows = [make_outcome(usage=usage, cost_usd=9.0) for usage in (both, *kept, both[:1])]
    assert costs(rows) == [pytest.approx(230e-6), 9.0, 9.0, 9.0, pytest.approx(130e-6)]
    assert costs([]) == [] and costs(rows[1:2]) == [9.0]


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = drawn(4, texts="said")
    write_rows(iter(rows), tmp_path / "rows.parquet")
    assert load_rows(tmp_path / "rows.parquet") == rows
    write_rows(to_table(rows), tmp_path / "again.parquet", texts=False)
    assert {row.completion + row.answer for row in load_rows(tmp_path / "again.parquet")} == {""}
    (tmp_path / "rows.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"rows\.parquet: .*podium run RECIPE"):
        scan_rows(tmp_path / "rows.parquet")
    write_digest(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        scan_rows(tmp_path / "rows.parquet")


def test_a_percentile_of_latency_is_of_the_shared_questions() -> None:
    ours = [make_outcome(problem=i, latency_s=float(i)) for i in range(101)]
    theirs = [make_outcome(problem=i, latency_s=2.0 * i, unscorable=i == 100) for i in range(101)]
    [p95] = [measure for measure in MEASURES if measure.name == "latency_p95_s"]
    assert PairedQuestions.from_rows(ours, theirs).values(p95) == (
        pytest.approx(0.95 * 99),
        pytest.approx(1.9 * 99),
    )


def test_a_question_counts_over_seeds_if_both_sides_scored_it_on_every_seed() -> None:
    def pairs(*right: tuple[int, int | None]) -> PairedQuestions:
        ours = [make_outcome(problem=i, correct=mine) for i, (mine, _) in enumerate(right)]
        theirs = [make_outcome(problem=i, correct=other) for i, (_, other) in enumerate(right) if other is not None]
        return PairedQuestions.from_rows(ours, theirs)

    [gains] = gains_over_seeds([pairs((1, 0), (1, 1), (0, 1)), pairs((1, 1), (0, None), (0, 1))], ["mmlu", "aime25"])
    assert gains.tolist() == [[1, -1], [0, -1]]


def test_a_workers_responses_are_rows_of_one_step(tmp_path: Path) -> None:
    responses = [
        make_response(worker="ada", problem_id="1", sample=1, status="ok", score=1.0, cost_usd=9.0, grading_usd=0.5),
        make_response(worker="ada", problem_id="2", status="refused", score=0.0),
        make_response(worker="ada", problem_id="3", status="unreachable", score=0.0),
    ]
    write_responses(responses, tmp_path / "ada.parquet")
    rows = list(iterate_records(reprice_rows(scan_responses(tmp_path / "ada.parquet"), POOL)))
    assert rows == list(iterate_records(reprice_rows(response_rows_as_scores(responses), POOL)))
    assert rows[0] == OutcomeRow(
        "rlpr", "1", 1, "", 1, True, "", "answered", 1, ("ada",), 30, 70e-6, 1.0, "", "4", False,
        usage=(CallUsage("ada", Usage(10, 20)),), grading_usd=0.5,
    )  # fmt: skip
    assert [(row.correct, row.status, row.unscorable) for row in rows[1:]] == [
        (0, "refused", False), (0, "unreachable", True)
    ]  # fmt: skip
    assert list(iterate_records(response_rows_as_scores([]))) == []


def test_responses_of_an_earlier_version_have_the_defaults_of_what_their_table_lacks(tmp_path: Path) -> None:
    file = tmp_path / "ada.parquet"
    write_responses([make_response(worker="ada", problem_id="1", status="ok", score=1.0)], file)
    expected = list(iterate_records(scan_responses(file)))
    read = load_responses(file)
    pq.write_table(pq.read_table(file).drop_columns([*RESPONSE_DEFAULTS]), file)
    write_digest(file)
    assert "stated_usd" in RESPONSE_DEFAULTS and load_responses(file) == read
    assert list(iterate_records(scan_responses(file))) == expected
    pq.write_table(pq.read_table(file).drop_columns(["score"]), file)
    write_digest(file)
    with pytest.raises(DataError, match="score missing"):
        scan_responses(file)


def test_a_file_of_a_version_registered_earlier_has_the_defaults_of_what_it_lacks(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, rows = tmp_path / "scores.parquet", drawn(3)
    write_rows(rows, file)
    written = pq.read_table(file)
    usages = [[{name: use[name] for name in ("worker", "prompt_tokens", "completion_tokens")} for use in responses]
              for responses in written["usage"].to_pylist()]  # fmt: skip
    earlier = written.set_column(written.schema.get_field_index("usage"), "usage", pa.array(usages))
    pq.write_table(earlier.drop_columns(["grading_usd", "trace"]), file)
    write_digest(file)
    assert load_rows(file) == rows
    assert [row.cost_usd for row in iterate_records(reprice_rows(scan_rows(file), POOL))] == pytest.approx(
        [row.cost_usd for row in iterate_records(reprice_rows(rows, POOL))]
    )
    pq.write_table(earlier.drop_columns(["correct"]), file)
    write_digest(file)
    with pytest.raises(DataError, match="column correct: is missing"):
        scan_rows(file)


def test_a_percentile_has_no_bound_on_its_mean() -> None:
    with pytest.raises(ValueError, match="max_value is a bound on a mean"):
        Measure("latency_p99_s", "p99", lambda col: col("latency_s"), is_mean=False, max_value="max_p99_s")
