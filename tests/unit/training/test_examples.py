"""SFT examples of the cold start: recursive rounds, worker subsets, and right workflows of a teacher."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Adaptive, ColdStart, Recipe, Recursive, RoundLimits, Setup, Teacher, Worker
from ops.config.loading import check_against_pool
from ops.core.errors import ConfigError, DataError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.planning.estimate import MeasuredUsage
from ops.planning.lengths import estimate_lengths
from ops.planning.stage_estimates import StageEstimator
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.synthetic.problems import generate_problems
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.examples import SftExample, sample_examples
from ops.training.cold_start.sampling import PrecachedResponse, Subtask, WorkflowSampler
from ops.training.cold_start.teacher import TeacherWorkflows, build_teacher_team, collect_teacher_workflows
from ops.training.cold_start.validation import ColdStartRecord
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workflow.grammar import Step, Workflow, parse_workflow
from ops.workflow.team import NO_CLIENT, Team
from tests.builders import Answering, make_response
from tests.unit.training.plans import POOL, QUICK, write_mix
from tests.unit.training.tiny import GRPO, SCRATCH

RIGHT, WRONG = 0, 1
"""Ordinals of a worker that is right on every second problem, and of one that is always wrong."""
PROBLEMS = generate_problems("math500", "train", 40, 1)
QUESTIONS = {problem.question: problem for problem in PROBLEMS}
WHOLE = tuple(range(len(POOL.workers)))
KEPT = Workflow(()).render()


def said(worker: int, problem: Problem) -> str:
    return f"{POOL.names[worker]} of {problem.id}: Answer: {problem.answer}"


def solved(worker: int, problem: Problem) -> bool:
    return worker == RIGHT and PROBLEMS.index(problem) % 2 == 0


def store(setup: Setup, workers: Sequence[int] = (RIGHT, WRONG), length: int = 1) -> None:
    """Write the precached answers of these workers, repeated."""
    rows = [
        make_response(
            worker=POOL.names[worker], benchmark=each.benchmark, problem_id=each.id,
            score=float(solved(worker, each)), text=" ".join([said(worker, each)] * length),
        )
        for worker in workers for each in PROBLEMS
    ]  # fmt: skip
    write_mix(setup.workspace, PROBLEMS, rows)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """Make a workspace with a mix and subtasks, without responses."""
    workspace = Workspace(tmp_path / "work")
    write_mix(workspace, PROBLEMS)
    return Setup(workspace, QUICK, POOL)


def changed(setup: Setup, **fields: Any) -> Setup:
    return replace(setup, recipe=setup.recipe.model_copy(update=fields))


def sft_examples(
    setup: Setup, settings: ColdStart, count: int = 600, client: Any = NO_CLIENT, **other: Any
) -> list[SftExample]:
    team = Team(POOL.workers, client, setup.recipe.prompting)
    return asyncio.run(sample_examples(setup, team, settings, count, **other))


def recursive_share(share: float, attempts: int = 0) -> ColdStart:
    return ColdStart(recursive_share=share, attempts=attempts)


def clueless(worker: Worker, _: Sequence[Message]) -> str:
    return f"{worker.name} has no idea."


class Read(NamedTuple):
    """The parts of an SFT example of a recursive round."""

    problem: Problem
    tried: Workflow
    shown: str
    completion: str


def rounds_of(examples: Sequence[SftExample]) -> list[Read]:
    rounds = []
    for example in examples:
        if len(example["prompt"]) == 1:
            continue
        first, wrote, shown = (message["content"] for message in example["prompt"])
        tried = parse_workflow(wrote, offered=len(POOL.workers), max_steps=5).workflow
        assert tried is not None
        rounds.append(Read(QUESTIONS[first.splitlines()[0]], tried, shown, example["completion"][0]["content"]))
    return rounds


def test_the_default_gives_the_same_examples(setup: Setup) -> None:
    store(setup)
    responses = [
        PrecachedResponse(POOL.names[worker], each.key, each.subject, said(worker, each), solved(worker, each))
        for worker in (RIGHT, WRONG)
        for each in PROBLEMS
    ]
    sampler = WorkflowSampler(
        POOL.names, responses, [Subtask("Count.", "answer")], success_share=0.7, max_steps=5, seed=QUICK.seed
    )
    team = Team(POOL.workers, NO_CLIENT, QUICK.prompting)
    expected = [
        (team.build_messages(problem), workflow.render())
        for problem, workflow in islice(sampler.sample_endlessly(PROBLEMS), 300)
    ]
    made = sft_examples(setup, recursive_share(0.0), 300)
    assert [(each["prompt"], each["completion"][0]["content"]) for each in made] == expected


def test_a_round_shows_what_was_tried_and_keeps_what_was_right(setup: Setup) -> None:
    store(setup)
    examples = sft_examples(setup, recursive_share(0.5))
    rounds = rounds_of(examples)
    assert 0.45 < len(rounds) / len(examples) < 0.55
    for each in rounds:
        worker = each.tried.steps[0].worker
        assert each.tried == Workflow.single(worker)
        assert each.shown == f"Response: {said(worker, each.problem)}\nAgain?"
        if solved(worker, each.problem):
            assert each.completion == KEPT
        else:
            another = parse_workflow(each.completion, offered=len(POOL.workers), max_steps=5).workflow
            assert another not in (None, each.tried)
    kept = [each for each in rounds if each.completion == KEPT]
    assert 0.43 < len(kept) / len(rounds) < 0.57
    assert len({each.problem.key for each in kept}) == len(PROBLEMS) / 2  # all that were answered
    assert sft_examples(setup, recursive_share(0.5)) == examples


def test_after_a_wrong_answer_what_was_tried_is_not_written_again(setup: Setup) -> None:
    """The excluded workflow is the tried one, not every workflow that is known to succeed on the problem."""
    store(setup, workers=(WRONG,))
    alone = Team([POOL.workers[WRONG]], NO_CLIENT, QUICK.prompting.model_copy(update={"max_steps": 1}))
    examples = asyncio.run(sample_examples(setup, alone, ColdStart(recursive_share=0.5), 200))
    rounds = [(each["prompt"][1], each["completion"][0]) for each in examples if len(each["prompt"]) > 1]
    written = {(tried["content"], completion["content"]) for tried, completion in rounds}
    assert written == {(Workflow.single(0).render(), Workflow.single(0, "Count.").render())}


def test_examples_continue_from_explored_workflows_without_another_call(setup: Setup) -> None:
    store(setup, workers=(WRONG,))
    plain, asked = Answering(clueless), Answering(clueless)
    sft_examples(setup, recursive_share(0.0, attempts=1), 10, plain)
    rounds = rounds_of(sft_examples(setup, recursive_share(0.5, attempts=1), client=asked))
    assert len(asked.asked) == len(plain.asked) > 0
    explored = [each for each in rounds if len(each.tried.steps) > 1]
    assert len(explored) > len(rounds) / 4
    for each in explored:
        last = POOL.names[each.tried.steps[-1].worker]
        assert each.shown == f"Response: {last} has no idea.\nAgain?"
    assert all(each.completion != KEPT for each in rounds)  # no answer was right


def test_held_out_problems_are_in_no_round(setup: Setup) -> None:
    store(setup)
    unseen = {problem.key for problem in PROBLEMS[:30]}
    made = sft_examples(setup, recursive_share(0.5, attempts=1), client=Answering(clueless), excluded_keys=unseen)
    assert {each.problem.key for each in rounds_of(made)} == {problem.key for problem in PROBLEMS[30:]}


@pytest.mark.parametrize("tokens", [16, None])
def test_a_long_answer_is_shown_as_the_stage_shows_it(setup: Setup, tokens: int | None) -> None:
    store(setup, length=20)
    stage = {"recursive": Recursive(limits=RoundLimits(answer_tokens=tokens))} if tokens else {}
    rounds = rounds_of(sft_examples(changed(setup, **stage), recursive_share(0.5), 50))
    assert rounds and {"16 of" in each.shown for each in rounds} == {tokens == 16}


def test_without_an_answer_to_go_on_from_the_setting_is_refused(setup: Setup) -> None:
    assert len(sft_examples(setup, recursive_share(0.0), 10)) == 10
    with pytest.raises(DataError, match=r"has no answer to a problem of the mix.*Precache, or set it to 0"):
        sft_examples(setup, recursive_share(0.25), 10)


@pytest.mark.slow
def test_a_round_that_leaves_no_room_for_a_completion_is_left_out(setup: Setup) -> None:
    store(setup, length=100)
    cold_start = ColdStart(steps=1, batch=64, recursive_share=0.5)
    values = QUICK.model_dump() | {"name": "tiny", "policy": SCRATCH, "cold_start": cold_start, "grpo": GRPO}
    folder = make_base_policy(replace(setup, recipe=Recipe.model_validate(values)), client=NO_CLIENT)
    record = ColdStartRecord.read(folder)
    assert record is not None
    assert 16 < record.left_out < 48 and record.examples == 64 - record.left_out


def test_a_policys_key_depends_on_the_text_shown_in_rounds(setup: Setup) -> None:
    def folder(share: float, answer_tokens: int | None) -> Path:
        stage = Recursive(limits=RoundLimits(answer_tokens=answer_tokens))
        return base_policy_folder(changed(setup, cold_start=recursive_share(share), recursive=stage))

    assert folder(0.0, 16) == folder(0.0, None)
    assert len({folder(0.0, 16), folder(0.1, 16), folder(0.25, 16), folder(0.25, 32), folder(0.25, None)}) == 5


def offered(example: SftExample) -> tuple[int, ...]:
    [line] = [line for line in example["prompt"][-1]["content"].splitlines() if line.startswith("Models: ")]
    return tuple(int(ordinal) for ordinal in line.removeprefix("Models: ").split())


@pytest.fixture
def subsets(setup: Setup) -> Setup:
    store(setup)
    return changed(setup, adaptive=Adaptive())


def test_an_example_names_only_offered_workers(subsets: Setup) -> None:
    examples = sft_examples(subsets, ColdStart(parts_share=0.5))
    parts = [each for each in examples if offered(each) != WHOLE]
    assert 0.35 < len(parts) / len(examples) < 0.55  # half, minus those whose subset is the whole pool
    assert {len(offered(each)) for each in examples} == set(range(1, len(WHOLE) + 1))
    for each in examples:
        text = each["completion"][0]["content"]
        assert parse_workflow(text, offered=offered(each), max_steps=5).workflow is not None, text


def test_successful_workers_are_in_examples_only_if_offered(subsets: Setup) -> None:
    ends: dict[bool, list[bool]] = {True: [], False: []}
    for each in sft_examples(subsets, ColdStart(parts_share=1.0, success_share=1.0)):
        problem = QUESTIONS[each["prompt"][-1]["content"].splitlines()[0]]
        workflow = parse_workflow(each["completion"][0]["content"], offered=offered(each), max_steps=5).workflow
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
    rows = [PrecachedResponse(POOL.names[RIGHT], problem.key, problem.subject, "", True)]
    sampler = WorkflowSampler(POOL.names, rows, [Subtask("Count.", "x")], success_share=1.0, max_steps=5, seed=1)
    chains = [Workflow((Step(first, "Read."), Step(2, "Solve.", "all"))) for first in (3, 4, 5, 6, 7)]
    sampler.add_explored({problem.key: chains})
    assert {sampler.sample_workflow(problem) for _ in range(60)} == set(chains[:3])  # the most reliable ones
    assert {sampler.sample_workflow(problem, (2, 6, 7)) for _ in range(60)} == set(chains[3:])
    assert all(step.worker == 5 for _ in range(20) for step in sampler.sample_workflow(problem, (5,)).steps)


def test_a_policys_key_depends_on_its_subsets_and_their_draw(setup: Setup) -> None:
    def folder(share: float, **adaptive: Any) -> Path:
        cold_start = ColdStart(parts_share=share)
        return base_policy_folder(changed(setup, cold_start=cold_start, adaptive=Adaptive(**adaptive)))

    assert folder(0.0) == folder(0.0, smallest=2) == folder(0.0, steps=3)
    assert folder(0.5) == folder(0.5, steps=3)  # the length of the stage does not change the examples
    assert len({folder(0.0), folder(0.5), folder(0.25), folder(0.5, smallest=2), folder(0.5, largest=4)}) == 5
    with pytest.raises(ValueError, match="parts_share needs an adaptive section"):
        Recipe.model_validate(QUICK.model_dump() | {"cold_start": {"parts_share": 0.5}})


def test_unknown_words_are_in_the_prompts_of_the_examples_alone(subsets: Setup) -> None:
    prompting = QUICK.prompting.model_copy(update={"unknown_words": 0.3})
    plain = sft_examples(subsets, ColdStart(parts_share=0.5), 60)
    unknown = sft_examples(changed(subsets, prompting=prompting), ColdStart(parts_share=0.5), 60)
    assert [each["completion"] for each in unknown] == [each["completion"] for each in plain]
    assert [offered(each) for each in unknown] == [offered(each) for each in plain]
    assert sum(one["prompt"] != other["prompt"] for one, other in zip(unknown, plain, strict=True)) > 40


STATIC = Teacher.model_validate({"policy": {"kind": "static", "workflow": [{"worker": "algebraist"}]}, "samples": 2})
PROMPTED = Teacher.model_validate({"policy": {"kind": "prompted", "worker": "algebraist"}})
CARD = PolicyCard(
    recipe=QUICK.name, pool=POOL, offered=POOL.names, prompting=QUICK.prompting, execution=QUICK.execution,
    max_completion_tokens=64,
)  # fmt: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[WorkerClient]:
    made = WorkerClient(ResponseCache(tmp_path / "cache"), Ledger(tmp_path / "ledger"), Account("run", "test", 1.0))
    yield made
    made.cache.close()
    made.ledger.close()


def with_teacher(setup: Setup, teacher: Teacher | None) -> Setup:
    assert QUICK.cold_start is not None
    return changed(setup, cold_start=QUICK.cold_start.model_copy(update={"teacher": teacher}))


def learned(setup: Setup, teacher: Teacher, client: WorkerClient) -> TeacherWorkflows:
    return asyncio.run(collect_teacher_workflows(setup, CARD, teacher, PROBLEMS, client))


def test_right_workflows_are_kept_once_with_what_all_cost_and_become_examples(
    setup: Setup, client: WorkerClient
) -> None:
    found = learned(setup, STATIC, client)
    assert found.tried == 2 * len(PROBLEMS) and 0 < found.right < found.tried and found.usd > 0
    assert len(found.workflows) == found.right // 2, "an embedded tool answers alike each time"
    alone = Workflow.single(POOL.names.index("algebraist"))
    assert all(workflows == [alone] for workflows in found.workflows.values())
    store(setup)
    settings = ColdStart(success_share=1.0, attempts=0)
    for example in sft_examples(setup, settings, 400, teacher_workflows=found.workflows):
        if QUESTIONS[example["prompt"][-1]["content"].splitlines()[0]].key in found.workflows:
            assert parse_workflow(example["completion"][0]["content"], offered=len(POOL.names)).workflow == alone


def test_a_teacher_that_writes_no_workflow_teaches_nothing(setup: Setup, client: WorkerClient) -> None:
    found = learned(setup, PROMPTED, client)  # a tool that answers the question in place of writing a workflow
    assert (found.tried, found.right, found.workflows) == (len(PROBLEMS), 0, {})
    assert found.usd > 0, "its calls were paid for"


def test_the_teacher_reads_the_explained_grammar(setup: Setup) -> None:
    assert QUICK.prompting.style == "compact"
    [message] = build_teacher_team(setup, CARD, None).build_messages(PROBLEMS[0])  # type: ignore[arg-type]
    assert "access_list" in message["content"]


def test_a_teacher_is_part_of_the_policys_key_and_none_changes_no_key(setup: Setup) -> None:
    without = base_policy_folder(setup)
    assert base_policy_folder(with_teacher(setup, None)) == without
    keys = {base_policy_folder(with_teacher(setup, each)) for each in (STATIC, PROMPTED)}
    assert len(keys | {without}) == 3


def test_the_plan_counts_writing_and_the_teachers_workflows(setup: Setup) -> None:
    def cold_start(teacher: Teacher | None) -> tuple[float, float]:
        asked = with_teacher(setup, teacher)
        cost = StageEstimator(asked, estimate_lengths(asked), {}, MeasuredUsage()).estimate_cold_start()
        assert cost is not None
        return cost.calls.low, cost.usd.expected

    (none, _), (prompted, usd), (static, _) = (cold_start(each) for each in (None, PROMPTED, STATIC))
    places = 4 * QUICK.curation.per_domain
    assert prompted - none >= 2 * places * 0.5, "one call writes, one works; equal ones are paid once"
    assert usd > 0 and static > none


@pytest.mark.parametrize(("policy", "field"), [
    ({"kind": "prompted", "worker": "nobody"}, "cold_start.teacher.policy.worker"),
    ({"kind": "static", "workflow": [{"worker": "nobody"}]}, "cold_start.teacher.policy.workflow.0.worker"),
])  # fmt: skip
def test_a_teacher_that_names_an_unknown_worker_is_refused(setup: Setup, policy: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}.*nobody"):
        check_against_pool(with_teacher(setup, Teacher.model_validate({"policy": policy})).recipe, setup.pool)


def test_a_cold_start_learns_from_its_teacher(setup: Setup, client: WorkerClient) -> None:
    store(setup)
    cold_start = ColdStart(steps=1, batch=4, success_share=1.0, attempts=0, teacher=STATIC)
    folder = make_base_policy(changed(setup, cold_start=cold_start, policy=SCRATCH), client)
    assert PolicyCard.read(folder).recipe == QUICK.name
    asked = client.counts
    assert asked.live + asked.cached == 2 * len(PROBLEMS), "the teacher was asked about every problem"
