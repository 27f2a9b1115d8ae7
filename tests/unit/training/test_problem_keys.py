"""Ids are unique only within a benchmark: keys distinguish problems of several benchmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ops.benchmarks.store import write_problems
from ops.conductor.policy import PolicyCard
from ops.config import Pool, Prompting, Setup, Worker, load_recipe
from ops.core.problem import Problem
from ops.core.response import Message
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.training.cold_start.examples import sample_examples
from ops.training.cold_start.exploration import explore
from ops.training.cold_start.sampling import Subtask, WorkflowSampler
from ops.training.rewards.reward import reward_function
from ops.workflow.grammar import Workflow, parse
from ops.workflow.team import Team
from tests.builders import Answering, make_response

SUM = Problem("7", "math500", "math", "train", "What is 3 + 4?", "7", "math", subject="sums")
CAPITAL = Problem("7", "mmlu", "mmlu", "train", "Capital city?", "B", "choice", ("Rome", "Paris"), subject="capitals")
OFFERED = [Worker(name="adder", model="local/adder"), Worker(name="atlas", model="local/atlas")]


def says(worker: Worker, _: Sequence[Message]) -> str:
    """Let each worker be right only on its own benchmark."""
    return "Answer: 7" if worker.name == "adder" else "Answer: B"


def row(worker: str, problem: Problem, score: float) -> ResponseRow:
    return make_response(worker=worker, benchmark=problem.benchmark, problem_id=problem.id, text="x", score=score)


ROWS = [row("adder", SUM, 1.0), row("adder", CAPITAL, 0.0), row("atlas", SUM, 0.0), row("atlas", CAPITAL, 1.0)]


def test_a_key_names_benchmark_and_id() -> None:
    assert (SUM.key, CAPITAL.key) == ("math500/7", "mmlu/7")
    assert [one.problem_key for one in ROWS[:2]] == [SUM.key, CAPITAL.key]


def test_the_cold_start_teaches_both_problems_with_their_own_workers(project: Workspace) -> None:
    recipe = load_recipe(project.config, "quickstart")
    settings = recipe.cold_start
    assert settings is not None
    write_problems(project.data / "training_mix.jsonl", [SUM, CAPITAL])
    for worker in OFFERED:
        for benchmark in ("math500", "mmlu"):
            own = [one for one in ROWS if (one.worker, one.benchmark) == (worker.name, benchmark)]
            write_responses(own, response_file(project.data / "responses", worker.name, benchmark))
    card = PolicyCard(
        recipe="t", pool=Pool(name="t", workers=tuple(OFFERED)), offered=("adder", "atlas"),
        prompting=Prompting(style="compact", few_shots="none"), max_completion_tokens=64,
    )  # fmt: skip
    sure = settings.model_copy(update={"success_share": 1.0, "attempts": 0})
    team = card.team(card.pool, project.data, recipe.execution, Answering(says))
    examples = asyncio.run(sample_examples(Setup(project, recipe, card.pool), team, sure, 200))
    last_workers: dict[bool, set[int]] = {True: set(), False: set()}
    for example in examples:
        workflow = parse(example["completion"][0]["content"], offered=2, max_steps=5).workflow
        assert workflow is not None
        last_workers["3 + 4" in example["prompt"][-1]["content"]].add(workflow.steps[-1].worker)
    assert last_workers == {True: {0}, False: {1}}


def test_exploration_credits_each_problem_with_its_own_workflows() -> None:
    sampler = WorkflowSampler(("adder", "atlas"), [], (Subtask("x", "x"),), success_share=0.0, max_steps=5, seed=1)
    team = Team(OFFERED, Answering(says), Prompting(style="compact"))
    worked = asyncio.run(explore([SUM, CAPITAL], sampler, 12, team)).taught
    assert {key: {flow.steps[-1].worker for flow in flows} for key, flows in worked.items()} == {
        "math500/7": {0},
        "mmlu/7": {1},
    }


def test_training_rewards_an_answer_by_the_problem_that_was_asked() -> None:
    problems = {problem.key: problem for problem in (SUM, CAPITAL)}
    reward = reward_function(problems, Team(OFFERED, Answering(says), Prompting(style="compact")), lambda _: None)  # type: ignore[arg-type]
    adder = Workflow.single(0).render()
    rewards = asyncio.run(reward(completions=[adder, adder], problem=["math500/7", "mmlu/7"], epoch=[0]))  # type: ignore[arg-type]
    assert rewards == [1.0, 0.5]
