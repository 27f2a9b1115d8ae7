"""Estimates: cached calls cost nothing, measurements are used, and no bill is above the worst case."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.registry import training_benchmarks
from ops.config import JudgeGrader, Price, Worker, load_pool
from ops.core.errors import OverBudget
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.planning.estimate import (
    CallEstimator,
    Cost,
    MeasuredUsage,
    PlannedCall,
    assume_answer_tokens,
    estimate_calls,
    explain_cap_error,
    plan_precache_calls,
)
from ops.precaching.precache import build_solo_messages, precache_worker
from ops.spending.ledger import Bill, Ledger
from ops.store import ResponseCache, cache_material
from ops.synthetic.problems import generate_problems
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workflow.judging import build_judge_request
from tests.builders import make_problem


def problems(count: int) -> list[Problem]:
    return [make_problem(id=f"rlpr-{n:03}", question=f"Number {n}: what is 2+2?") for n in range(count)]


def worker(name: str = "w", **settings: Any) -> Worker:
    return Worker(name=name, model=f"openai/{name}", price=Price(input=2.0, output=8.0), max_tokens=1000, **settings)


@pytest.fixture
def cache(tmp_path: Path) -> ResponseCache:
    return ResponseCache(tmp_path / "cache")


def row(name: str, prompt_tokens: int, completion_tokens: int, benchmark: str = "rlpr", **more: Any) -> ResponseRow:
    used = Response("", Usage(prompt_tokens, completion_tokens), 0.0, 0.0, "")
    return ResponseRow(name, benchmark, "x", 0, **{"status": "ok", "response": used, **more})


def estimated(
    asks: Iterable[PlannedCall],
    cache: ResponseCache,
    measured: MeasuredUsage | None = None,
    pool: Sequence[Worker] = (),
) -> Cost:
    """Estimate calls to a pool that contains the workers, unless another pool is given."""
    every = list(asks)
    workers = pool or list({ask.worker.name: ask.worker for ask in every}.values())
    return estimate_calls(every, cache, CallEstimator(workers, measured, pool_file="config/pools"))


def test_measured_tokens_give_the_expected_cost(cache: ResponseCache) -> None:
    usages = MeasuredUsage.from_rows([row("w", 100, 40), row("w", 200, 60), row("w", 0, 0, status="refused")])
    assert usages.usage["w", "rlpr"] == Usage(150.0, 50.0)
    total = estimated(plan_precache_calls(problems(10), [worker()], 3), cache, usages)
    assert (total.paid_calls, total.cached_calls, total.measured_calls) == (30, 0, 30)
    assert total.usd.expected == pytest.approx(30 * (150 * 2 + 50 * 8) / 1e6)
    assert total.usd.high > 30 * 1000 * 8 / 1e6
    assert "from measured tokens" in str(estimated(plan_precache_calls(problems(1), [worker()], 1), cache, usages))


def store(cache: ResponseCache, ask: PlannedCall, response: Response) -> None:
    cache.put_many([(ask.key, cache_material(ask.worker.identity, ask.messages, ask.sample), response)])


def test_a_judges_calls_are_counted_also_about_answers_that_are_cached(cache: ResponseCache) -> None:
    judge, solver = worker("judge"), worker()
    own = [JudgeGrader(worker="judge", rubric=rubric, asked=judge) for rubric in ("Right.", "Very right.")]
    configure(Path(), graders=own)
    first, second = ([replace(each, grader="judge", grading=grader.version) for each in problems(3)] for grader in own)
    prices = CallEstimator([solver], pool_file="config/pools", judges={"rlpr": judge})

    def judged(asked: Sequence[Problem]) -> Cost:
        return estimate_calls(plan_precache_calls(asked, [solver], 1), cache, prices)

    made = judged(first)
    assert (made.paid_calls, made.workers["judge"].calls.expected) == (6, 3)
    assert 0 < made.workers["judge"].usd.expected < made.workers["w"].usd.expected
    said = Response("4", Usage(10, 5), 0.001, 0.5, "stop")
    for each in first[:2]:
        store(cache, PlannedCall(solver, "rlpr", build_solo_messages(each)), said)
    assert (judged(first).paid_calls, judged(first).cached_calls) == (4, 2), "one answer and three verdicts"
    store(cache, PlannedCall(judge, "rlpr", build_judge_request(first[0], "4")[1]), said)
    assert (judged(first).paid_calls, judged(first).cached_calls) == (3, 3)
    assert (judged(second).paid_calls, judged(second).cached_calls) == (4, 2), "another rubric asks again"


def test_without_measurements_the_prompts_lengths_and_max_tokens_bound_it(cache: ResponseCache) -> None:
    made = estimated(plan_precache_calls(problems(10), [worker()], 1), cache)
    assert 0 < made.usd.expected < made.usd.high
    assert made.measured_calls == 0
    assert "nothing was measured yet" in str(made)
    both = [worker(), worker("other")]
    measured = MeasuredUsage({("other", "rlpr"): Usage(10.0, 1.0)})
    short = estimated(plan_precache_calls(problems(10), both, 1), cache, measured).workers["w"]
    assert short.usd.expected < made.usd.expected  # the others answer in one word, so this worker may too
    assert short.usd.high == made.usd.high


@pytest.mark.parametrize("purpose", ["precache", "evaluation"])
def test_calls_of_unfinished_tables_are_known_from_the_ledger(
    cache: ResponseCache, tmp_path: Path, purpose: str
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.settle(Bill(ledger.reserve("run", 1.0, 9.0), purpose, "w", 0.5, Usage(100, 40)))
    usages = MeasuredUsage.from_rows([row("w", 7, 7, benchmark="mmlu")], ledger)
    total = estimated(plan_precache_calls(problems(1), [worker()], 1), cache, usages)
    assert (total.measured_calls, total.usd.expected) == (1, pytest.approx((100 * 2 + 40 * 8) / 1e6))


def test_the_first_estimate_of_the_embedded_default_is_near_its_bill(tmp_path: Path) -> None:
    """The estimate without measurements is within a factor of three
    of the actual cost, which is at most the worst case.
    """
    pool = load_pool(Workspace.find().config, "quickstart")
    questions = [problem for name in training_benchmarks() for problem in generate_problems(name, "train", 12, 5)]
    client = WorkerClient(ResponseCache(tmp_path), Ledger(tmp_path / "ledger.sqlite"), Account("run", "precache", 1.0))
    before = estimated(plan_precache_calls(questions, pool.workers, 1), client.cache)
    assert before.measured_calls == before.similar_calls == 0
    assert "nothing was measured yet" in str(before)
    for tool in pool.workers:
        asyncio.run(precache_worker(questions, tool, client))
    assert client.counts.usd / 3 < before.usd.expected < client.counts.usd * 3
    assert client.counts.usd < before.usd.high


def test_kinds_of_workers_are_expected_to_answer_at_different_length() -> None:
    thinks, tool = worker(tags=("reasoning",)), worker(tags=("tool",))
    answers = [
        assume_answer_tokens(tool, "choice"),
        assume_answer_tokens(worker(), "choice"),
        assume_answer_tokens(worker(thinking_budget=128), "choice"),
        assume_answer_tokens(worker(), "math"),
        assume_answer_tokens(thinks, "math"),
    ]
    assert answers == sorted(answers)
    assert len(set(answers)) == 5
    assert assume_answer_tokens(worker(reasoning_effort="high")) > assume_answer_tokens(
        worker(reasoning_effort="minimal")
    )


def test_measurements_of_the_worker_and_then_of_its_kind_take_precedence(cache: ResponseCache) -> None:
    def expected(usages: MeasuredUsage, **settings: Any) -> float:
        return estimated(plan_precache_calls(problems(1), [worker(**settings)], 1), cache, usages).usd.expected

    elsewhere = MeasuredUsage.from_rows([row("w", 100, 40, benchmark="mmlu")])
    assert expected(elsewhere) == pytest.approx((100 * 2 + 40 * 8) / 1e6)  # this worker on another benchmark
    others = [worker("other"), worker("tool", tags=("tool",)), worker()]
    completions = {"other": 10, "tool": 3, "gone": 999}
    usages = MeasuredUsage({(name, "rlpr"): Usage(9, tokens) for name, tokens in completions.items()})
    made = estimated(plan_precache_calls(problems(1), others, 1), cache, usages)
    assert (made.measured_calls, made.similar_calls) == (2, 1)
    prompt = sum(len(m["content"]) for m in build_solo_messages(problems(1)[0])) / 4
    assert made.workers["w"].usd.expected == pytest.approx((prompt * 2 + 10 * 8) / 1e6)
    assert "67% from measured tokens, 33% as long as the other workers' answers" in str(made)


def test_each_worker_has_its_share(cache: ResponseCache) -> None:
    cheap = worker("cheap").model_copy(update={"price": Price(input=0.0, output=0.0)})
    made = estimated(plan_precache_calls(problems(2), [worker(), cheap], 1), cache)
    assert {name: part.calls.expected for name, part in made.workers.items()} == {"w": 2, "cheap": 2}
    assert made.workers["cheap"].usd.high == 0.0
    assert [row["worker"] for row in made.to_rows()] == ["w", "cheap"]


def test_the_estimate_bounds_the_bill_and_shrinks_as_the_run_goes_on(
    loopback: Any, cache: ResponseCache, tmp_path: Path
) -> None:
    client = WorkerClient(cache, Ledger(tmp_path / "ledger.sqlite"), Account("run", "precache", 1.0))
    remote = loopback.worker()
    asks = list(plan_precache_calls(problems(8), [remote], 2))
    before = estimated(asks, client.cache)
    asyncio.run(precache_worker(problems(4), remote, client, 2))
    halfway = estimated(asks, client.cache, MeasuredUsage.from_rows([], client.ledger))
    assert (halfway.cached_calls, halfway.paid_calls, halfway.measured_calls) == (8, 8, 8)
    assert client.counts.usd <= before.usd.high - halfway.usd.high
    rest = client.counts.usd
    asyncio.run(precache_worker(problems(8), remote, client, 2))
    assert client.counts.usd - rest == pytest.approx(halfway.usd.expected)  # all answers have the same length
    done = estimated(asks, client.cache)
    assert (done.paid_calls, done.usd.high) == (0, 0.0)
    assert "nothing to pay" in str(done)


def test_the_message_of_a_stop_states_progress_and_remaining_cost(loopback: Any, make_client: Any) -> None:
    remote = loopback.worker(concurrency=1)
    asks = list(plan_precache_calls(problems(20), [remote], 1))
    whole = estimated(asks, make_client().cache).usd.high
    client = make_client(cap_usd=whole / 20 * 1.4)
    with pytest.raises(OverBudget) as caught:
        asyncio.run(precache_worker(problems(20), remote, client))
    done = len(loopback.requests)
    assert 0 < done < 20
    error = explain_cap_error(caught.value, estimated(asks, client.cache, MeasuredUsage.from_rows([], client.ledger)))
    assert f"{done} of 20 calls are done" in str(error)
    assert f"the other {20 - done} would cost about" in str(error)
    assert "budget.run_usd" in str(error)
    assert len(asyncio.run(precache_worker(problems(20), remote, make_client(cap_usd=1.0)))) == 20
    assert len(loopback.requests) == 20
