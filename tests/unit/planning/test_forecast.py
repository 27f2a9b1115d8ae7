"""The forecast of a training run: its arithmetic by hand, and compared with a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.store import write_problems
from ops.config import Pool, Recipe, Setup, load_pool, load_recipe
from ops.core.problem import Problem
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.planning.estimate import SUBTASK_TOKENS, Measured, Range
from ops.planning.forecast import comparison, last_run, make_forecast, room_above, run_forecast, verdict, warnings
from ops.planning.stages import DISTINCT, TRAINING
from ops.precaching.precache import write_responses
from ops.training.run.plan import CURVE, PLAN, RESULT, RunPlan, RunResult
from tests.builders import make_response

ROOT = Path(__file__).parents[3]
STEPS, QUESTIONS, ROLLOUTS = 10, 2, 8


def problem(number: int, domain: Any = "math") -> Problem:
    benchmark = {"math": "math500", "rlpr": "rlpr"}[domain]
    return Problem(f"p{number}", benchmark, domain, "train", "?", "4", "math")


def row(worker: str, number: int, score: float, *, benchmark: str = "math500", **changes: Any) -> ResponseRow:
    values: dict[str, Any] = {
        "worker": worker, "benchmark": benchmark, "problem_id": f"p{number}", "text": "t", "score": score,
        "extracted": "", "prompt_tokens": 100, "completion_tokens": 75, "cost_usd": 0.01, "latency_s": 2.0,
    }  # fmt: skip
    return make_response(**values | changes)


def pool(**settings: Any) -> Pool:
    workers = [
        {"name": name, "model": "openai/x", "api_base": "http://127.0.0.1:1/v1", "price": {"input": 4, "output": 8},
         "concurrency": 4} | settings
        for name in ("a", "b")
    ]  # fmt: skip
    return Pool.model_validate({"name": "p", "workers": workers})


def recipe(**changes: Any) -> Recipe:
    benchmarks = {name: {"train": 10} for name in ("math500", "mmlu", "rlpr", "livecodebench")}
    grpo = {"steps": STEPS, "questions_per_step": QUESTIONS, "rollouts_per_question": ROLLOUTS, "micro_batch": 16}
    values = {
        "name": "r", "pool": "p", "benchmarks": benchmarks, "policy": {"kind": "scratch"}, "cold_start": {},
        "grpo": grpo, "prompting": {"max_steps": 5, "few_shots": "none"},
    }  # fmt: skip
    return Recipe.model_validate(values | changes)


def made(rows: list[ResponseRow], workers: Pool | None = None, **changes: Any) -> Any:
    mix = [problem(0), problem(1), problem(2, "rlpr")]
    shares = {"math500/p0": 1.0, "math500/p1": 0.0, "rlpr/p2": 0.05}
    setup = Setup(Workspace(ROOT), recipe(**changes), workers or pool())
    return run_forecast(setup, mix, rows, shares, Measured.of(rows))


ROWS = [row("a", 0, 1.0), row("b", 0, 0.0, cost_usd=0.03, latency_s=6.0)]


def test_signal_calls_and_cost_by_hand() -> None:
    found = made(ROWS)
    assert found.signal == pytest.approx((1.0 + 0.0 + 0.05) / 3)
    assert found.signal_by_domain == {"math": 0.5, "rlpr": 0.05}
    assert (found.rollouts, found.steps, found.training.calls.expected) == (160, 3.0, 480.0)
    alone = 4e-6 * (100 + SUBTASK_TOKENS) + 8e-6 * 75
    seen = 4e-6 * (SUBTASK_TOKENS + 75)  # an earlier step's subtask and answer
    # One step; three that see half of 0 + 1 + 2 before them; five that see all of 0 + 1 + 2 + 3 + 4.
    assert found.training.worth == pytest.approx((160 * alone, 480 * alone + 240 * seen, 800 * alone + 1600 * seen))
    assert found.training.usd == pytest.approx(found.training.worth.times(DISTINCT[TRAINING]))


def test_a_worker_that_is_asked_more_on_one_benchmark_counts_no_more_for_it() -> None:
    many = [*ROWS, *[row("a", number, 1.0, cost_usd=0.01) for number in range(1, 50)]]
    assert made(many).training.worth.low == pytest.approx(made(ROWS).training.worth.low)


@pytest.mark.parametrize(
    ("settings", "seconds", "why"),
    [
        # 16 rollouts × 3 steps over 2 workers: 24 calls each. b: 24 × 6 s, four at a time.
        ({"concurrency": 4}, 36.0, "b"),
        # As many at once as there are calls: what is left is a workflow's own length, 3 × the mean of 2 and 6 s.
        ({"concurrency": 500}, 12.0, "a workflow's length"),
        # One request in 2 s.
        ({"concurrency": 500, "requests_per_minute": 30}, 48.0, "a"),
        # Declared latencies cause no real waiting.
        ({"latency_s": 5.0}, 0.0, ""),
    ],
)
def test_waiting_is_bound_by_limits_or_by_the_chain(settings: dict[str, Any], seconds: float, why: str) -> None:
    found = made(ROWS, pool(**settings))
    assert found.training.worker_s.expected == pytest.approx(STEPS * seconds)
    assert found.training.limited_by == why


def test_unreachable_calls_and_workers_of_another_pool_say_nothing() -> None:
    strange = [row("gone", 0, 1.0, cost_usd=9.0), row("a", 1, 0.0, status="unreachable", cost_usd=0.0)]
    assert made([*ROWS, *strange]) == made(ROWS)


def test_the_warnings_of_a_forecast() -> None:
    found = warnings(made(ROWS, budget={"run_usd": 0.1}))
    assert any("its cap is $0.10" in line for line in found)
    assert any("rlpr" in line and "math" not in line for line in found)
    assert not any("cap" in line for line in warnings(made(ROWS, budget={"run_usd": 50.0})))


def test_beside_it_stands_the_last_run_of_the_same_settings(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "config").mkdir()
    mix = [problem(0), problem(1)]
    write_problems(workspace.data / "training_mix.jsonl", mix)
    rows = [row(worker, number, float(number)) for worker in ("a", "b") for number in (0, 1)]
    for worker in ("a", "b"):
        own = [one for one in rows if one.worker == worker]
        write_responses(own, response_file(workspace.data / "responses", worker, "math500"))
    before, nothing = make_forecast(Setup(workspace, recipe(), pool()))
    assert (nothing, before.training.policy_s) == (None, None)

    write_run(workspace, recipe(), pool())
    after, last = make_forecast(Setup(workspace, recipe(), pool()))
    assert last is not None
    assert (last.signal_at_first, last.signal) == (pytest.approx(0.75), pytest.approx(0.5))
    assert (last.calls, last.paid_share, last.usd) == (40, 0.25, 1.5)
    assert after.training.policy_s == Range.of(last.policy_s)
    assert last.policy_s == pytest.approx(10 * 3.0)
    assert after.signal == before.signal
    table = {name: (value, actual) for name, value, actual in comparison(after, last)}
    assert table["worker calls"] == ("480", "40 (25% of them paid for)")
    assert last_run(Setup(workspace, recipe(), pool(concurrency=5))) is None
    assert last_run(Setup(workspace, recipe(grpo={"steps": 3}), pool())) is None


def write_run(workspace: Workspace, settings: Recipe, workers: Pool) -> None:
    folder = workspace.runs / "r-1"
    folder.mkdir(parents=True)
    plan = RunPlan(
        root=workspace.root, recipe=settings, pool=workers, offered=workers.names, base_policy=folder,
        problems=folder, few_shots=folder,
    )  # fmt: skip
    (folder / PLAN).write_text(plan.model_dump_json(), encoding="utf-8")
    lines = [
        {"step": n, "steps": 2.0, "seconds": 5.0, "seconds/workers": 2.0, "zero_variance_groups": idle}
        for n, idle in enumerate([0.25] * 5 + [0.75] * 5)
    ]  # fmt: skip
    (folder / CURVE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = RunResult(
        steps=10, reward_before=0.5, reward_after=0.7, window=5, rollouts=160, live_calls=10, cached_calls=30,
        cost_usd=1.5, seconds=50.0,
    )  # fmt: skip
    (folder / RESULT).write_text(result.model_dump_json(), encoding="utf-8")


def test_the_shipped_paper_recipe_has_everything_that_a_forecast_needs() -> None:
    settings = load_recipe(ROOT / "config", "paper")
    workers = load_pool(ROOT / "config", settings.pool)
    rows = [row(name, 0, 0.5) for name in workers.names]
    setup = Setup(Workspace(ROOT), settings, workers)
    found = run_forecast(setup, [problem(0)], rows, {"math500/p0": 0.9}, Measured.of(rows))
    assert found.rollouts == 200 * 4 * 64
    assert found.training.worker_s.expected > 0
    assert found.training.usd.high > found.training.usd.low > 0


def answers(rescued: int, problems: int) -> list[ResponseRow]:
    """a solves all but `rescued` problems, and b solves these."""
    first = [row("a", number, float(number >= rescued)) for number in range(problems)]
    return first + [row("b", number, float(number < rescued)) for number in range(problems)]


@pytest.mark.parametrize(
    ("rescued", "problems", "says", "confidence"),
    [(30, 100, "Training may pay", 0.999), (0, 100, "Training would hardly pay", 0.01), (1, 10, "Undecided", 0.8)],
)
def test_whether_training_would_pay_and_how_sure_that_is(
    rescued: int, problems: int, says: str, confidence: float
) -> None:
    found = made(answers(rescued, problems))
    assert found.room is not None
    assert (found.room.best, found.room.problems, found.room.gain) == ("a", problems, rescued / problems)
    assert found.room.alone == pytest.approx(1 - rescued / problems)
    assert found.room.confidence == pytest.approx(confidence, abs=0.05)
    assert verdict(found).startswith(says)


def test_no_training_pays_without_a_signal_and_no_answer_is_made_up() -> None:
    assert room_above([]) is None
    assert "unknown" in verdict(made([]))
    silent = replace(made(answers(30, 100)), signal=0.05)
    assert verdict(silent).startswith("Training would not pay: 5.0% of the groups")
    away = [row("a", 9, 0, status="unreachable"), row("b", 9, 1)]
    assert room_above([*answers(1, 4), *away]) == room_above(answers(1, 4))
