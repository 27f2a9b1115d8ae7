"""The SFT examples of the cold start: prompts of the training mix, each with a sampled workflow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import TypedDict

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import read_problems
from ops.config import ColdStart, RoundLimits, Setup
from ops.core.errors import DataError
from ops.core.messages import Message
from ops.training.cold_start.exploration import explore_workflows
from ops.training.cold_start.recursive_examples import sample_second_rounds, solo_rounds
from ops.training.cold_start.sampling import PrecachedResponse, WorkflowSampler, load_subtasks
from ops.workflow.answer_rounds import build_next_round_messages
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import mask_words
from ops.workflow.team import Team


class SftExample(TypedDict):
    """A prompt and the workflow to be learnt, as messages in TRL's conversational form."""

    prompt: list[Message]
    """The messages of the prompt."""
    completion: list[Message]
    """The message with the workflow."""


async def sample_examples(
    setup: Setup,
    team: Team,
    settings: ColdStart,
    count: int,
    on_progress: Callable[[int, int, str], None] | None = None,
    excluded_keys: Collection[str] = (),
    teacher_workflows: Mapping[str, Sequence[Workflow]] = MappingProxyType({}),
) -> list[SftExample]:
    """Return `count` examples for the problems of the training mix, without the problems in `excluded_keys`.

    The same seed gives the same examples. `teacher_workflows` maps a problem's key to workflows of a teacher, which are
    preferred to those that are tried here. The share `settings.recursive_share` of the examples are recursive rounds.
    Of the others, the share `settings.parts_share` offer a subset of the team. Raises `DataError` if the mix or the
    responses are missing, `OverBudget` and `ConfigError`.
    """
    workspace = setup.workspace
    mix = read_problems(workspace.data / "training_mix.jsonl")
    problems = {problem.key: problem for problem in mix if problem.key not in excluded_keys}
    responses = [
        row
        for row in read_graded_responses(workspace.data / "responses")
        if row.problem_key in problems and row.sample == 0
    ]
    sampler = WorkflowSampler(
        team.names,
        [
            PrecachedResponse(
                row.worker, row.problem_key, problems[row.problem_key].subject, row.response.text, row.score >= 1
            )
            for row in responses
        ],
        load_subtasks(workspace.texts / "cold_start" / "subtasks.yaml") if team.prompting.subtasks else (),
        success_share=settings.success_share,
        max_steps=team.prompting.max_steps,
        access=team.prompting.access,
        seed=setup.recipe.seed,
    )
    rounds = list(solo_rounds(responses, team.names))
    sampler.add_explored(teacher_workflows)
    if settings.attempts:

        def tried(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(done, total, "workflows tried")

        explored = await explore_workflows(list(problems.values()), sampler, settings.attempts, team, tried)
        keys = dict.fromkeys([*teacher_workflows, *explored.workflows])
        sampler.add_explored({key: [*teacher_workflows.get(key, ()), *explored.workflows.get(key, ())] for key in keys})
        rounds += explored.rounds
    if settings.recursive_share and not rounds:
        what = "has no answer to a problem of the mix, which cold_start.recursive_share needs"
        raise DataError(workspace.data / "responses", "", what, "Precache, or set it to 0")
    recursive, adaptive, random = setup.recipe.recursive, setup.recipe.adaptive, Random(f"{setup.recipe.seed} lessons")
    limits = recursive.limits if recursive is not None else RoundLimits()
    first = sampler.sample_endlessly(list(problems.values()))
    second = sample_second_rounds(problems, rounds, sampler, setup.recipe.seed)
    examples: list[SftExample] = []
    for number in range(count):
        if random.random() < settings.recursive_share:
            problem, before, workflow = next(second)
            prompt = build_next_round_messages(team, problem, before.workflow.render(), before.answer, limits)
        else:
            problem, workflow = next(first)
            asked = mask_words(problem, team.prompting.unknown_words, f"{setup.recipe.seed} {number}")
            prompt = team.build_messages(asked)
            if adaptive is not None and settings.parts_share and random.random() < settings.parts_share:
                part = adaptive.draw_subset(len(team.workers), setup.recipe.seed, problem.key, number)
                prompt = team.restrict_to(part, renumbered=adaptive.reshuffle).build_messages(asked)
                workflow = sampler.sample_workflow(problem, part)
                workflow = workflow.renumbered(part) if adaptive.reshuffle else workflow
        examples.append({"prompt": prompt, "completion": [{"role": "assistant", "content": workflow.render()}]})
    return examples
