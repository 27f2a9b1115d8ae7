"""Lengths of recursive rounds' prompts, compared with prompts that the stage builds; and their consequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import pytest

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import count_chat_tokens
from ops.config import Recipe, RoundLimits, ScratchPolicy, Setup
from ops.core.installation import resources_folder
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.planning.lengths import EXPECTED_COMPLETION_SHARE, TEMPLATE_TOKENS, TURN_TOKENS, TokenLengths, estimate_lengths
from ops.planning.memory import estimate_memory, evaluation_bytes
from ops.planning.recipe_plan import RecipePlan, make_plan
from ops.planning.requirements import find_missing
from ops.planning.speed import count_cold_start_tokens, estimate_rounds_s, estimate_training_s
from ops.precaching.precache import build_solo_messages
from ops.synthetic.generalists import respond
from ops.synthetic.problems import generate_problems
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS
from ops.training.cold_start.recursive_examples import KEEP_ANSWER
from ops.training.cold_start.supervised import build_scratch_model
from ops.workflow.answer_rounds import build_next_round_messages
from ops.workflow.grammar import Step, Workflow
from ops.workflow.prompt import load_few_shots
from ops.workflow.team import Team
from tests.unit.planning.conftest import NOTHING, Sound

PLAN = Workflow((Step(0, "Answer the question."), Step(1, "Check the answer.", "all")))
ROUNDS: dict[str, Any] = {"recursive": {"steps": 20}}


def setup(**changes: Any) -> Setup:
    read_ = Setup.read(Workspace(resources_folder()), "recursive")
    return replace(read_, recipe=Recipe.model_validate(read_.recipe.model_dump() | changes))


def usually_writing(setup: Setup, tokens: int) -> Setup:
    """Return a setup with completions of this mean number of tokens."""
    grpo = setup.recipe.grpo.model_copy(update={"max_completion_tokens": round(tokens / EXPECTED_COMPLETION_SHARE)})
    return replace(setup, recipe=setup.recipe.model_copy(update={"grpo": grpo}))


def answered(setup: Setup) -> list[tuple[Problem, ResponseRow]]:
    """The embedded workers' answers to some questions of each benchmark."""
    problems = [problem for name in training_benchmarks() for problem in generate_problems(name, "train", 5, 1)]
    made = []
    for problem, worker in product(problems, setup.pool.workers):
        messages = build_solo_messages(problem)
        if worker.name in TOOLS:
            text = TOOLS[worker.name](parse_task(messages))
        else:
            text = respond(worker.name, messages, sample=0, temperature=1.0).text
        response = Response(text, Usage(50, 50), 0.0, 1.0, "stop")
        made.append((problem, ResponseRow(worker.name, problem.benchmark, problem.id, 0, "ok", response, 1.0)))
    return made


def chats(setup: Setup, limits: RoundLimits) -> list[tuple[list[Message], list[Message]]]:
    """Return the prompt of a first round and of the next one, for each answer."""
    few_shots = load_few_shots(setup.workspace.data, setup.recipe.prompting.few_shots)
    team = Team(setup.pool.workers, prompting=setup.recipe.prompting, few_shots=few_shots)
    return [
        (
            team.build_messages(problem),
            build_next_round_messages(team, problem, PLAN.render(), row.response.text, limits),
        )
        for problem, row in answered(setup)
    ]


def counted(tokens: Callable[[Sequence[Message]], int], setup: Setup, limits: RoundLimits) -> tuple[list[int], float]:
    """Return the tokens of every recursive prompt, and the mean addition of such a round."""
    pairs = [(tokens(first), tokens(later)) for first, later in chats(setup, limits)]
    return [later for _, later in pairs], fmean(later - first for first, later in pairs)


def test_the_compact_prompts_of_a_scratch_policys_rounds_have_the_planned_length() -> None:
    recursive = setup()
    assert recursive.recipe.recursive is not None
    limits = recursive.recipe.recursive.limits
    examples: list[Any] = [
        {"prompt": prompt, "completion": [{"role": "assistant", "content": said.render()}]}
        for first, later in chats(recursive, limits)
        for prompt, said in ((first, PLAN), (later, KEEP_ANSWER))
    ]
    _, tokenizer = build_scratch_model(ScratchPolicy(), examples, 1)
    every, adds = counted(lambda chat: count_chat_tokens(tokenizer, chat), recursive, limits)
    written = len(tokenizer(PLAN.render()).input_ids)
    known = estimate_lengths(usually_writing(recursive, written), [row for _, row in answered(recursive)])
    # Somewhat longer, because a tokenizer trained on few texts knows their phrases.
    assert 1.0 < known.round_prompt / fmean(every) < 1.4
    assert 1.0 < (known.round_prompt - known.prompt) / adds < 1.5
    assert max(every) <= known.longest_round_prompt


@pytest.mark.parametrize("answer_tokens", [None, 16])
def test_the_full_prompts_of_a_language_models_rounds_have_the_planned_length(answer_tokens: int | None) -> None:
    """Counted by the tokenizer that cuts responses, which knows no template."""
    from litellm.litellm_core_utils.default_encoding import encoding

    shown = {"recursive": {"limits": {"answer_tokens": answer_tokens}}, "policy": {"kind": "pretrained", "model": "m"}}
    full = setup(**shown, prompting={"style": "full"})
    full = usually_writing(full, len(encoding.encode_ordinary(PLAN.render())))
    every, adds = counted(
        lambda chat: sum(len(encoding.encode_ordinary(message["content"])) for message in chat),
        full,
        RoundLimits(answer_tokens=answer_tokens),
    )
    known = estimate_lengths(full, [row for _, row in answered(full)])
    assert known.round_prompt - known.prompt - 2 * TURN_TOKENS == pytest.approx(adds, rel=0.2)
    assert known.round_prompt - TEMPLATE_TOKENS == pytest.approx(fmean(every), rel=0.2)
    assert max(every) <= known.longest_round_prompt


def test_without_rounds_there_are_none_and_a_limit_shortens_them() -> None:
    plain = setup(recursive=None, cold_start={"recursive_share": 0.0})
    assert (
        estimate_lengths(plain)[4:] == (0.0, 0)
        and estimate_lengths(plain).longest == estimate_lengths(plain).longest_prompt
    )
    cut, whole = (estimate_lengths(setup(recursive={"limits": {"answer_tokens": tokens}})) for tokens in (16, None))
    assert whole.longest_round_prompt - cut.longest_round_prompt > 4000
    taught = estimate_lengths(setup(recursive=None))
    assert taught.round_prompt > taught.prompt


def test_memory_is_that_of_the_longer_prompts(paper: Sound) -> None:
    """The paper's prompts, and those of its rounds: activations, and an evaluation by transformers."""
    without, with_rounds = paper.plan(), paper.plan(recipe=ROUNDS)
    before, after = without.workload, with_rounds.workload
    assert before is not None and after is not None and without.memory and with_rounds.memory
    assert after.prompt_tokens == with_rounds.lengths.longest_round_prompt > before.prompt_tokens
    assert after.rollouts_per_rank == before.rollouts_per_rank // 2  # each round is half of a step
    part = "activations, checkpointed" if after.checkpointing else "activations"
    assert (
        with_rounds.memory.part_gib(part)
        == estimate_memory(after, with_rounds.gpu_gib).part_gib(part)
        > without.memory.part_gib(part)
    )
    more = {"evaluation": {"writer": "transformers", "batch": 4}}
    longer = paper.plan(recipe=ROUNDS | more).evaluation_gib - paper.plan(recipe=more).evaluation_gib
    assert longer * (1 << 30) == pytest.approx(evaluation_bytes(after, 4) - evaluation_bytes(before, 4))


def test_the_context_must_have_room_for_a_round(paper: Sound) -> None:
    def named(plan: RecipePlan) -> list[tuple[str, bool]]:
        return [(each.remedy, each.refuses) for each in find_missing(plan) if each.what == "room for recursive rounds"]

    sizes = paper.plan(recipe=ROUNDS).lengths
    completion = paper.setup.recipe.grpo.max_completion_tokens

    def length(room: int) -> dict[str, Any]:
        return ROUNDS | {"grpo": {"vllm_max_model_length": room + completion}}

    assert named(paper.plan(recipe=ROUNDS)) == []
    assert named(paper.plan(recipe=length(sizes.longest_round_prompt))) == []
    [(remedy, refuses)] = named(paper.plan(recipe=length(sizes.longest_round_prompt - 1)))
    assert "vllm_max_model_length" in remedy and "answer_tokens" in remedy and not refuses
    [(_, refuses)] = named(paper.plan(recipe=length(int(sizes.round_prompt) - 1)))
    assert refuses
    assert named(paper.plan(recipe={"grpo": {"vllm_max_model_length": completion + 10}})) == []


def test_the_hours_count_both_prompts(paper: Sound) -> None:
    plan = paper.plan(recipe={"recursive": {"steps": paper.setup.recipe.grpo.steps}})
    assert plan.known_shape is not None
    shape, known = plan.known_shape.shape, plan.lengths
    between = known._replace(prompt=(known.prompt + known.round_prompt) / 2)
    rounds = estimate_rounds_s(plan.setup, shape, known, plan.machine)
    assert rounds == pytest.approx(estimate_training_s(plan.setup, shape, between, plan.machine))
    assert next(stage.policy_s for stage in plan.stages if stage.name == "training in rounds") == rounds
    assert estimate_rounds_s(plan.setup, shape, known, NOTHING) is None
    assert estimate_rounds_s(paper.setup, shape, known, plan.machine) is None


def test_a_cold_start_reads_its_share_of_recursive_rounds() -> None:
    settings = {"steps": 10, "batch": 8, "recursive_share": 0.25}
    known = TokenLengths(10.0, 100.0, 200, is_measured=True, round_prompt=300.0)
    tokens = count_cold_start_tokens(setup(cold_start=settings), known)
    plain = count_cold_start_tokens(setup(cold_start=settings | {"recursive_share": 0.0}), known)
    assert tokens is not None and plain is not None
    assert tokens.expected - plain.expected == pytest.approx(80 * 0.25 * 200)


def test_the_quickstarts_rounds_have_room() -> None:
    plan = make_plan(setup(), NOTHING)
    assert plan.workload is not None and plan.workload.prompt_tokens == plan.lengths.longest_round_prompt
    assert "room for recursive rounds" not in [each.what for each in find_missing(plan)]
