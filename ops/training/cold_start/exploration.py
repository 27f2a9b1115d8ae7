"""Try workflows on problems that no worker solves alone, before training.

GRPO learns only from groups in which some rollout succeeds. A policy without examples of successful combinations rarely
generates one, and a policy with accidental successes among its examples learns chance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from random import Random
from typing import NamedTuple

from ops.conductor.rollout import execute_rollouts
from ops.core.problem import Problem
from ops.training.cold_start.recursive_examples import FirstRound
from ops.training.cold_start.sampling import WorkflowSampler
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team

WORKFLOWS_IN_FLIGHT = 256
"""Number of workflows in flight."""
VARIATION_SHARE = 0.4
"""Share of the second round's workflows that are variations of what works best."""
MIN_TRUSTED_RELIABILITY = 0.8
"""Reliability on a subject from which a workflow is an example for problems on which it was not tried."""

Progress = Callable[[int, int], None]
Pairs = Sequence[tuple[Problem, Workflow]]
Subject = tuple[str, str]
"""Domain and subject."""


class WorkflowTally:
    """Successes and tries of each workflow on each subject."""

    def __init__(self) -> None:
        self._tries: dict[Subject, Counter[Workflow]] = defaultdict(Counter)
        self._wins: dict[Subject, Counter[Workflow]] = defaultdict(Counter)

    def record(self, subject: Subject, workflow: Workflow, right: bool) -> None:
        """Record one try."""
        self._tries[subject][workflow] += 1
        self._wins[subject][workflow] += right

    def reliability(self, subject: Subject, workflow: Workflow) -> float:
        """The expected share of right answers, in (0, 1); ½ without any try."""
        return (self._wins[subject][workflow] + 1) / (self._tries[subject][workflow] + 2)

    def draw_promising(self, subject: Subject, random: Random) -> Workflow | None:
        """Draw a successful workflow for the subject by Thompson
        sampling, which prefers reliable and rarely tried ones.

        None if no workflow succeeded.
        """
        drawn = {
            workflow: random.betavariate(wins + 1, self._tries[subject][workflow] - wins + 1)
            for workflow, wins in self._wins[subject].items()
            if wins
        }
        return max(drawn, key=drawn.__getitem__) if drawn else None

    def rank_successful(self, subject: Subject) -> list[Workflow]:
        """Return the successful workflows for the subject, the most reliable first; ties go to the shorter workflow."""
        right = [workflow for workflow, wins in self._wins[subject].items() if wins]
        return sorted(right, key=lambda workflow: (-self.reliability(subject, workflow), len(workflow.steps)))


class Exploration(NamedTuple):
    """The results of the tried workflows."""

    workflows: dict[str, list[Workflow]]
    """Key → workflows for SFT examples, most reliable first, for the problems that no worker reliably solves alone."""
    rounds: list[FirstRound]
    """Every workflow that gave an answer, in the order of the tries."""


async def explore_workflows(
    problems: Sequence[Problem],
    sampler: WorkflowSampler,
    attempts: int,
    team: Team,
    on_progress: Progress | None = None,
) -> Exploration:
    """Try workflows on the problems that no worker reliably solves alone.

    First `attempts` workflows per problem: on each subject every pair of workers in a chain once, then random ones.
    Then the same number of those with most successes on the subject, unchanged or (from any subject of the domain) with
    a step added, changed or removed. An example's workflow answered the problem, or nearly always answers its subject;
    with choices, a success must be more frequent than guessing explains. Raises `OverBudget` and `ConfigError`; answers
    so far are in the response cache.
    """
    hard = [problem for problem in problems if not sampler.is_solved_alone(problem)]
    total, random, tally = 2 * attempts * len(hard), Random(attempts), WorkflowTally()
    solved: dict[str, set[Workflow]] = defaultdict(set)
    rounds: list[FirstRound] = []

    async def attempt(batch: Pairs, done: int) -> None:
        rollouts = await execute_rollouts(
            [workflow.render() for _, workflow in batch], [each for each, _ in batch], team
        )
        for (problem, workflow), rollout in zip(batch, rollouts, strict=True):
            right = rollout.outcome == "right"
            tally.record(_subject_of(problem), workflow, right)
            if right:
                solved[problem.key].add(workflow)
            if rollout.trace is not None and rollout.trace.answer is not None:
                rounds.append(FirstRound(problem.key, workflow, rollout.trace.answer, right))
        if on_progress is not None:
            on_progress(min(done + len(batch), total), total)

    order = [problem for _ in range(attempts) for problem in random.sample(hard, len(hard))]
    chains = {_subject_of(problem): _worker_chains(team, random) for problem in hard}
    for start in range(0, len(order), WORKFLOWS_IN_FLIGHT):
        part = order[start : start + WORKFLOWS_IN_FLIGHT]
        await attempt(
            [(each, next(chains[_subject_of(each)], None) or sampler.sample_workflow(each)) for each in part], start
        )
    subjects = sorted({_subject_of(problem) for problem in hard})
    for start in range(0, len(order), WORKFLOWS_IN_FLIGHT):
        batch: list[tuple[Problem, Workflow]] = []
        for problem in order[start : start + WORKFLOWS_IN_FLIGHT]:
            near = tally.draw_promising(_subject_of(problem), random)
            if near is None or random.random() < VARIATION_SHARE:
                far = random.choice([subject for subject in subjects if subject[0] == problem.domain])
                base = random.choice([near, tally.draw_promising(far, random)]) or near
                batch.append(
                    (problem, sampler.vary_workflow(base, problem) if base else sampler.sample_workflow(problem))
                )
            else:
                batch.append((problem, near))
        await attempt(batch, len(order) + start)
    taught = {problem.key: list(_select_workflows(problem, tally, solved[problem.key])) for problem in hard}
    return Exploration({key: workflows for key, workflows in taught.items() if workflows}, rounds)


def _worker_chains(team: Team, random: Random) -> Iterator[Workflow]:
    """Return every ordered pair of workers in random order; the second reads the first one's response."""
    pairs = list(product(range(len(team.workers)), repeat=2)) if team.prompting.max_steps > 1 else []
    random.shuffle(pairs)
    return (Workflow((Step(first, SOLVE_SUBTASK), Step(second, SOLVE_SUBTASK, "all"))) for first, second in pairs)


def _select_workflows(problem: Problem, tally: WorkflowTally, right: Iterable[Workflow]) -> Iterator[Workflow]:
    subject, answered = _subject_of(problem), set(right)
    ranked = tally.rank_successful(subject)
    by_chance = 1 / len(problem.choices) if problem.choices else 0.0
    least = min(2 * by_chance, (1 + by_chance) / 2)  # twice chance, if possible
    known = (workflow for workflow in ranked if workflow in answered)
    trusted = (workflow for workflow in ranked if workflow not in answered)
    for workflow in chain(known, trusted):
        reliability = tally.reliability(subject, workflow)
        if reliability > least and (workflow in answered or reliability >= MIN_TRUSTED_RELIABILITY):
            yield workflow


def _subject_of(problem: Problem) -> Subject:
    return problem.domain, problem.subject
