"""Trying random workflows on what no worker solves alone, before any weight is trained.

GRPO learns only from groups in which some rollout succeeds; a policy that never saw a working combination seldom
writes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ops.conductor.rollout import roll_out
from ops.core.problem import Problem
from ops.training.sampling import WorkflowSampler
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

BATCH = 256
"""Workflows in flight at once."""


Progress = Callable[[int, int], None]
Pairs = Sequence[tuple[Problem, Workflow]]


async def explore(
    problems: Sequence[Problem],
    sampler: WorkflowSampler,
    attempts: int,
    team: Team,
    on_progress: Progress | None = None,
) -> dict[str, list[Workflow]]:
    """Problem's key → workflows that answered it, for the problems that no worker reliably solves alone.

    First `attempts` random workflows a problem; then, for what is still unsolved, as many of those
    that worked on other problems of its domain. Raises `OverBudget` and `ConfigError`; what was
    answered by then is in the response cache.
    """
    hard = [problem for problem in problems if not sampler.solved_alone(problem)]
    total, random = 2 * attempts * len(hard), Random(attempts)
    found: dict[str, list[Workflow]] = {}

    async def attempt(pairs: Pairs, before: int) -> None:
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            texts = [workflow.render() for _, workflow in batch]
            asked = [problem for problem, _ in batch]
            rollouts = await roll_out(texts, asked, team)
            for (problem, workflow), rollout in zip(batch, rollouts, strict=True):
                if rollout.outcome != "right" or workflow in found.get(problem.key, []):
                    continue
                if not sampler.may_be_luck(team.workers[workflow.steps[-1].worker].name, problem):
                    found.setdefault(problem.key, []).append(workflow)
            if on_progress is not None:
                on_progress(min(before + start + BATCH, total), total)

    await attempt([(problem, sampler.draw(problem)) for problem in hard for _ in range(attempts)], 0)
    worked: dict[str, list[Workflow]] = {}
    for problem in hard:
        worked.setdefault(problem.domain, []).extend(found.get(problem.key, []))
    unsolved = [problem for problem in hard if problem.key not in found and worked[problem.domain]]
    borrowed = [(p, workflow) for p in unsolved for workflow in random.choices(worked[p.domain], k=attempts)]
    await attempt(borrowed, total // 2)
    return found
