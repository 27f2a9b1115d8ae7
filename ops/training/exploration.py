"""Trying workflows on what no worker solves alone, before any weight is trained.

GRPO learns only from groups in which some rollout succeeds; a policy that never saw a working combination seldom
writes one, and one that saw a lucky combination learns luck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from ops.conductor.rollout import roll_out
from ops.core.problem import Problem
from ops.training.sampling import WorkflowSampler
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

BATCH = 256
"""Workflows in flight at once."""
KEPT = 2
"""Workflows of a subject that are taught: those that were right most reliably."""
VARIED = 0.4
"""Share of the second round's workflows that are variations of what worked in the domain; the others worked on the
subject as they are."""

Progress = Callable[[int, int], None]
Pairs = Sequence[tuple[Problem, Workflow]]
Subject = tuple[str, str]
"""Domain and subject."""


async def explore(
    problems: Sequence[Problem],
    sampler: WorkflowSampler,
    attempts: int,
    team: Team,
    on_progress: Progress | None = None,
) -> dict[str, list[Workflow]]:
    """Problem's key → workflows that answered it, for the problems that no worker reliably solves alone.

    First `attempts` random workflows a problem; then as many of those that worked on other problems of its subject
    (of its domain, where none did), as they are or with a step added, changed or left out. Of what answered a problem,
    the workflows that are most reliable on its subject are kept. Raises `OverBudget` and `ConfigError`; what was
    answered by then is in the response cache.
    """
    hard = [problem for problem in problems if not sampler.solved_alone(problem)]
    total, random = 2 * attempts * len(hard), Random(attempts)
    solved: dict[str, list[Workflow]] = {}
    tries, wins = Counter[tuple[Subject, Workflow]](), Counter[tuple[Subject, Workflow]]()

    async def attempt(pairs: Pairs, before: int) -> None:
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            rollouts = await roll_out([workflow.render() for _, workflow in batch], [each for each, _ in batch], team)
            for (problem, workflow), rollout in zip(batch, rollouts, strict=True):
                tries[_subject(problem), workflow] += 1
                if rollout.outcome != "right":
                    continue
                if sampler.may_be_luck(team.workers[workflow.steps[-1].worker].name, problem):
                    continue
                wins[_subject(problem), workflow] += 1
                if workflow not in solved.setdefault(problem.key, []):
                    solved[problem.key].append(workflow)
            if on_progress is not None:
                on_progress(min(before + start + BATCH, total), total)

    await attempt([(problem, sampler.draw(problem)) for problem in hard for _ in range(attempts)], 0)
    by_subject: dict[Subject, list[Workflow]] = {}
    by_domain: dict[str, list[Workflow]] = {}
    for problem in hard:
        by_subject.setdefault(_subject(problem), []).extend(solved.get(problem.key, []))
        by_domain.setdefault(problem.domain, []).extend(solved.get(problem.key, []))
    second = []
    for problem in hard:
        near, far = by_subject[_subject(problem)], by_domain[problem.domain]
        for _ in range(attempts if far else 0):
            if random.random() < VARIED:
                second.append((problem, sampler.vary(random.choice(far), problem)))
            else:
                second.append((problem, random.choice(near or far)))
    await attempt(second, total // 2)

    def reliability(problem: Problem, workflow: Workflow) -> float:
        key = _subject(problem), workflow
        return wins[key] / (tries[key] + 1)  # one win in one try is not yet much

    return {
        problem.key: sorted(solved[problem.key], key=lambda workflow: -reliability(problem, workflow))[:KEPT]
        for problem in hard
        if problem.key in solved
    }


def _subject(problem: Problem) -> Subject:
    return problem.domain, problem.subject
