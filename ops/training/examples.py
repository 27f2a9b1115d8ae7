"""The cold start's lessons: prompts of the mix, each with a workflow drawn for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import TypedDict

from ops.benchmarks.store import read_problems
from ops.config import ColdStart, Setup
from ops.core.response import Message
from ops.core.rows import load_responses
from ops.training.exploration import explore
from ops.training.sampling import Precached, WorkflowSampler, load_subtasks
from ops.workflow.team import Team


class Example(TypedDict):
    """One (prompt, workflow) pair in TRL's conversational form."""

    prompt: list[Message]
    completion: list[Message]


async def sample_examples(
    setup: Setup,
    team: Team,
    settings: ColdStart,
    count: int,
    on_progress: Callable[[int, int, str], None] | None = None,
    held_out: Collection[str] = (),
) -> list[Example]:
    """`count` pairs for the problems of the mix but those of the keys `held_out`, deterministic in the recipe's seed.

    Raises `DataError` where the mix or the responses are missing, `OverBudget` and `ConfigError`.
    """
    workspace = setup.workspace
    mix = read_problems(workspace.data / "training_mix.jsonl")
    problems = {problem.key: problem for problem in mix if problem.key not in held_out}
    responses = [
        Precached(row.worker, row.problem_key, problems[row.problem_key].subject, row.response.text, row.score >= 1.0)
        for row in load_responses(workspace.data / "responses")
        if row.problem_key in problems and row.sample == 0
    ]
    sampler = WorkflowSampler(
        team.names,
        responses,
        load_subtasks(workspace.data / "cold_start" / "subtasks.yaml"),
        success_share=settings.success_share,
        max_steps=team.prompting.max_steps,
        seed=setup.recipe.seed,
    )
    if settings.attempts:

        def tried(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(done, total, "workflows tried")

        sampler.learn(await explore(list(problems.values()), sampler, settings.attempts, team, tried))
    pairs = itertools.islice(sampler.stream(list(problems.values())), count)
    return [
        {
            "prompt": team.messages(problem),
            "completion": [{"role": "assistant", "content": workflow.render()}],
        }
        for problem, workflow in pairs
    ]
