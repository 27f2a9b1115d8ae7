"""SFT examples on worker subsets: they name only offered workers, in workflows that work there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ops.config import Adaptive, ColdStart, Recipe, Setup
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.sampling import Precached, Subtask, WorkflowSampler
from ops.workflow.grammar import Step, Workflow, parse
from tests.unit.training.taught import POOL, PROBLEMS, QUESTIONS, RECIPE, RIGHT, laid_out, sft_examples, solved, store

WHOLE = tuple(range(len(POOL.workers)))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = laid_out(tmp_path)
    store(made.workspace)
    return replace(made, recipe=RECIPE.model_copy(update={"adaptive": Adaptive()}))


def offered(example: SftExample) -> tuple[int, ...]:
    [line] = [line for line in example["prompt"][-1]["content"].splitlines() if line.startswith("Models: ")]
    return tuple(int(ordinal) for ordinal in line.removeprefix("Models: ").split())


def test_an_example_names_only_offered_workers(setup: Setup) -> None:
    examples = sft_examples(setup, ColdStart(parts_share=0.5), 600)
    parts = [each for each in examples if offered(each) != WHOLE]
    assert 0.35 < len(parts) / len(examples) < 0.55  # half, minus those whose subset is the whole pool
    assert {len(offered(each)) for each in examples} == set(range(1, len(WHOLE) + 1))
    for each in examples:
        text = each["completion"][0]["content"]
        assert parse(text, offered=offered(each), max_steps=5).workflow is not None, text


def test_successful_workers_are_in_examples_only_if_offered(setup: Setup) -> None:
    examples = sft_examples(setup, ColdStart(parts_share=1.0, success_share=1.0), 600)
    ends: dict[bool, list[bool]] = {True: [], False: []}
    for each in examples:
        problem = QUESTIONS[each["prompt"][-1]["content"].splitlines()[0]]
        workflow = parse(each["completion"][0]["content"], offered=offered(each), max_steps=5).workflow
        assert workflow is not None
        if solved(RIGHT, problem) and len(offered(each)) > 1:
            ends[RIGHT in offered(each)].append(workflow.steps[-1].worker == RIGHT)
    assert len(ends[False]) > 50 and not any(ends[False])
    assert sum(ends[True]) > 0.6 * len(ends[True]) > 60  # more certain for a worker with higher accuracy on the subject


def test_a_renumbered_subset_renumbers_the_workflow() -> None:
    workflow = Workflow((Step(4, "Read."), Step(2, "Solve.", "all"), Step(4, "Check.", "all")))
    assert [step.worker for step in workflow.renumbered((2, 7, 4)).steps] == [2, 0, 2]
    assert workflow.renumbered(range(5)) == workflow
    with pytest.raises(ValueError):
        workflow.renumbered((2, 7))


def test_tried_workflows_are_examples_only_if_all_their_workers_are_offered() -> None:
    problem = PROBLEMS[0]
    rows = [Precached(POOL.names[RIGHT], problem.key, problem.subject, "", True)]
    sampler = WorkflowSampler(POOL.names, rows, [Subtask("Count.", "x")], success_share=1.0, max_steps=5, seed=1)
    chains = [Workflow((Step(first, "Read."), Step(2, "Solve.", "all"))) for first in (3, 4, 5, 6, 7)]
    sampler.learn({problem.key: chains})
    assert {sampler.draw(problem) for _ in range(60)} == set(chains[:3])  # the most reliable ones
    assert {sampler.draw(problem, (2, 6, 7)) for _ in range(60)} == set(chains[3:])
    assert all(step.worker == 5 for _ in range(20) for step in sampler.draw(problem, (5,)).steps)


def test_a_policys_key_depends_on_its_subsets_and_their_draw(setup: Setup) -> None:
    def folder(share: float, **adaptive: object) -> Path:
        changed = {"cold_start": ColdStart(parts_share=share), "adaptive": Adaptive.model_validate(adaptive)}
        return base_policy_folder(replace(setup, recipe=RECIPE.model_copy(update=changed)))

    assert folder(0.0) == folder(0.0, smallest=2) == folder(0.0, steps=3)
    assert folder(0.5) == folder(0.5, steps=3)  # the length of the stage does not change the examples
    assert len({folder(0.0), folder(0.5), folder(0.25), folder(0.5, smallest=2), folder(0.5, largest=4)}) == 5
    values = RECIPE.model_dump() | {"cold_start": {"parts_share": 0.5}}
    with pytest.raises(ValueError, match="parts_share needs an adaptive section"):
        Recipe.model_validate(values)


def test_unknown_words_are_in_the_prompts_of_the_examples_alone(setup: Setup) -> None:
    prompting = RECIPE.prompting.model_copy(update={"unknown_words": 0.3})
    plain = sft_examples(setup, ColdStart(parts_share=0.5), 60)
    unknown = sft_examples(setup, ColdStart(parts_share=0.5), 60, prompting=prompting)
    assert [each["completion"] for each in unknown] == [each["completion"] for each in plain]
    assert [offered(each) for each in unknown] == [offered(each) for each in plain]
    assert sum(one["prompt"] != other["prompt"] for one, other in zip(unknown, plain, strict=True)) > 40
