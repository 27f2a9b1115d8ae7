"""SFT examples by rejection sampling: workflows of an untrained policy (the teacher) that answered right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ops.conductor.policy import PolicyCard
from ops.conductor.untrained import PromptedConductor, StaticConductor
from ops.config import Evaluation, PromptedPolicy, Setup, Teacher
from ops.core.problem import Problem
from ops.evaluation.runner import evaluate
from ops.workers.scheduling import Client
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team


class TeacherWorkflows(NamedTuple):
    """The teacher's workflows that answered right, and what they cost."""

    workflows: Mapping[str, Sequence[Workflow]]
    """The different workflows of each problem by its key, the cheapest first."""
    tried: int = 0
    """The number of workflows that the teacher was asked for."""
    right: int = 0
    """The number of workflows that answered right."""
    usd: float = 0.0
    """USD of all workflows, including writing them. Calls from the cache count at what they cost when they were first
    made."""


NO_TEACHER_WORKFLOWS = TeacherWorkflows({})
"""The result without a teacher."""


async def collect_teacher_workflows(
    setup: Setup,
    card: PolicyCard,
    teacher: Teacher,
    problems: Sequence[Problem],
    client: Client,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> TeacherWorkflows:
    """Let the teacher write `teacher.samples` workflows for each problem, execute them, and return those that answer
    right.

    The teacher reads the prompt that explains the grammar, even if the policy is trained on prompts of another style. A
    workflow whose workers cannot be reached is not used. Raises `OverBudget` and `ConfigError`; the answers that were
    received are in the response cache.
    """
    team = build_teacher_team(setup, card, client)
    own = card.model_copy(update={"untrained": teacher.policy, "prompting": team.prompting})
    policy = teacher.policy
    conductor = PromptedConductor(own, policy) if isinstance(policy, PromptedPolicy) else StaticConductor(own, policy)
    done, total = 0, len(problems) * teacher.samples

    def count(*_: object) -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total, "workflows of the teacher")

    settings = Evaluation(repeats=teacher.samples, batch=setup.recipe.evaluation.batch)
    rows = await evaluate(conductor, problems, team, settings, seed=setup.recipe.seed, on_executed=count)
    keyed = {(problem.benchmark, problem.id): problem.key for problem in problems}
    workflows: dict[str, dict[Workflow, None]] = {}
    for row in sorted((row for row in rows if row.correct), key=lambda row: row.cost_usd):
        workflow = team.parse(row.completion).workflow
        if workflow is not None:
            workflows.setdefault(keyed[row.benchmark, row.problem_id], {})[workflow] = None
    found = {key: list(each) for key, each in workflows.items()}
    return TeacherWorkflows(found, len(rows), sum(row.correct for row in rows), sum(row.cost_usd for row in rows))


def build_teacher_team(setup: Setup, card: PolicyCard, client: Client) -> Team:
    """Return the policy's team with the prompt that explains the grammar."""
    team = card.build_team(setup.pool, setup.workspace.texts, setup.recipe.execution, client)
    return replace(team, prompting=team.prompting.model_copy(update={"style": "full"}))
