"""Precaching: graded rows, deterministic files, resuming after a stop or a kill -9; and the workers' profiles, by
values computed by hand, by their properties, and from published outcomes of real models."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.charts import render_png
from ops.core.digests import write_digest
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, load_responses, response_file
from ops.curation.training_signal import estimate_group_signals
from ops.precaching.precache import precache_worker, write_responses
from ops.precaching.profiles import find_best_worker, forecast_signal, profile_workers, score_oracle, tally_responses
from ops.results.leaderboard import chart_accuracy_against_cost
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from tests.bench.outcomes import MATRIX, matrix_rows, replayed_verdicts
from tests.builders import make_problem, make_response
from tests.faults import precache_run
from tests.faults.processes import Process


def problems(count: int) -> list[Problem]:
    """Make sums in short text; the server answers 4 to all of them, which is right for every other one."""
    return [
        make_problem(id=f"rlpr-{n:03}", question=f"Number {n}: what is 2+{2 + n % 2}?", answer=str(4 + n % 2))
        for n in range(count)
    ]


def run(client: Any, worker: Any, count: int, **more: Any) -> list[ResponseRow]:
    return asyncio.run(precache_worker(problems(count), worker, client, **more))


def test_rows_are_graded_priced_and_in_order(loopback: Any, client: Any, worker: Any) -> None:
    seen: list[ResponseRow] = []
    rows = run(client, worker, 4, samples=2, on_progress=seen.append)
    assert [(r.problem_id, r.sample) for r in rows] == [(f"rlpr-{n:03}", s) for n in range(4) for s in (0, 1)]
    assert [r.score for r in rows] == [1.0, 1.0, 0.0, 0.0] * 2
    assert all(r.status == "ok" and r.extracted == "4" for r in rows)
    assert all(r.response.cost_usd > 0 and not r.response.cached for r in rows)
    assert sorted(seen, key=lambda r: (r.problem_id, r.sample)) == rows
    again = run(client, worker, 4, samples=2)
    assert len(loopback.requests) == 8
    assert all(r.response.cached for r in again)


def test_refused_and_unreachable_are_distinguished_and_the_latter_asked_again(loopback: Any, client: Any) -> None:
    loopback.plan.extend(["413", "500", "500"])
    worker = loopback.worker(concurrency=1, retries=0)
    rows = run(client, worker, 3)
    assert Counter(r.status for r in rows) == {"refused": 1, "unreachable": 2}
    assert all(r.score == 0.0 and r.response.text == "" for r in rows)
    assert [r.status for r in run(client, worker, 3)] == ["ok"] * 3
    assert len(loopback.requests) == 6


def test_a_wrong_key_stops_it_at_once(loopback: Any, make_client: Any) -> None:
    loopback.plan.extend(["401"] * 100)
    with pytest.raises(ConfigError, match="api_key_env"):
        run(make_client(), loopback.worker(concurrency=2), 50)
    assert len(loopback.requests) <= 4


def test_kill_9_and_again_pays_for_nothing_twice(loopback: Any, tmp_path: Path) -> None:
    count, concurrency = 60, 3
    loopback.latency_s = 0.03
    worker = loopback.worker(concurrency=concurrency, max_tokens=5, timeout_s=10.0)
    order = precache_run.Order(tmp_path, worker, problems(count))

    def started() -> Process:
        process = Process(precache_run.live, order)
        process.wait_until_ready()
        process.begin()
        return process

    process = started()
    while len(loopback.requests) < count // 3:
        time.sleep(0.005)
    assert process.kill(), "it had ended before"
    while asyncio.all_tasks(loopback.loop):  # until the killed process's requests have been read to their end
        time.sleep(0.005)
    before = len(loopback.requests)
    kept = len(ResponseCache(tmp_path))
    assert count // 3 <= before < count
    assert before - concurrency <= kept <= before  # only calls in flight can be lost
    assert not list(tmp_path.glob("*.parquet*"))

    assert started().outcome() == count
    assert len(loopback.requests) - before == count - kept
    counts = Counter(json.dumps(request["messages"]) for request in loopback.requests)
    assert len(counts) == count
    assert sum(times - 1 for times in counts.values()) == before - kept
    table = load_responses(tmp_path / "rows.parquet")
    assert len(table) == count
    # Calls in flight at the kill were paid as well, at the cost of the same question's answer.
    spent = Ledger(tmp_path / "ledger.sqlite").by_run()["run"]
    each = sum(row.response.cost_usd for row in table) / count
    assert before - kept <= spent.lost <= concurrency
    assert spent.calls + spent.lost >= len(loopback.requests)
    assert spent.usd == pytest.approx((spent.calls + spent.lost) * each)


# ── files ────────────────────────────────────────────────────────────────────


def test_the_same_rows_give_the_same_bytes_whatever_their_order_and_source(tmp_path: Path) -> None:
    rows = [make_response(problem_id=f"p{n}", sample=s, text=f"Zeile {n} ∑") for n in range(20) for s in (0, 1)]
    write_responses(rows, tmp_path / "a.parquet")
    cached = [replace(r, response=replace(r.response, cached=True)) for r in reversed(rows)]
    write_responses(cached, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    names = ["a.parquet", "a.parquet.sha256", "b.parquet", "b.parquet.sha256"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_folder_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [
        make_response(worker=w, benchmark=b, problem_id=f"{b}-{n}", status="refused" if n else "ok")
        for w in ("a", "b") for b in ("mmlu", "rlpr") for n in range(3)
    ]  # fmt: skip
    for worker, benchmark in product("ba", ("rlpr", "mmlu")):
        own = [r for r in rows if (r.worker, r.benchmark) == (worker, benchmark)]
        write_responses(own, response_file(tmp_path, worker, benchmark))
    assert load_responses(tmp_path) == rows
    assert load_responses(tmp_path / "nothing-here") == []


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    write_responses([], tmp_path / "empty.parquet")
    assert load_responses(tmp_path) == []


@pytest.mark.parametrize(
    ("columns", "says"),
    [(None, r"bad\.parquet.*Precache again"), ({"worker": ["w"]}, r"bad\.parquet: columns: benchmark")],
    ids=["no table", "no column"],
)
def test_a_file_that_is_not_a_table_is_named(tmp_path: Path, columns: dict[str, list[str]] | None, says: str) -> None:
    file = tmp_path / "bad.parquet"
    file.write_bytes(b"nothing of the kind")
    if columns:
        pq.write_table(pa.table(columns), file)
    write_digest(file)
    with pytest.raises(DataError, match=says):
        load_responses(tmp_path)


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    write_responses([make_response()], file)
    old = file.read_bytes()
    wrong: Any = "not a number"
    with pytest.raises((TypeError, ValueError)):
        write_responses([make_response(score=wrong)], file)
    assert file.read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "rows.parquet.sha256"]


# ── profiles ─────────────────────────────────────────────────────────────────


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
    a, b = profile_workers(ROWS)
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
    assert find_best_worker(ROWS).worker == "a"
    scores = score_oracle(ROWS)
    assert scores["mmlu"] == (2, 1.0, 0.0)
    assert scores["rlpr"].accuracy == 0.5
    with pytest.raises(ValueError, match="no responses"):
        find_best_worker([])
    equals = [row("a", "mmlu-0", 1.0, cost_usd=2.0), row("b", "mmlu-0", 1.0, cost_usd=1.0)]
    assert find_best_worker(equals).worker == "b", "the cheaper of equally good workers"


def test_the_oracle_of_a_report_selects_workers_and_not_samples() -> None:
    scores = {"a": [1.0, 0.0], "b": [0.0, 0.0]}
    rows = [row(w, "mmlu-0", score, sample=n) for w, samples in scores.items() for n, score in enumerate(samples)]
    assert score_oracle(rows)["mmlu"].accuracy == 0.5


def test_samples_of_one_problem_are_one_observation() -> None:
    rows = [row("a", f"mmlu-{n}", float(n), sample=s) for n in (0, 1) for s in range(50)]
    assert profile_workers(rows)[0].overall == (2, 0.5, pytest.approx(0.5))


def test_tallies_count_answers_and_leave_outages_out() -> None:
    rows = [*ROWS, row("a", "mmlu-0", 0.0, sample=1)]
    counts = tally_responses(rows)
    assert counts["mmlu/mmlu-0"] == {"a": (1.0, 2), "b": (0.0, 1)}
    assert counts["rlpr/rlpr-0"] == {"a": (1.0, 1)}


def test_the_forecast_follows_disagreement() -> None:
    def pool(right: int) -> list[ResponseRow]:
        return [
            row(f"w{worker}", f"mmlu-{number}", float(worker < right), sample=sample)
            for worker in range(4) for number in range(20) for sample in (0, 1)
        ]  # fmt: skip

    unanimous, split = forecast_signal(pool(4), 8), forecast_signal(pool(2), 8)
    assert unanimous < 0.3
    assert split > 0.9
    assert forecast_signal([], 4) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        forecast_signal(ROWS, 0)


def test_shares_of_cut_responses_and_tokens_of_a_call() -> None:
    rows = [
        row("a", "mmlu-0", 0.0, finish_reason="length", prompt_tokens=30),
        row("a", "mmlu-1", 1.0, finish_reason="stop"),
        row("a", "mmlu-2", 0.0, status="refused", prompt_tokens=0),
        row("a", "rlpr-0", 0.0, status="unreachable", prompt_tokens=0),
    ]
    [worker] = profile_workers(rows)
    assert worker.rates == {"refused": 0.25, "truncated": 0.25, "unreachable": 0.25}
    assert worker.usage == {"mmlu": (2, 20.0, 20.0, 0.5)}


def test_domains_and_subjects_come_from_the_problems() -> None:
    problems = [
        Problem("mmlu-0", "mmlu", "mmlu", "train", "?", "A", "choice", subject="law"),
        Problem("mmlu-1", "mmlu", "mmlu", "train", "?", "A", "choice", family="claims"),
        Problem("rlpr-0", "rlpr", "rlpr", "train", "?", "4", "text"),
    ]
    a, b = profile_workers(ROWS, problems)
    assert {name: score.accuracy for name, score in a.by_domain.items()} == {"mmlu": 0.5, "rlpr": 1.0}
    assert {name: score.accuracy for name, score in a.by_subject.items()} == {
        "mmlu/law": 1.0, "mmlu/claims": 0.0, "rlpr/other": 1.0,
    }  # fmt: skip
    assert "rlpr" not in b.by_domain, "an outage is no score"
    assert profile_workers(ROWS)[0].by_subject == {}


def test_the_plot_is_a_picture_and_needs_an_answer() -> None:
    free = [row("free", "mmlu-0", 1.0, cost_usd=0.0), *ROWS]
    assert render_png(chart_accuracy_against_cost(profile_workers(free), ("the oracle", 90.0))).startswith(b"\x89PNG")
    assert render_png(chart_accuracy_against_cost(profile_workers(free[:1]))).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="nothing to draw"):
        chart_accuracy_against_cost(profile_workers([row("a", "mmlu-0", 0.0, status="unreachable")]))


CELLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from([0.0, 1.0])),
    min_size=1, unique_by=lambda cell: cell[:2],
)  # fmt: skip


@given(cells=CELLS, group=st.integers(1, 64))
def test_bounds(cells: list[tuple[str, int, float]], group: int) -> None:
    rows = [row(worker, f"mmlu-{number}", score) for worker, number, score in cells]
    best = score_oracle(rows)["mmlu"]
    solved = {row.problem_id for row in rows if row.score}
    assert best.accuracy == pytest.approx(len(solved) / best.n)
    assert all(p.overall.accuracy * p.overall.n <= len(solved) + 1e-9 for p in profile_workers(rows))
    forecast = forecast_signal(rows, group)
    assert -1e-12 <= forecast <= forecast_signal(rows, group + 1) + 1e-12 <= 1.0 + 1e-12
    if group == 1:
        assert forecast == pytest.approx(0.0)
    assert profile_workers(list(reversed(rows))) == profile_workers(rows)


NEEDS_OUTCOMES = pytest.mark.skipif(not MATRIX.is_file(), reason="needs the published outcomes in ../shared")


@NEEDS_OUTCOMES
@pytest.mark.long
def test_the_pool_of_published_models() -> None:
    rows = matrix_rows()
    workers = {worker.worker: worker.overall for worker in profile_workers(rows)}
    assert len(workers) == 16
    best, [best_of_each] = find_best_worker(rows), score_oracle(rows).values()
    assert best.overall.accuracy == max(score.accuracy for score in workers.values())
    assert best.overall.accuracy + best.overall.se < best_of_each.accuracy
    assert {score.n for score in workers.values()} == {348, 349}
    shares = {group: fmean(estimate_group_signals(tally_responses(rows), group).values()) for group in (8, 64)}
    assert 0.2 < shares[8] < shares[64] < 1.0


@NEEDS_OUTCOMES
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_replayed_responses_fail_no_public_test_that_they_passed_when_hidden(count: int) -> None:
    verdicts = replayed_verdicts(every=400 // count)
    assert len(verdicts) == count
    assert [verdict.problem for verdict in verdicts if verdict.hidden and not verdict.public] == []
    assert sum(verdict.hidden for verdict in verdicts) > 0.4 * count
    assert sum(verdict.same_program for verdict in verdicts) == count
