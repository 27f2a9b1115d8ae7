"""Trying random workflows on what no worker solves alone, before any weight is trained.

What belongs here: executing drawn workflows and keeping those that were right. GRPO learns
only from groups in which some rollout succeeds; a policy that never saw a working
combination seldom writes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ops.config import Prompting, Worker
from ops.problem import Problem
from ops.rollout import roll_out
from ops.training.sampling import WorkflowSampler
from ops.workers.types import Client
from ops.workflow.grammar import Workflow

BATCH = 256
"""Workflows in flight at once."""


async def explore(
    problems: Sequence[Problem],
    sampler: WorkflowSampler,
    attempts: int,
    offered: Sequence[Worker],
    client: Client,
    prompting: Prompting,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Workflow]]:
    """Problem id → the workflows that answered it, of `attempts` drawn for each problem not solved alone.

    Raises `OverBudget` and `ConfigError`; what was answered by then is in the response cache.
    """
    hard = [problem for problem in problems if not sampler.solved_alone(problem)]
    drawn = [(problem, sampler.draw(problem)) for problem in hard for _ in range(attempts)]
    found: dict[str, list[Workflow]] = {}
    for start in range(0, len(drawn), BATCH):
        batch = drawn[start : start + BATCH]
        texts = [workflow.render() for _, workflow in batch]
        rollouts = await roll_out(texts, [problem for problem, _ in batch], offered, client, prompting)
        for (problem, workflow), rollout in zip(batch, rollouts, strict=True):
            if rollout.outcome == "right" and workflow not in found.setdefault(problem.id, []):
                found[problem.id].append(workflow)
        if on_progress is not None:
            on_progress(min(start + BATCH, len(drawn)), len(drawn))
    return {name: workflows for name, workflows in found.items() if workflows}
