"""The cold start's recursive rounds: their prompts, their completions, and no effect when they are turned off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.config import ColdStart, Recipe, Recursive, RoundLimits, Setup, Worker
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Message
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.examples import SftExample, sample_examples
from ops.training.cold_start.sampling import Precached, Subtask, WorkflowSampler
from ops.training.cold_start.validation import ColdStartRecord
from ops.workflow.grammar import Workflow, parse
from ops.workflow.team import NO_CLIENT, Team
from tests.builders import Answering
from tests.unit.training import taught
from tests.unit.training.taught import (
    POOL,
    PROBLEMS,
    QUESTIONS,
    RECIPE,
    RIGHT,
    WRONG,
    laid_out,
    said,
    solved,
    store,
)
from tests.unit.training.tiny import GRPO, SCRATCH


def clueless(worker: Worker, _: Sequence[Message]) -> str:
    return f"{worker.name} has no idea."


KEPT = Workflow(()).render()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return laid_out(tmp_path)


def sft_examples(setup: Setup, share: float, count: int = 600, attempts: int = 0, **other: object) -> list[SftExample]:
    return taught.sft_examples(setup, ColdStart(recursive_share=share, attempts=attempts), count, **other)


class Read(NamedTuple):
    """The parts of an SFT example of a recursive round."""

    problem: Problem
    tried: Workflow
    shown: str
    completion: str


def recursive(examples: Sequence[SftExample]) -> list[Read]:
    rounds = []
    for example in examples:
        if len(example["prompt"]) == 1:
            continue
        first, wrote, shown = (message["content"] for message in example["prompt"])
        tried = parse(wrote, offered=len(POOL.workers), max_steps=5).workflow
        assert tried is not None
        rounds.append(Read(QUESTIONS[first.splitlines()[0]], tried, shown, example["completion"][0]["content"]))
    return rounds


def test_the_default_gives_the_same_examples(setup: Setup) -> None:
    store(setup.workspace)
    responses = [
        Precached(POOL.names[worker], each.key, each.subject, said(worker, each), solved(worker, each))
        for worker in (RIGHT, WRONG)
        for each in PROBLEMS
    ]
    sampler = WorkflowSampler(
        POOL.names, responses, [Subtask("Count.", "answer")], success_share=0.7, max_steps=5, seed=RECIPE.seed
    )
    team = Team(POOL.workers, NO_CLIENT, RECIPE.prompting)
    expected = [
        (team.messages(problem), workflow.render()) for problem, workflow in islice(sampler.stream(PROBLEMS), 300)
    ]
    made = sft_examples(setup, 0.0, 300)
    assert [(each["prompt"], each["completion"][0]["content"]) for each in made] == expected


def test_a_round_shows_what_was_tried_and_keeps_what_was_right(setup: Setup) -> None:
    store(setup.workspace)
    examples = sft_examples(setup, 0.5)
    rounds = recursive(examples)
    assert 0.45 < len(rounds) / len(examples) < 0.55
    for each in rounds:
        worker = each.tried.steps[0].worker
        assert each.tried == Workflow.single(worker)
        assert each.shown == f"Response: {said(worker, each.problem)}\nAgain?"
        if solved(worker, each.problem):
            assert each.completion == KEPT
        else:
            another = parse(each.completion, offered=len(POOL.workers), max_steps=5).workflow
            assert another not in (None, each.tried)
    kept = [each for each in rounds if each.completion == KEPT]
    assert 0.43 < len(kept) / len(rounds) < 0.57
    assert len({each.problem.key for each in kept}) == len(PROBLEMS) / 2  # all that were answered
    assert sft_examples(setup, 0.5) == examples


def test_after_a_wrong_answer_what_was_tried_is_not_written_again(setup: Setup) -> None:
    """The excluded workflow is the tried one, not every workflow that is known to succeed on the problem."""
    store(setup.workspace, workers=(WRONG,))
    alone = Team([POOL.workers[WRONG]], NO_CLIENT, RECIPE.prompting.model_copy(update={"max_steps": 1}))
    settings = ColdStart(recursive_share=0.5)
    examples = asyncio.run(sample_examples(setup, alone, settings, 200))
    rounds = [(each["prompt"][1], each["completion"][0]) for each in examples if len(each["prompt"]) > 1]
    written = {(tried["content"], completion["content"]) for tried, completion in rounds}
    assert written == {(Workflow.single(0).render(), Workflow.single(0, "Count.").render())}


def test_examples_continue_from_explored_workflows_without_another_call(setup: Setup) -> None:
    store(setup.workspace, workers=(WRONG,))
    plain, asked = Answering(clueless), Answering(clueless)
    sft_examples(setup, 0.0, 10, attempts=1, client=plain)
    rounds = recursive(sft_examples(setup, 0.5, attempts=1, client=asked))
    assert len(asked.asked) == len(plain.asked) > 0
    explored = [each for each in rounds if len(each.tried.steps) > 1]
    assert len(explored) > len(rounds) / 4
    for each in explored:
        last = POOL.names[each.tried.steps[-1].worker]
        assert each.shown == f"Response: {last} has no idea.\nAgain?"
    assert all(each.completion != KEPT for each in rounds)  # no answer was right


def test_held_out_problems_are_in_no_round(setup: Setup) -> None:
    store(setup.workspace)
    unseen = {problem.key for problem in PROBLEMS[:30]}
    asked = Answering(clueless)
    rounds = recursive(sft_examples(setup, 0.5, attempts=1, client=asked, held_out=unseen))
    assert {each.problem.key for each in rounds} == {problem.key for problem in PROBLEMS[30:]}


def test_a_long_answer_is_shown_as_the_stage_shows_it(setup: Setup) -> None:
    store(setup.workspace, length=20)
    limited = RECIPE.model_copy(update={"recursive": Recursive(limits=RoundLimits(answer_tokens=16))})
    for share, recipe in ((0.5, limited), (0.5, RECIPE)):
        rounds = recursive(sft_examples(replace(setup, recipe=recipe), share, 50))
        assert rounds and all(("16 of" in each.shown) == (recipe is limited) for each in rounds)


def test_without_an_answer_to_go_on_from_the_setting_is_refused(setup: Setup) -> None:
    assert len(sft_examples(setup, 0.0, 10)) == 10
    with pytest.raises(DataError, match=r"has no answer to a problem of the mix.*Precache, or set it to 0"):
        sft_examples(setup, 0.25, 10)


@pytest.mark.slow
def test_a_round_that_leaves_no_room_for_a_completion_is_left_out(setup: Setup) -> None:
    store(setup.workspace, length=100)
    cold_start = ColdStart(steps=1, batch=64, recursive_share=0.5)
    values = RECIPE.model_dump() | {"name": "tiny", "policy": SCRATCH, "cold_start": cold_start, "grpo": GRPO}
    folder = make_base_policy(replace(setup, recipe=Recipe.model_validate(values)), client=NO_CLIENT)
    record = ColdStartRecord.read(folder)
    assert record is not None
    assert 16 < record.left_out < 48 and record.examples == 64 - record.left_out


def test_a_policys_key_depends_on_the_text_shown_in_rounds(setup: Setup) -> None:
    def folder(share: float, answer_tokens: int | None) -> Path:
        stage = Recursive(limits=RoundLimits(answer_tokens=answer_tokens))
        cold_start = ColdStart(recursive_share=share)
        recipe = RECIPE.model_copy(update={"cold_start": cold_start, "recursive": stage})
        return base_policy_folder(replace(setup, recipe=recipe))

    assert folder(0.0, 16) == folder(0.0, None)
    assert len({folder(0.0, 16), folder(0.1, 16), folder(0.25, 16), folder(0.25, 32), folder(0.25, None)}) == 5
