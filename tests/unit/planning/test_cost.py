"""Costs and times: the arithmetic by hand, published figures, and measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.benchmarks.registry import training_benchmarks
from ops.config import Pool, Recipe, Setup, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES, WorkflowBaseline
from ops.planning.estimate import (
    CALL_CPU_S,
    FIRST_TOKEN_S,
    FORMAT_TOKENS,
    SUBTASK_TOKENS,
    TOKENS_PER_SECOND,
    Cost,
    MeasuredUsage,
    Range,
    add_costs,
)
from ops.planning.lengths import TokenLengths, count_test_questions, estimate_lengths
from ops.planning.machine import Machine, parse_gpus
from ops.planning.recipe_plan import make_plan
from ops.planning.speed import estimate_evaluation_s, estimate_training_s
from ops.planning.stage_estimates import PAID_SHARE, TRAINING, StageEstimator
from ops.planning.stored_results import RemainingShares
from ops.precaching.precache import build_solo_messages
from ops.synthetic.generalists import respond
from ops.synthetic.plugin import count_tokens
from ops.synthetic.problems import generate_problems
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS
from tests.unit.planning.conftest import MACHINE, NOTHING, Sound

CONFIG = resources_folder() / "config"
PUBLISHED_USD = 0.0238
"""USD per question of the paper's Conductor with its constrained workers: three steps in the mean."""
KNOWN = TokenLengths(question=100.0, prompt=500.0, longest_prompt=900, is_measured=True)
ANSWER = 830
"""Usual tokens of an answer to an open question."""


def recipe_of(**changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "r", "pool": "p", "policy": {"kind": "pretrained", "model": "m"},
        "benchmarks": {"math500": {"test": 10}}, "curation": {"per_domain": 20, "shortlist_factor": 2},
        "grpo": {"steps": 3, "questions_per_step": 2, "rollouts_per_question": 4, "micro_batch": 8},
        "prompting": {"max_steps": 5}, "evaluation": {"repeats": 4},
    }  # fmt: skip
    return Recipe.model_validate(values | changes)


def worker(name: str = "w", **changes: Any) -> dict[str, Any]:
    price = {"input": 1.0, "output": 10.0}
    return {"name": name, "model": f"openai/{name}", "price": price, "concurrency": 10, "max_tokens": 4096, **changes}


def stages(
    *workers: dict[str, Any], rows: list[ResponseRow] | None = None, left: RemainingShares | None = None, **changes: Any
) -> StageEstimator:
    recipe = recipe_of(**changes)
    pool = Pool.model_validate({"name": "p", "workers": workers or [worker()]})
    setup = Setup(Workspace(Path("/nowhere")), recipe, pool)
    return StageEstimator(setup, KNOWN, {"math500": 10}, MeasuredUsage.from_rows(rows or []), left)


def row(name: str, tokens: int, latency_s: float) -> ResponseRow:
    return ResponseRow(name, "math500", "1", 0, "ok", Response("4", Usage(50, tokens), 0.0, latency_s, "stop"), 1.0)


def test_precaching_by_hand() -> None:
    cost = stages().estimate_precaching()
    assert cost.calls == Range.exactly(40)  # 20 places × 2
    a_call = [(100 + FORMAT_TOKENS) * 1e-6 + part * ANSWER * 1e-5 for part in (0.5, 1, 2)]
    assert cost.usd == pytest.approx([40 * usd for usd in a_call])
    seconds = [
        FIRST_TOKEN_S + part * ANSWER / speed for part, speed in zip((0.5, 1, 2), TOKENS_PER_SECOND, strict=True)
    ]
    assert cost.worker_s == pytest.approx([40 * each / 10 for each in seconds])


def test_training_by_hand() -> None:
    """24 rollouts: of one step, of three that see half of those before, or of five that see all."""
    cost = stages().estimate_training()
    assert cost.calls == Range(24, 72, 120)
    prompt = 100 + FORMAT_TOKENS + SUBTASK_TOKENS
    # Of 0 + 1 + 2 over three, and of 0 + 1 + 2 + 3 + 4 over five.
    seen = [0.0, 0.5 * (ANSWER + SUBTASK_TOKENS), 2.0 * (2 * ANSWER + SUBTASK_TOKENS)]
    tokens = [prompt + seen[0] + ANSWER / 2, prompt + seen[1] + ANSWER, prompt + seen[2] + 2 * ANSWER]
    assert cost.tokens == pytest.approx([24 * tokens[0], 72 * tokens[1], 120 * tokens[2]])


def test_the_highest_estimate_sends_every_step_to_the_most_expensive_worker() -> None:
    costly, cheap = worker("costly", price={"input": 2.0, "output": 30.0}), worker("cheap")
    alone, both = stages(costly).estimate_training(), stages(costly, cheap).estimate_training()
    assert both.usd.high == pytest.approx(alone.usd.high)
    assert both.usd.expected < alone.usd.expected


def test_evaluation_and_every_worker_alone() -> None:
    both = stages(worker("a"), worker("b"))
    assert both.estimate_baselines().calls == Range.exactly(10 * 4 * 2)
    assert both.estimate_evaluation().calls == Range(40, 120, 200)
    taught = stages(worker("a"), worker("b"), cold_start={})
    assert taught.estimate_evaluation().calls == Range(80, 240, 400)


def test_a_vote_takes_from_as_many_workflows_as_must_agree_to_all_that_may_vote() -> None:
    once = stages(worker("a"), worker("b"))
    voted = stages(worker("a"), worker("b"), evaluation={"repeats": 4, "vote": {"workflows": 5, "agree": 3}})
    assert voted.estimate_evaluation().calls == once.estimate_evaluation().calls.times(Range(3, 4, 5))
    assert voted.estimate_evaluation().usd == pytest.approx(once.estimate_evaluation().usd.times(Range(3, 4, 5)))
    assert "up to 5 workflows each" in voted.estimate_evaluation().calls_formula
    assert (voted.estimate_training(), voted.estimate_baselines()) == (
        once.estimate_training(),
        once.estimate_baselines(),
    )


def test_without_baselines_the_best_worker_alone_is_counted() -> None:
    """The promotion gate needs its answers; which worker it is follows from what is precached."""
    workers = worker("a"), worker("b", price={"input": 3.0, "output": 30.0})
    none = stages(*workers, evaluation={"repeats": 4, "baselines": []}).estimate_baselines()
    cheap, costly = (stages(each, evaluation={"repeats": 4}).estimate_baselines() for each in workers)
    assert (none.name, none.calls) == ("best worker alone", Range.exactly(10 * 4))
    assert none.usd == pytest.approx((cheap.usd.low, 2 * cheap.usd.expected, costly.usd.high))


def test_stored_results_are_not_counted() -> None:
    scratch = {"policy": {"kind": "scratch"}, "cold_start": {"attempts": 3}}
    every = [{(name, "math500"): 0.0 for name in "ab"}] * 2
    done = RemainingShares(*every, cold_start=0.0, training=0.0, evaluation={"math500": 0.0})
    half = RemainingShares({("a", "math500"): 0.0}, training=0.5, evaluation={"math500": 0.5})
    workers = worker("a"), worker("b")
    whole, nothing, some = (stages(*workers, left=left, **scratch) for left in (None, done, half))
    none = add_costs(nothing.estimate_all())
    assert (none.calls, none.tokens, none.usd, none.worker_s) == (Range.exactly(0.0),) * 4
    assert some.estimate_precaching().calls == whole.estimate_precaching().calls.times(0.5)
    assert some.estimate_training().usd == pytest.approx(whole.estimate_training().usd.times(0.5))
    assert some.estimate_evaluation().usd == pytest.approx(whole.estimate_evaluation().usd.times(0.5))
    assert (some.estimate_cold_start(), some.estimate_baselines()) == (
        whole.estimate_cold_start(),
        whole.estimate_baselines(),
    )


def test_an_evaluation_is_priced_on_its_own_pool() -> None:
    """Answers of up to 400 tokens in training and 830 (and a costlier worker) in evaluation; measurements are of the
    first pool."""
    own = Pool.model_validate({"name": "p", "workers": [worker(max_tokens=400)]})
    other = Pool.model_validate({"name": "q", "workers": [worker(price={"input": 1.0, "output": 20.0})]})
    evaluation = {"repeats": 4, "pool": "q", "baselines": ["five_context", "best_static"]}
    setup = Setup(Workspace(Path("/nowhere")), recipe_of(evaluation=evaluation), own, {"q": other})
    both = StageEstimator(setup, KNOWN, {"math500": 10}, MeasuredUsage.from_rows([row("w", 300, 2.0)]))
    here = stages(worker(max_tokens=400), rows=[row("w", 300, 2.0)], evaluation={**evaluation, "pool": None})
    there = stages(worker(price={"input": 1.0, "output": 20.0}), evaluation={**evaluation, "pool": None})
    assert both.estimate_evaluation() == there.estimate_evaluation()
    assert (both.estimate_precaching(), both.estimate_training()) == (
        here.estimate_precaching(),
        here.estimate_training(),
    )
    learnt = BASELINES["best_static"]
    assert isinstance(learnt, WorkflowBaseline)
    calls = learnt.learning_calls(1)  # of the mix, which the pool of the training answers
    asked_here = here.estimate_baselines().usd.expected, there.estimate_baselines().usd.expected
    on_mix = [
        calls * stage.estimate_precaching().usd.expected / stage.estimate_precaching().calls.expected
        for stage in (here, there)
    ]
    assert both.estimate_baselines().usd.expected == pytest.approx(asked_here[1] - on_mix[1] + on_mix[0])
    assert asked_here[0] < both.estimate_baselines().usd.expected < asked_here[1]


def test_baselines_that_call_workers_are_counted_if_a_recipe_names_them() -> None:
    def of(*names: str) -> Cost:
        named = {"repeats": 4, "baselines": names}
        return stages(
            worker("a"), worker("b", price={"input": 3.0, "output": 30.0}), evaluation=named
        ).estimate_baselines()

    alone, five = of("oracle"), of("oracle", "five_context")
    assert (alone.name, five.name) == ("every worker alone", "baselines")
    assert five.calls == alone.calls.plus(Range.exactly(10 * 4 * 5))
    assert "5 × context (5)" in five.calls_formula
    # Of 0 + 1 + 2 + 3 + 4 earlier answers over five calls: none, half, all.
    prompt = 100 + FORMAT_TOKENS
    prompts = [prompt, prompt + ANSWER + SUBTASK_TOKENS, prompt + 2 * (2 * ANSWER + SUBTASK_TOKENS)]
    answers = [0.5 * ANSWER, ANSWER, 2 * ANSWER]
    assert [five.tokens[i] - alone.tokens[i] for i in range(3)] == pytest.approx(
        [200 * (prompts[i] + answers[i]) for i in range(3)]
    )
    # All calls to the cheaper worker, equally to both, all to the costlier one.
    prices = [1e-6, 2e-6, 3e-6]
    assert [five.usd[i] - alone.usd[i] for i in range(3)] == pytest.approx(
        [200 * (prompts[i] + 10 * answers[i]) * prices[i] for i in range(3)]
    )


def test_a_baselines_calls_on_the_mix_are_counted_too() -> None:
    named = {"repeats": 4, "baselines": ["best_static"]}
    entry = BASELINES["best_static"]
    assert isinstance(entry, WorkflowBaseline)
    cost = stages(worker("a"), worker("b"), evaluation=named).estimate_baselines()
    assert cost.calls == pytest.approx(Range.exactly(40 + 40 * entry.calls_per_question(2) + entry.learning_calls(2)))
    assert f"best static (5, and {entry.learning_calls(2):,.0f} to the mix)" in cost.calls_formula


def test_a_stage_in_rounds_asks_for_half_of_its_rollouts_at_least() -> None:
    assert stages().estimate_recursive() is None
    rounds = stages(recursive={"steps": 5, "limits": {"rounds": 1, "calls_ratio": 1.5}})
    training = rounds.estimate_recursive()
    assert training is not None
    assert training.calls == pytest.approx([0.5 * 40, 0.75 * 40 * 3, 40 * 5])
    assert rounds.estimate_evaluation().calls == pytest.approx([40, 120 * 1.25, 200 * 1.5])
    assert training in rounds.estimate_all()
    # Three steps per workflow; half of the later rounds also read the previous answer.
    shown = training.tokens.expected - 0.75 * 40 * 3 * stages().estimate_training().tokens.expected / 72
    assert shown == pytest.approx(0.25 * 40 * 3 * 0.5 * (ANSWER + SUBTASK_TOKENS))
    alone = stages().estimate_training()
    assert training.tokens.low == pytest.approx(20 * alone.tokens.low / 24)  # no call is repeated
    kept = stages(recursive={"limits": {"rounds": 0}})
    assert kept.estimate_evaluation().calls == stages().estimate_evaluation().calls


def test_a_night_evaluates_each_question_once_and_stores_no_score() -> None:
    """Also for a scratch policy, whose evaluation repeats calls; only first rounds."""
    scratch = {"policy": {"kind": "scratch"}, "cold_start": {}, "recursive": {"limits": {"rounds": 1}}}
    night = stages(**scratch).estimate_nightly_evaluation()
    once = stages(evaluation={"repeats": 1}).estimate_evaluation()
    assert (night.calls, night.usd, night.calls_formula) == (once.calls, once.usd, "10 questions")


def test_one_policy_that_goes_on_in_rounds_is_not_half_of_two() -> None:
    both = stages(cold_start={}, recursive={"limits": {"rounds": 1, "calls_ratio": 1.5}})
    assert both.estimate_evaluation().calls == pytest.approx([80, 120 * 2.25, 200 * 2.5])
    assert both.estimate_evaluation(policies=1).calls == pytest.approx([40, 120 * 1.25, 200 * 1.5])


def test_a_cold_start_calls_workers_if_it_tries_workflows() -> None:
    untried = stages(cold_start={}).estimate_cold_start()
    assert untried is not None and untried.calls == Range.exactly(0.0)
    tried = stages(cold_start={"attempts": 3}).estimate_cold_start()
    assert tried is not None
    assert tried.calls == pytest.approx([0.1 * 20 * 6, 0.5 * 20 * 6 * 3, 20 * 6 * 5])


def test_measured_values_have_no_range() -> None:
    cost = stages(rows=[row("w", 200, 3.0), row("w", 400, 5.0)]).estimate_precaching()
    assert cost.usd == pytest.approx(Range.exactly(40 * (50e-6 + 300e-5)))
    assert cost.worker_s == pytest.approx(Range.exactly(40 * 4.0 / 10))
    others = stages(rows=[row("stranger", 200, 3.0)]).estimate_precaching()
    assert others.usd == stages().estimate_precaching().usd


def test_a_worker_that_was_never_measured_answers_as_long_as_the_others_of_its_kind() -> None:
    """The same assumption as in the estimate with the prompts at hand."""
    pair = stages(worker("known"), worker("new"), rows=[row("known", 200, 3.0)]).estimate_precaching()
    new = pair.workers["new"]
    assert new.usd == pytest.approx([40 * ((100 + FORMAT_TOKENS) * 1e-6 + part * 200 * 1e-5) for part in (0.5, 1, 2)])
    assert (pair.measured_calls, pair.similar_calls) == (40, 40)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ({"requests_per_minute": 1}, [40 * 60] * 3),
        ({"tokens_per_minute": 100}, [40 * tokens * 0.6 for tokens in (535, 950, 1780)]),
    ],
)
def test_a_providers_limits_are_waited_for(limit: dict[str, int], seconds: list[float]) -> None:
    cost = stages(worker("slow", **limit), worker("fast")).estimate_precaching()
    assert cost.worker_s == pytest.approx(seconds)
    assert cost.limited_by == "slow"


def test_calls_to_quick_workers_wait_for_the_cpu_of_the_process_that_makes_them() -> None:
    quick = {"concurrency": 10_000}
    cost = stages(worker("one", **quick), worker("two", **quick)).estimate_precaching()
    assert cost.worker_s == pytest.approx([2 * 40 * CALL_CPU_S] * 3)
    assert cost.limited_by == "the CPU of one process"
    tool = worker("t", model="local/t", tags=["tool"], latency_s=0.5)
    assert stages(tool).estimate_precaching().worker_s == Range.exactly(0), (
        "a tool of this process is no call of LiteLLM"
    )


def test_a_training_step_waits_for_a_whole_workflow() -> None:
    cost = stages(worker(concurrency=1000)).estimate_training()
    chain = 3 * 3 * (FIRST_TOKEN_S + ANSWER / TOKENS_PER_SECOND[1])
    assert cost.worker_s.expected == pytest.approx(chain)
    assert cost.limited_by == "a workflow's length"


def test_tools_answer_at_once_and_a_small_policy_repeats_itself() -> None:
    scratch = {"policy": {"kind": "scratch"}, "cold_start": {}}
    tool = worker("t", model="local/t", tags=["tool"], latency_s=0.5)
    small, large = stages(tool, **scratch).estimate_training(), stages(tool).estimate_training()
    assert small.worker_s == Range.exactly(0)
    assert small.usd == pytest.approx(large.usd.times(PAID_SHARE[TRAINING]))
    assert small.usd_with_repeats == pytest.approx(large.usd), "what all responses cost, had each been paid for"


def test_the_papers_published_cost_of_a_question_is_met_within_a_factor_of_two() -> None:
    """Three steps by the paper's pool, with assumed answer lengths."""
    recipe, pool = load_recipe(CONFIG, "paper"), load_pool(CONFIG, "paper")
    setup = Setup(Workspace(CONFIG.parent), recipe, pool)
    training = StageEstimator(
        setup, estimate_lengths(setup)._replace(question=150.0), {}, MeasuredUsage()
    ).estimate_training()
    cost = training.usd_with_repeats.times(1 / (recipe.grpo.steps * recipe.grpo.rollouts_per_step))
    assert PUBLISHED_USD / 2 < cost.expected < PUBLISHED_USD * 2
    assert cost.low < PUBLISHED_USD < cost.high


def test_the_embedded_workers_cost_the_planned_amount() -> None:
    """Precache the quickstart by calling its workers on some questions of each benchmark."""
    setup = Setup.read(Workspace(CONFIG.parent), "quickstart")
    benchmarks, spent = training_benchmarks(), 0.0
    problems = [problem for name in benchmarks for problem in generate_problems(name, "train", 10, 1)]
    for problem, worker in product(problems, setup.pool.workers):
        messages = build_solo_messages(problem)
        if worker.name in TOOLS:
            answer = TOOLS[worker.name](parse_task(messages))
        else:
            answer = respond(worker.name, messages, sample=0, temperature=worker.temperature or 1.0).text
        assert worker.price is not None
        spent += worker.price.compute_usd(
            Usage(sum(count_tokens(message["content"]) for message in messages), count_tokens(answer))
        )
    cost = StageEstimator(setup, estimate_lengths(setup), {}, MeasuredUsage()).estimate_precaching()
    scaled = spent / (len(problems) * len(setup.pool.workers)) * cost.calls.expected
    assert cost.usd.low < scaled < cost.usd.high


def test_published_rows_caps_and_files_say_how_many_questions(tmp_path: Path) -> None:
    named = {
        "math500": {"source": "hub"}, "mmlu": {"source": "hub", "test": 50}, "rlpr": {"source": "embedded", "test": 7},
        "aime25": {"source": "file", "test_file": "aime.jsonl"}, "bigcodebench": {"source": "file", "test_file": "no"},
        "gpqa_diamond": {"source": "embedded"},
    }  # fmt: skip
    lines = [json.dumps({"id": str(number), "question": "?", "answer": "1"}) for number in range(12)]
    (tmp_path / "aime.jsonl").write_text("\n".join(lines), encoding="utf-8")
    counted = count_test_questions(Workspace(tmp_path), recipe_of(benchmarks=named))
    assert counted == {
        "math500": 100, "mmlu": 50, "rlpr": 7, "aime25": 12, "bigcodebench": None, "gpqa_diamond": 100,
    }  # fmt: skip


def test_the_quickstarts_plan_is_within_a_quarter_of_its_ledger(tmp_path: Path) -> None:
    """Of what `make run` spent; `test_lifecycle` compares a small run's plan with its own ledger."""
    figures = yaml.safe_load((CONFIG.parent / "docs" / "reference" / "figures.yaml").read_text(encoding="utf-8"))
    spent = figures["run_spent_usd"]["value"]
    setup = Setup(Workspace(tmp_path), load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart"))
    planned = add_costs(make_plan(setup, MACHINE, {}).stages).usd
    assert planned.expected == pytest.approx(float(spent), rel=0.25)
    assert planned.low < float(spent) < planned.high


@pytest.mark.parametrize("name", sorted(file.stem for file in (CONFIG / "recipes").glob("*.yaml")))
def test_every_recipe_is_priced_from_low_to_high(name: str) -> None:
    plan = make_plan(Setup.read(Workspace(CONFIG.parent), name), NOTHING)
    every: list[Cost] = [*plan.stages, add_costs(plan.stages)]
    for stage in every:
        for span in (stage.calls, stage.tokens, stage.usd, stage.worker_s):
            assert 0 <= span.low <= span.expected <= span.high
    assert every[-1].usd.high == pytest.approx(sum(stage.usd.high for stage in plan.stages))
    names = {stage.name for stage in plan.stages}
    assert names >= {"precaching", "evaluation"}
    assert ("training" in names) == plan.recipe.is_trained
    assert len(names & {"every worker alone", "best worker alone", "baselines"}) == 1
    assert training_benchmarks(plan.recipe.benchmarks)


def test_hours_of_the_policy_are_an_arithmetic_where_it_is_large(paper: Sound) -> None:
    plan = paper.plan()
    assert plan.known_shape is not None
    shape = plan.known_shape.shape
    two = estimate_training_s(plan.setup, shape, plan.lengths, MACHINE)
    one = estimate_training_s(plan.setup, shape, plan.lengths, replace(MACHINE, gpus=MACHINE.gpus[:1]))
    assert two is not None and one is not None
    assert one == pytest.approx(two.times(2))
    assert 0 < two.low < two.expected < two.high
    assert estimate_training_s(plan.setup, shape, plan.lengths, NOTHING) is None
    older = Machine(parse_gpus("1x80"), 1, 1, has_bubblewrap=True)
    older = replace(older, gpus=(older.gpus[0]._replace(name="NVIDIA A100 80GB PCIe"),))
    slow = estimate_training_s(plan.setup, shape, plan.lengths, older)
    assert slow is not None and slow.expected > one.expected
    many, few = (estimate_evaluation_s(plan.setup, shape, MACHINE, Range.exactly(count)) for count in (2000, 1000))
    assert many is not None and few is not None
    assert many == pytest.approx(few.times(2))


def test_the_hours_of_an_evaluation_depend_on_its_writer(paper: Sound) -> None:
    def hours(writer: str, workflows: int = 1, **changes: Any) -> Range | None:
        vote = {"workflows": workflows, "agree": (workflows + 1) // 2}
        plan = paper.plan(recipe={"evaluation": {"writer": writer, "vote": vote}}, **changes)
        return next(stage.policy_s for stage in plan.stages if stage.name == "evaluation")

    slow, fast = hours("transformers"), hours("vllm")
    assert slow is not None and fast is not None
    assert slow.expected == pytest.approx(2 * fast.expected * 2500 / 300), "transformers uses one of two GPUs"
    assert hours("vllm", machine=NOTHING) is None
    elsewhere = hours("http://127.0.0.1:8000", machine=NOTHING)
    assert elsewhere == pytest.approx(fast.times(2)), "a server is assumed to have one GPU of its own"
    voted = hours("vllm", workflows=5)
    assert voted == pytest.approx(fast.times(Range(3, 4, 5))), "each workflow that votes is written"
