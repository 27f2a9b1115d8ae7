"""Cold-start workflows: guided by the precached successes, valid, the same for the same seed, explored; each problem
has its own, though ids are unique only within a benchmark.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ops.config import Pool, Prompting, Setup, Worker
from ops.core.errors import ConfigError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.synthetic.problems import generate_problems
from ops.training.cold_start.examples import sample_examples
from ops.training.cold_start.exploration import WorkflowTally, explore_workflows
from ops.training.cold_start.sampling import PrecachedResponse, Subtask, WorkflowSampler, load_subtasks
from ops.training.rewards.reward import build_reward_function
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow, parse_workflow
from ops.workflow.team import Team
from tests.builders import Answering, make_response
from tests.unit.training.plans import QUICK, ROOT, write_mix

OFFERED = ("b", "a", "c")
SUBTASKS = (Subtask("Look up the density.", "density"), Subtask("Write the program.", "program"))
PROBLEMS = generate_problems("mmlu", "train", 20, 1)
PROBLEM = Problem("p", "mmlu", "mmlu", "train", "Why?", "A", "choice", choices=("x", "y"))


def sampler(
    responses: Sequence[PrecachedResponse] = (),
    offered: Sequence[str] = OFFERED,
    subtasks: Any = SUBTASKS,
    **other: Any,
) -> WorkflowSampler:
    settings = {"success_share": 0.7, "max_steps": 5, "seed": 1} | other
    return WorkflowSampler(offered, responses, subtasks, **settings)


def workflows(made: WorkflowSampler, count: int) -> list[Workflow]:
    return [workflow for _, workflow in islice(made.sample_endlessly(PROBLEMS), count)]


def responses(correct: bool = False) -> list[PrecachedResponse]:
    return [
        PrecachedResponse(worker, problem.key, "s", "nothing", correct and worker == "a")
        for worker in OFFERED
        for problem in PROBLEMS
    ]


@pytest.mark.parametrize(
    ("correct", "least", "most"),
    [
        pytest.param(True, 0.76, 0.84, id="0.7 by guidance, a third of the rest by chance"),
        pytest.param(False, 0.29, 0.38, id="by chance"),
    ],
)
def test_the_last_worker_is_one_that_succeeded_in_the_share_asked_for(correct: bool, least: float, most: float) -> None:
    drawn = workflows(sampler(responses(correct)), 3000)
    assert least < sum(workflow.steps[-1].worker == OFFERED.index("a") for workflow in drawn) / len(drawn) < most


def test_every_workflow_is_valid_and_the_seed_decides() -> None:
    drawn, again, other = (workflows(sampler(responses(correct=True), seed=seed), 300) for seed in (1, 1, 2))
    for workflow in drawn:
        assert parse_workflow(workflow.render(), offered=len(OFFERED), max_steps=5).workflow == workflow
    assert drawn == again != other


def test_a_workers_subtasks_follow_the_words_of_its_responses() -> None:
    density = [PrecachedResponse("c", p.key, "s", "I hold the density.", False) for p in PROBLEMS]
    steps = [step for w in workflows(sampler([*responses()[: len(PROBLEMS)], *density]), 3000) for step in w.steps]
    shown = {name: [s.subtask for s in steps if s.worker == OFFERED.index(name)] for name in ("b", "c")}
    assert shown["c"].count("Look up the density.") > 0.5 * len(shown["c"])
    assert shown["b"].count("Look up the density.") < 0.05 * len(shown["b"])
    assert set(shown["b"]) == {SOLVE_SUBTASK, *(subtask.text for subtask in SUBTASKS)}


def test_the_shipped_subtasks_load_and_a_broken_file_is_named(tmp_path: Path) -> None:
    shipped = load_subtasks(ROOT / "data" / "cold_start" / "subtasks.yaml")
    assert len({subtask.text for subtask in shipped}) == len(shipped) > 20
    broken = tmp_path / "subtasks.yaml"
    broken.write_text("- {say: x}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"subtasks\.yaml.*about"):
        load_subtasks(broken)


def test_a_variation_is_a_workflow_that_differs_by_a_step() -> None:
    made = sampler(offered=["a", "b"], max_steps=3, seed=3)
    start = Workflow((Step(0, "Plan."), Step(1, "Solve.", "all"), Step(0, "Check.", "all")))
    varied = [made.vary_workflow(start, PROBLEM) for _ in range(300)]
    assert {len(workflow.steps) for workflow in varied} == {2, 3}  # there is no room for a fourth
    assert all(workflow.steps[0].access == "none" for workflow in varied)
    assert all(sum(a != b for a, b in zip(w.steps, start.steps, strict=False)) <= 3 for w in varied)
    longer = [made.vary_workflow(Workflow.single(1), PROBLEM) for _ in range(300)]
    assert {len(workflow.steps) for workflow in longer} == {1, 2}  # the last step cannot be removed
    pairs = [workflow.steps for workflow in longer if len(workflow.steps) == 2]
    assert any((first.worker, first.subtask) == (second.worker, second.subtask) for first, second in pairs)


def test_fine_grained_workflows_name_the_steps_that_they_see_and_variations_keep_them() -> None:
    made = sampler(responses(), access="fine_grained")
    drawn = workflows(made, 500)
    varied = [made.vary_workflow(workflow, PROBLEM) for workflow in drawn for _ in range(3)]
    for workflow in (*drawn, *varied):
        assert (
            parse_workflow(workflow.render(), offered=len(OFFERED), max_steps=5, access="fine_grained").workflow
            == workflow
        )
    later = [step.access for workflow in drawn for step in workflow.steps[2:]]
    some = sum(isinstance(access, tuple) for access in later)
    assert 0.3 < some / len(later) < 0.55  # half of the steps that see any step
    assert {access for workflow in drawn for access in (step.access for step in workflow.steps[:2])} == {"none", "all"}


def test_a_step_put_in_or_left_out_moves_what_the_others_see() -> None:
    made = sampler(offered=["a"], subtasks=(), access="fine_grained")
    start = Workflow((Step(0, "x"), Step(0, "y"), Step(0, "z", (1,))))
    varied = {made.vary_workflow(start, PROBLEM) for _ in range(500)}
    assert Workflow((Step(0, "y"), Step(0, "z", (0,)))) in varied  # x was removed
    assert Workflow((Step(0, "x"), Step(0, "z"))) in varied  # y was removed, so the step sees nothing
    assert Workflow((Step(0, "x"), Step(0, "x"), Step(0, "y"), Step(0, "z", (2,)))) in varied  # x was repeated


def test_without_subtasks_every_step_only_solves() -> None:
    drawn = workflows(sampler(responses(), subtasks=()), 200)
    assert {step.subtask for workflow in drawn for step in workflow.steps} == {SOLVE_SUBTASK}


SURE, LUCKY, SOMETIMES, NEVER = (Workflow.single(ordinal) for ordinal in range(4))
LONG = Workflow((Step(0, "Read."), Step(1, "Solve.", "all")))
MATH = ("math", "algebra")


@pytest.fixture
def tally() -> WorkflowTally:
    made = WorkflowTally()
    for workflow, tries, wins in ((SURE, 8, 8), (LUCKY, 1, 1), (SOMETIMES, 40, 20), (NEVER, 9, 0), (LONG, 1, 1)):
        for number in range(tries):
            made.record(MATH, workflow, number < wins)
    return made


def test_reliability_takes_more_than_one_lucky_try(tally: WorkflowTally) -> None:
    assert tally.reliability(MATH, SURE) > tally.reliability(MATH, LUCKY) > tally.reliability(MATH, SOMETIMES)
    assert tally.reliability(MATH, Workflow.single(9)) == 0.5  # never tried
    assert tally.rank_successful(MATH) == [SURE, LUCKY, LONG, SOMETIMES]  # ties go to the shorter one


def test_workflows_with_proven_success_are_drawn_most_often(tally: WorkflowTally) -> None:
    random = Random(1)
    drawn = Counter(tally.draw_promising(MATH, random) for _ in range(400))
    assert drawn[SURE] > 200
    assert drawn[SURE] > drawn[LUCKY] > drawn[SOMETIMES]
    assert drawn[NEVER] == 0
    assert tally.draw_promising(("math", "geometry"), random) is None


TOOLS = tuple(Worker(name=name, model=f"local/{name}") for name in ("adder", "atlas"))
SUM, CAPITAL = (
    Problem("7", "math500", "math", "train", "What is 3 + 4?", "7", "math", subject="sums"),
    Problem("7", "mmlu", "mmlu", "train", "Capital city?", "B", "choice", ("Rome", "Paris"), subject="capitals"),
)


def says(worker: Worker, _: Sequence[Message]) -> str:
    """Let each worker be right only on its own benchmark."""
    return "Answer: 7" if worker.name == "adder" else "Answer: B"


def team() -> Team:
    return Team(TOOLS, Answering(says), Prompting(style="compact", few_shots="none"))


def explored(problems: Sequence[Problem], made: WorkflowSampler, attempts: int, *progress: Any) -> dict[str, set[int]]:
    """Return the last workers of the workflows that succeeded on each problem."""
    found = asyncio.run(explore_workflows(problems, made, attempts, team(), *progress)).workflows
    return {key: {workflow.steps[-1].worker for workflow in each} for key, each in found.items()}


def test_exploration_keeps_successful_workflows_and_reuses_them_in_the_domain() -> None:
    problems = [replace(CAPITAL, id=f"p{i}", subject="s") for i in range(30)]
    wrong = [PrecachedResponse(worker.name, problem.key, "s", "", False) for worker in TOOLS for problem in problems]
    ticks: list[tuple[int, int]] = []
    made = sampler(wrong, offered=["adder", "atlas"], max_steps=2)
    found = explored(problems, made, 1, lambda done, total: ticks.append((done, total)))
    assert len(found) > 20  # half by guessing, most of the rest by a workflow that succeeded elsewhere
    assert set.union(*found.values()) == {1}
    assert ticks == sorted(ticks)
    assert ticks[-1] == (60, 60)
    known = next(problem for problem in problems if problem.key in found)
    made.add_explored({key: [Workflow.single(1)] for key in found})
    assert sum(made.sample_workflow(known).steps[-1].worker == 1 for _ in range(200)) > 140


def test_a_lucky_guess_is_not_an_sft_example() -> None:
    problems = [replace(CAPITAL, id=f"p{i}", choices=tuple("wxyz"), answer="ABCD"[i % 4]) for i in range(40)]
    precached = [PrecachedResponse("atlas", each.key, "s", "Answer: B", each.answer == "B") for each in problems]
    made = sampler(precached, offered=["atlas"], max_steps=2)
    assert not any(made.is_solved_alone(each) for each in problems)
    assert asyncio.run(explore_workflows(problems, made, 2, replace(team(), workers=TOOLS[1:]))).workflows == {}


def test_successful_workflows_are_reused_within_their_subject_first() -> None:
    """Each worker solves its own subject's problems, and neither is tried on the other's, though ids are the same."""
    problems = [replace(each, id=f"p{i}", domain="mmlu") for i in range(30) for each in (SUM, CAPITAL)]
    found = explored(problems, sampler(offered=["adder", "atlas"], max_steps=1), 4)
    assert found == {problem.key: {place % 2} for place, problem in enumerate(problems)}


def test_the_cold_start_teaches_both_problems_with_their_own_workers(tmp_path: Path) -> None:
    setup = Setup(Workspace(tmp_path), QUICK, Pool(name="t", workers=TOOLS))
    rows = [
        make_response(worker=worker, benchmark=each.benchmark, problem_id=each.id, score=float(each is solved))
        for worker, solved in (("adder", SUM), ("atlas", CAPITAL))
        for each in (SUM, CAPITAL)
    ]
    assert [row.problem_key for row in rows[:2]] == [SUM.key, CAPITAL.key] == ["math500/7", "mmlu/7"]
    write_mix(setup.workspace, [SUM, CAPITAL], rows)
    assert QUICK.cold_start is not None
    sure = QUICK.cold_start.model_copy(update={"success_share": 1.0, "attempts": 0})
    last_workers: dict[bool, set[int]] = {True: set(), False: set()}
    for example in asyncio.run(sample_examples(setup, team(), sure, 200)):
        workflow = parse_workflow(example["completion"][0]["content"], offered=2, max_steps=5).workflow
        assert workflow is not None
        last_workers["3 + 4" in example["prompt"][-1]["content"]].add(workflow.steps[-1].worker)
    assert last_workers == {True: {0}, False: {1}}


def test_training_rewards_an_answer_by_the_problem_that_was_asked() -> None:
    reward = build_reward_function({problem.key: problem for problem in (SUM, CAPITAL)}, team(), lambda _: None)
    adder = Workflow.single(0).render()
    rewards = asyncio.run(reward(completions=[adder, adder], problem=["math500/7", "mmlu/7"], epoch=[0]))  # type: ignore[arg-type]
    assert rewards == [1.0, 0.5]
