"""The cold start's recursive rounds: a problem, a tried workflow, its answer, and the right continuation.

GRPO reinforces only sampled behaviour: a policy without such examples never keeps an answer, so GRPO cannot teach it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.training.cold_start.sampling import WorkflowSampler
from ops.workflow.grammar import Workflow

KEEP_ANSWER = Workflow(())
"""Three empty lists."""
MAX_DRAWS = 8
"""Maximum number of draws for a workflow that differs from the tried one."""


class FirstRound(NamedTuple):
    """A workflow that was executed for a problem, and its final response."""

    problem_key: str
    """The problem's key."""
    workflow: Workflow
    answer: str
    is_right: bool


def solo_rounds(responses: Iterable[ResponseRow], offered: Sequence[str]) -> Iterator[FirstRound]:
    """Return the precached answers of the offered workers as workflows of one plain step; blank responses are
    omitted."""
    ordinals = {name: ordinal for ordinal, name in enumerate(offered)}
    for row in responses:
        if row.status == "ok" and not row.response.is_blank and row.worker in ordinals:
            workflow = Workflow.single(ordinals[row.worker])
            yield FirstRound(row.problem_key, workflow, row.response.text, row.score >= 1.0)


def sample_second_rounds(
    problems: Mapping[str, Problem], rounds: Iterable[FirstRound], sampler: WorkflowSampler, seed: int
) -> Iterator[tuple[Problem, FirstRound, Workflow]]:
    """Give first rounds in random order, each with its continuation, without end; nothing if there are none.

    A correct answer is kept; after a wrong one another workflow is drawn. If both exist, they are equally frequent, and
    so are the problems of each kind. `problems`: by key.
    """
    random = Random(f"{seed} rounds")
    tried: dict[bool, dict[str, list[FirstRound]]] = {}
    for round_ in rounds:
        tried.setdefault(round_.is_right, defaultdict(list))[round_.problem_key].append(round_)
    outcomes = [(right, list(by_problem)) for right, by_problem in sorted(tried.items())]
    while outcomes:
        right, keys = random.choice(outcomes)
        problem = problems[random.choice(keys)]
        before = random.choice(tried[right][problem.key])
        yield problem, before, KEEP_ANSWER if right else _draw_another(before.workflow, problem, sampler)


def _draw_another(workflow: Workflow, problem: Problem, sampler: WorkflowSampler) -> Workflow:
    drawn = (sampler.sample_workflow(problem) for _ in range(MAX_DRAWS))
    return next((each for each in drawn if each != workflow), None) or sampler.vary_workflow(workflow, problem)
