"""The cold start's lessons: prompts of the mix, each with a workflow drawn for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypedDict

from ops.benchmarks.store import read_problems
from ops.conductor.policy import PolicyCard
from ops.config import ColdStart, Setup
from ops.core.response import Message
from ops.core.rows import load_responses
from ops.training.exploration import explore
from ops.training.sampling import Precached, WorkflowSampler, load_subtasks
from ops.workers.types import Client
from ops.workflow.prompt import conductor_messages, load_few_shots


class Example(TypedDict):
    """One (prompt, workflow) pair in TRL's conversational form."""

    prompt: list[Message]
    completion: list[Message]


async def sample_examples(
    setup: Setup,
    card: PolicyCard,
    settings: ColdStart,
    count: int,
    client: Client,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> list[Example]:
    """`count` pairs for the problems of the mix, deterministic in the recipe's seed.

    Raises `DataError` where the mix or the responses are missing, `OverBudget` and `ConfigError`.
    """
    workspace, recipe = setup.workspace, setup.recipe
    problems = {problem.key: problem for problem in read_problems(workspace.data / "training_mix.jsonl")}
    responses = [
        Precached(row.worker, row.problem_key, problems[row.problem_key].subject, row.text, row.score >= 1.0)
        for row in load_responses(workspace.data / "responses")
        if row.problem_key in problems and row.sample == 0
    ]
    sampler = WorkflowSampler(
        card.offered,
        responses,
        load_subtasks(workspace.data / "cold_start" / "subtasks.yaml"),
        success_share=settings.success_share,
        max_steps=recipe.prompting.max_steps,
        seed=recipe.seed,
    )
    if settings.attempts:
        offered = [card.pool.worker(name) for name in card.offered]

        def tried(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(done, total, "workflows tried")

        found = await explore(
            list(problems.values()),
            sampler,
            settings.attempts,
            offered,
            client,
            recipe.prompting,
            tried,
            recipe.execution,
        )
        sampler.learn(found)
    shots = load_few_shots(workspace.data, recipe.prompting.few_shots)
    pairs = itertools.islice(sampler.stream(list(problems.values())), count)
    return [
        {
            "prompt": conductor_messages(problem, len(card.offered), recipe.prompting, shots, cards=card.cards),
            "completion": [{"role": "assistant", "content": workflow.render()}],
        }
        for problem, workflow in pairs
    ]
