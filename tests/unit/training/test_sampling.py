"""Cold-start workflows: guided by the precached successes, valid, and the same for the same seed."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.synthetic.problems import generate
from ops.training.cold_start.sampling import Precached, Subtask, WorkflowSampler, load_subtasks
from ops.workflow.grammar import SOLVE, Step, Workflow, parse

OFFERED = ("b", "a", "c")
SUBTASKS = (Subtask("Look up the density.", "density"), Subtask("Write the program.", "program"))
PROBLEMS = generate("mmlu", "train", 20, 1)


def sampler(responses: list[Precached], seed: int = 1, share: float = 0.7) -> WorkflowSampler:
    return WorkflowSampler(OFFERED, responses, SUBTASKS, success_share=share, max_steps=5, seed=seed)


def responses(text: str = "nothing", correct: bool = False) -> list[Precached]:
    return [
        Precached(worker, problem.key, "s", text, correct and worker == "a")
        for worker in OFFERED
        for problem in PROBLEMS
    ]


def test_the_last_worker_is_one_that_succeeded_in_the_share_asked_for() -> None:
    drawn = [w for _, w in islice(sampler(responses(correct=True)).stream(PROBLEMS), 3000)]
    share = sum(workflow.steps[-1].worker == OFFERED.index("a") for workflow in drawn) / len(drawn)
    assert 0.76 < share < 0.84  # 0.7 by guidance, a third of the rest by chance
    free = [w for _, w in islice(sampler(responses()).stream(PROBLEMS), 3000)]
    share = sum(workflow.steps[-1].worker == OFFERED.index("a") for workflow in free) / len(free)
    assert 0.29 < share < 0.38


def test_every_workflow_is_valid_and_the_seed_decides() -> None:
    drawn = [w for _, w in islice(sampler(responses(correct=True)).stream(PROBLEMS), 300)]
    for workflow in drawn:
        assert parse(workflow.render(), offered=len(OFFERED), max_steps=5).workflow == workflow
    again = [w for _, w in islice(sampler(responses(correct=True)).stream(PROBLEMS), 300)]
    other = [w for _, w in islice(sampler(responses(correct=True), seed=2).stream(PROBLEMS), 300)]
    assert drawn == again != other


def test_a_workers_subtasks_follow_the_words_of_its_responses() -> None:
    rows = [
        *responses()[: len(PROBLEMS)],
        *[Precached("c", p.key, "s", "I hold the density.", False) for p in PROBLEMS],
    ]
    steps = [step for _, w in islice(sampler(rows).stream(PROBLEMS), 3000) for step in w.steps]
    shown = {name: [s.subtask for s in steps if s.worker == OFFERED.index(name)] for name in ("b", "c")}
    assert shown["c"].count("Look up the density.") > 0.5 * len(shown["c"])
    assert shown["b"].count("Look up the density.") < 0.05 * len(shown["b"])
    assert set(shown["b"]) == {SOLVE, *(subtask.say for subtask in SUBTASKS)}


def test_the_shipped_subtasks_load_and_a_broken_file_is_named(tmp_path: Path) -> None:
    shipped = load_subtasks(Workspace.find().root / "data" / "cold_start" / "subtasks.yaml")
    assert len({subtask.say for subtask in shipped}) == len(shipped) > 20
    broken = tmp_path / "subtasks.yaml"
    broken.write_text("- {say: x}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"subtasks\.yaml.*about"):
        load_subtasks(broken)


def test_a_variation_is_a_workflow_that_differs_by_a_step() -> None:
    problem = Problem("p", "mmlu", "mmlu", "train", "Why?", "A", "choice", choices=("x", "y"))
    sampler = WorkflowSampler(["a", "b"], [], SUBTASKS, success_share=0.5, max_steps=3, seed=3)
    start = Workflow((Step(0, "Plan."), Step(1, "Solve.", "all"), Step(0, "Check.", "all")))
    varied = [sampler.vary(start, problem) for _ in range(300)]
    assert {len(workflow.steps) for workflow in varied} == {2, 3}  # there is no room for a fourth
    assert all(workflow.steps[0].access == "none" for workflow in varied)
    assert all(sum(a != b for a, b in zip(w.steps, start.steps, strict=False)) <= 3 for w in varied)
    longer = [sampler.vary(Workflow.single(1), problem) for _ in range(300)]
    assert {len(workflow.steps) for workflow in longer} == {1, 2}  # the last step cannot be removed
    pairs = [workflow.steps for workflow in longer if len(workflow.steps) == 2]
    assert any((first.worker, first.subtask) == (second.worker, second.subtask) for first, second in pairs)


def test_fine_grained_workflows_name_the_steps_that_they_see_and_variations_keep_them() -> None:
    problem = Problem("p", "mmlu", "mmlu", "train", "Why?", "A", "choice", choices=("x", "y"))
    sampler = WorkflowSampler(
        OFFERED, responses(), SUBTASKS, success_share=0.7, max_steps=5, seed=1, access="fine_grained"
    )
    drawn = [workflow for _, workflow in islice(sampler.stream(PROBLEMS), 500)]
    varied = [sampler.vary(workflow, problem) for workflow in drawn for _ in range(3)]
    for workflow in (*drawn, *varied):
        assert parse(workflow.render(), offered=len(OFFERED), max_steps=5, access="fine_grained").workflow == workflow
    later = [step.access for workflow in drawn for step in workflow.steps[2:]]
    some = sum(isinstance(access, tuple) for access in later)
    assert 0.3 < some / len(later) < 0.55  # half of the steps that see any step
    assert {access for workflow in drawn for access in (step.access for step in workflow.steps[:2])} == {"none", "all"}


def test_a_step_put_in_or_left_out_moves_what_the_others_see() -> None:
    problem = Problem("p", "mmlu", "mmlu", "train", "Why?", "A", "choice")
    sampler = WorkflowSampler(["a"], [], (), success_share=0.5, max_steps=5, seed=1, access="fine_grained")
    start = Workflow((Step(0, "x"), Step(0, "y"), Step(0, "z", (1,))))
    varied = {sampler.vary(start, problem) for _ in range(500)}
    assert Workflow((Step(0, "y"), Step(0, "z", (0,)))) in varied  # x was removed
    assert Workflow((Step(0, "x"), Step(0, "z"))) in varied  # y was removed, so the step sees nothing
    assert Workflow((Step(0, "x"), Step(0, "x"), Step(0, "y"), Step(0, "z", (2,)))) in varied  # x was repeated


def test_without_subtasks_every_step_only_solves() -> None:
    sampler = WorkflowSampler(OFFERED, responses(), (), success_share=0.7, max_steps=5, seed=1)
    drawn = [workflow for _, workflow in islice(sampler.stream(PROBLEMS), 200)]
    assert {step.subtask for workflow in drawn for step in workflow.steps} == {SOLVE}
