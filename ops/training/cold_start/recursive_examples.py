"""Recursive rounds for the cold start: a problem, a tried workflow with its answer, and the right continuation.

GRPO reinforces only behaviour that the policy samples. A policy without such examples never keeps an answer, so GRPO
could not teach it to do so.
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
"""The workflow of three empty lists, by which a recursive round keeps the previous answer."""
MAX_DRAWS = 8
"""The maximum number of draws for a workflow that differs from the tried one."""


class FirstRound(NamedTuple):
    """A workflow that was executed for a problem, and its final response."""

    problem_key: str
    """The key of the problem."""
    workflow: Workflow
    """The executed workflow."""
    answer: str
    """The final response."""
    is_right: bool
    """True if the final response is right."""


def solo_rounds(responses: Iterable[ResponseRow], offered: Sequence[str]) -> Iterator[FirstRound]:
    """Yield the precached answers of the offered workers as workflows of one plain step, without blank responses."""
    ordinals = {name: ordinal for ordinal, name in enumerate(offered)}
    for row in responses:
        if row.status == "ok" and not row.response.is_blank and row.worker in ordinals:
            workflow = Workflow.single(ordinals[row.worker])
            yield FirstRound(row.problem_key, workflow, row.response.text, row.score >= 1.0)


def sample_second_rounds(
    problems: Mapping[str, Problem], rounds: Iterable[FirstRound], sampler: WorkflowSampler, seed: int
) -> Iterator[tuple[Problem, FirstRound, Workflow]]:
    """Yield problems in random order without end, each with a first round and its right continuation.

    A right answer is kept. After a wrong answer, another workflow is drawn. If both kinds exist, they are equally
    frequent, and so are the problems of each kind. `problems` holds the problems by key. Nothing is yielded if `rounds`
    is empty.
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
    """Return a workflow for the problem that differs from the given one, a variation of it if no other is drawn."""
    drawn = (sampler.sample_workflow(problem) for _ in range(MAX_DRAWS))
    return next((each for each in drawn if each != workflow), None) or sampler.vary_workflow(workflow, problem)
