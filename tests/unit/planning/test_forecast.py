"""The forecast of a training run: its arithmetic by hand, and compared with a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from ops.benchmarks.problem_files import write_problems
from ops.config import Pool, Recipe, Setup, load_pool, load_recipe
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.planning.estimate import SUBTASK_TOKENS, MeasuredUsage, Range
from ops.planning.forecast import (
    CONFIDENCE,
    Headroom,
    Outlook,
    assess_outlook,
    compare_with_run,
    describe_basis,
    describe_last_run,
    describe_outlook,
    find_last_run,
    forecast_run,
    list_figures,
    list_warnings,
    make_forecast,
    measure_headroom,
)
from ops.planning.stage_estimates import PAID_SHARE, TRAINING
from ops.precaching.precache import write_responses
from ops.training.run.training_run import CURVE_FILE, PLAN_FILE, RESULT_FILE, RunPlan, RunResult
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


def pool(names: str = "ab", **settings: Any) -> Pool:
    workers = [
        {"name": name, "model": "openai/x", "api_base": "http://127.0.0.1:1/v1", "price": {"input": 4, "output": 8},
         "concurrency": 4} | settings
        for name in names
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
    return forecast_run(setup, mix, rows, shares, MeasuredUsage.from_rows(rows))


ROWS = [row("a", 0, 1.0), row("b", 0, 0.0, cost_usd=0.03, latency_s=6.0)]


def test_signal_calls_and_cost_by_hand() -> None:
    found = made(ROWS)
    assert found.signal == pytest.approx((1.0 + 0.0 + 0.05) / 3)
    assert found.signal_by_domain == {"math": 0.5, "rlpr": 0.05}
    assert (found.rollouts, found.steps_per_workflow, found.training.calls.expected) == (160, 3.0, 480.0)
    alone = 4e-6 * (100 + SUBTASK_TOKENS) + 8e-6 * 75
    seen = 4e-6 * (SUBTASK_TOKENS + 75)  # an earlier step's subtask and answer
    # One step; three that see half of 0 + 1 + 2 before them; five that see all of 0 + 1 + 2 + 3 + 4.
    assert found.training.usd_with_repeats == pytest.approx(
        (160 * alone, 480 * alone + 240 * seen, 800 * alone + 1600 * seen)
    )
    assert found.training.usd == pytest.approx(found.training.usd_with_repeats.times(PAID_SHARE[TRAINING]))


def test_a_worker_that_is_asked_more_on_one_benchmark_counts_no_more_for_it() -> None:
    many = [*ROWS, *[row("a", number, 1.0, cost_usd=0.01) for number in range(1, 50)]]
    assert made(many).training.usd_with_repeats.low == pytest.approx(made(ROWS).training.usd_with_repeats.low)


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
    found = list_warnings(made(ROWS, budget={"run_usd": 0.1}))
    assert any("its cap is $0.10" in line for line in found)
    assert any("rlpr" in line and "math" not in line for line in found)
    assert not any("cap" in line for line in list_warnings(made(ROWS, budget={"run_usd": 50.0})))


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
    assert (last.first_signal, last.signal) == (pytest.approx(0.75), pytest.approx(0.5))
    assert (last.calls, last.paid_share, last.usd) == (40, 0.25, 1.5)
    assert after.training.policy_s == Range.exactly(last.policy_s)
    assert last.policy_s == pytest.approx(10 * 3.0)
    assert after.signal == before.signal
    head, rows = compare_with_run(after, last)
    assert head == ("a training run", "forecast", "last run") and compare_with_run(before, None)[0] == head[:2]
    table = {name: (value, actual) for name, value, actual in rows}
    assert table["worker calls"] == ("480", "40 (25% of them paid for)")
    assert find_last_run(Setup(workspace, recipe(), pool(concurrency=5))) is None
    assert find_last_run(Setup(workspace, recipe(grpo={"steps": 3}), pool())) is None

    changed, last = make_forecast(Setup(workspace, recipe(grpo={"steps": 3}), pool("abc")))
    assert changed.training.policy_s is None, "a run with other settings predicts no duration"
    assert compare_with_run(changed, last)[0][-1] == "last run"
    differences = "It is not quite comparable, since it had other settings of GRPO and another pool (without c)."
    assert describe_last_run(last) == f"The last run is r-1. {differences}"


def write_run(workspace: Workspace, settings: Recipe, workers: Pool) -> None:
    folder = workspace.runs / "r-1"
    folder.mkdir(parents=True)
    plan = RunPlan(
        root=workspace.root, recipe=settings, pool=workers, offered=workers.names, base_policy=folder,
        problems=folder, few_shots=folder,
    )  # fmt: skip
    (folder / PLAN_FILE).write_text(plan.model_dump_json(), encoding="utf-8")
    lines = [
        {"step": n, "steps": 2.0, "seconds": 5.0, "seconds/workers": 2.0, "zero_variance_groups": idle}
        for n, idle in enumerate([0.25] * 5 + [0.75] * 5)
    ]  # fmt: skip
    (folder / CURVE_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = RunResult(
        steps=10, reward_before=0.5, reward_after=0.7, window=5, rollouts=160, live_calls=10, cached_calls=30,
        rollouts_usd=1.5, seconds=50.0,
    )  # fmt: skip
    (folder / RESULT_FILE).write_text(result.model_dump_json(), encoding="utf-8")


def test_the_shipped_paper_recipe_has_everything_that_a_forecast_needs() -> None:
    settings = load_recipe(ROOT / "config", "paper")
    workers = load_pool(ROOT / "config", settings.pool)
    rows = [row(name, 0, 0.5) for name in workers.names]
    setup = Setup(Workspace(ROOT), settings, workers)
    found = forecast_run(setup, [problem(0)], rows, {"math500/p0": 0.9}, MeasuredUsage.from_rows(rows))
    assert found.rollouts == 200 * 4 * 64
    assert found.training.worker_s.expected > 0
    assert found.training.usd.high > found.training.usd.low > 0


# ── whether training would pay ────────────────────────────────────────────────


class World(NamedTuple):
    """Simulated workers of equal mean accuracy, whose skill differs between questions by `between` logits and between
    subjects by `by_subject` logits. The difficulty that they share has a standard deviation of 7 logits, so that two
    answers of a worker to a question agree as often as in published outcomes of ten samples."""

    between: float = 0.0
    by_subject: float = 0.0

    def rates(self, questions: int, rng: np.random.Generator) -> np.ndarray:
        """Return each worker's chance of a right answer, of shape (questions, workers)."""
        of_subject = rng.normal(0, self.by_subject, (SUBJECTS, WORKERS))[np.arange(questions) % SUBJECTS]
        of_subject = of_subject - of_subject.mean(axis=0)
        skill = rng.normal(0, 7, (questions, 1)) + of_subject + rng.normal(0, self.between, (questions, WORKERS))
        return 1 / (1 + np.exp(-skill))

    def gain(self) -> float:
        """Return the true attainable gain: the mean chance of each question's best worker, minus the best worker's."""
        draws = [self.rates(20_000, np.random.default_rng(seed)) for seed in range(20)]
        return float(np.mean([rates.max(axis=1).mean() - rates.mean(axis=0).max() for rates in draws]))

    def room(self, questions: int, samples: int, rng: np.random.Generator) -> Headroom:
        """Draw answers and measure the room on them."""
        right = rng.binomial(1, self.rates(questions, rng)[..., None], (questions, WORKERS, samples))
        asked = [replace(problem(number), subject=str(number % SUBJECTS)) for number in range(questions)]
        rows = [row(NAMES[w], q, float(right[q, w, k]), sample=k) for q, w, k in np.ndindex(right.shape)]
        room = measure_headroom(rows, pool(NAMES), asked)
        assert room is not None and room.workers == WORKERS
        return room


NAMES, SUBJECTS = "abc", 6
WORKERS = len(NAMES)
WORLDS = {
    "identical": World(),
    "slightly different": World(between=0.66),
    "complementary": World(between=1.77),
    "complementary by subject": World(by_subject=1.9),
}


@pytest.mark.parametrize(("world", "points"), [*zip(WORLDS, (0, 3, 8, 8), strict=True)])
def test_the_simulated_workers_have_the_stated_gain(world: str, points: float) -> None:
    assert 100 * WORLDS[world].gain() == pytest.approx(points, abs=0.5)


def test_a_first_look_of_18_questions_does_not_sell_a_training() -> None:
    """Three workers that solve two of three questions by luck: the best of each question was 33 points above any."""
    rng = np.random.default_rng(0)
    rows = [row(worker, number, float(rng.random() < 0.6)) for worker in NAMES for number in range(18)]
    found = made(rows, pool(NAMES))
    assert found.headroom is not None and found.headroom.hindsight.mean > 0.2
    assert describe_basis(found) == "This forecast rests on 18 questions, with one answer of each of 3 workers."
    assert "cannot be decided with one sample" in describe_outlook(found) and "confidence" not in describe_outlook(
        found
    )


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("questions", [20, 100, 300])
def test_identical_workers_hardly_ever_seem_to_gain(questions: int, samples: int) -> None:
    """At most one forecast in twenty may say that training pays; the mean forecast is that nothing is gained."""
    rng, times = np.random.default_rng(questions + samples), 60
    rooms = [WORLDS["identical"].room(questions, samples, rng) for _ in range(times)]
    wrong = sum(assess_outlook(room, 1.0) is Outlook.PAYS for room in rooms)
    assert wrong <= binom.ppf(0.999, times, 1 - CONFIDENCE)
    assert np.mean([room.gain.mean for room in rooms]) == pytest.approx(0, abs=0.02)
    assert np.mean([room.hindsight.mean for room in rooms]) > 0.03, "the old figure sees a gain in luck"
    if samples == 1:
        luck = np.mean([room.by_chance for room in rooms])
        assert luck == pytest.approx(np.mean([room.hindsight.mean for room in rooms]), abs=0.01)


@pytest.mark.parametrize(
    ("world", "samples", "says", "at_least"),
    [
        ("identical", 2, Outlook.HARDLY_PAYS, 0.5),
        ("complementary", 1, Outlook.ONE_SAMPLE, 0.9),
        ("complementary", 2, Outlook.PAYS, 0.5),
        ("complementary by subject", 1, Outlook.PAYS, 0.5),
    ],
)
def test_what_300_questions_decide(world: str, samples: int, says: Outlook, at_least: float) -> None:
    rng, times = np.random.default_rng(3), 30
    said = [assess_outlook(WORLDS[world].room(300, samples, rng), 1.0) for _ in range(times)]
    assert said.count(says) >= at_least * times, said


def answers(rescued: int, problems: int, samples: int = 1) -> list[ResponseRow]:
    """a solves all but `rescued` problems, and b solves these."""
    return [
        row(worker, number, float((number >= rescued) == (worker == "a")), sample=sample)
        for worker in "ab"
        for number in range(problems)
        for sample in range(samples)
    ]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (answers(30, 100, 2), "Training may pay: the right worker for each question gains at least "),
        (answers(0, 100), "Training would hardly pay: the right worker for each question gains less than 5.0 points"),
        (answers(30, 100), "Whether training would pay cannot be decided with one sample. a, the best worker, solves"),
        (answers(1, 10, 2), "Undecided: no gain is certain"),
    ],
)  # fmt: skip
def test_whether_training_would_pay_and_how_sure_that_is(rows: list[ResponseRow], says: str) -> None:
    assert describe_outlook(made(rows)).startswith(says)


def test_one_sample_names_the_price_of_a_second() -> None:
    rows = answers(30, 100)
    found = made(rows)
    assert found.headroom is not None
    # 100 prompt and 75 completion tokens of each of two workers to each of 100 problems, at the pool's prices.
    assert found.headroom.next_sample_usd == pytest.approx(200 * (100 * 4e-6 + 75 * 8e-6))
    assert "(`precaching: {samples: 2}` in the recipe); the second answers cost about $0.20." in describe_outlook(found)
    twice = recipe(precaching={"samples": 2})
    assert twice.precaching.samples == 2, "the setting that the sentence names"


@pytest.mark.parametrize(("samples", "answered"), [(1, "one answer"), (2, "2 answers")])
def test_a_forecast_says_first_what_it_rests_on(samples: int, answered: str) -> None:
    found = made(answers(30, 100, samples))
    assert describe_basis(found) == f"This forecast rests on 100 questions, with {answered} of each of 2 workers."
    facts = list_figures(found)
    assert list(facts)[:3] == ["questions", "samples", "outlook"]
    assert (facts["questions"], facts["samples"]) == (100, samples)
    assert ("gain_by_chance" in facts) == (samples == 1)


def test_no_training_pays_without_a_signal_and_no_answer_is_made_up() -> None:
    assert measure_headroom([], pool()) is None
    assert "unknown" in describe_outlook(made([])) and "no answers" in describe_basis(made([]))
    silent = replace(made(answers(30, 100)), signal=0.05)
    assert describe_outlook(silent).startswith("Training would not pay: only 5.0% of the groups")
    away = [row("a", 9, 0, status="unreachable"), row("b", 9, 1)]
    with_one, without = measure_headroom([*answers(1, 4, 2), *away], pool()), measure_headroom(answers(1, 4, 2), pool())
    assert with_one is not None and without is not None
    assert with_one.gain == without.gain, "a question that the best worker could not be asked says nothing of a choice"


def test_a_worker_that_lacks_a_benchmark_does_not_count() -> None:
    partial = [row("c", number, 1.0) for number in range(20)]
    other = [row(worker, number, 1.0, benchmark="mmlu") for worker in "ab" for number in range(20)]
    room = measure_headroom([*answers(5, 20), *other, *partial], pool())
    assert room is not None and (room.workers, room.best_worker, room.problems) == (2, "a", 40)


def test_a_second_sample_of_some_workers_alone_is_no_second_sample() -> None:
    room = measure_headroom([*answers(30, 100), *(row("a", number, 1.0, sample=1) for number in range(100))], pool())
    assert room is not None and room.samples == 1
