"""Try workflows before training, on problems that no worker solves alone.

GRPO learns only from groups in which some rollout succeeds. A policy without examples of successful combinations rarely
generates one. If its examples include accidental successes, it learns to rely on chance.
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
"""The number of workflows that are executed at the same time."""
VARIATION_SHARE = 0.4
"""The share (0-1) of the second round's workflows that are variations of the most successful ones."""
MIN_TRUSTED_RELIABILITY = 0.8
"""The reliability on a subject from which a workflow becomes an example for problems on which it was not tried."""

Progress = Callable[[int, int], None]
"""A callback that receives the number of tried workflows and the number of all."""
Pairs = Sequence[tuple[Problem, Workflow]]
"""Problems, each with a workflow that is tried on it."""
Subject = tuple[str, str]
"""A domain and a subject in it."""


class WorkflowTally:
    """Counts the successes and tries of each workflow on each subject."""

    def __init__(self) -> None:
        self._tries: dict[Subject, Counter[Workflow]] = defaultdict(Counter)
        self._wins: dict[Subject, Counter[Workflow]] = defaultdict(Counter)

    def record(self, subject: Subject, workflow: Workflow, right: bool) -> None:
        """Record one try of a workflow, which was right or not."""
        self._tries[subject][workflow] += 1
        self._wins[subject][workflow] += right

    def reliability(self, subject: Subject, workflow: Workflow) -> float:
        """Return the expected share of right answers, in (0, 1). It is ½ without any try."""
        return (self._wins[subject][workflow] + 1) / (self._tries[subject][workflow] + 2)

    def draw_promising(self, subject: Subject, random: Random) -> Workflow | None:
        """Draw a workflow that succeeded on the subject, or return None if none did.

        Thompson sampling prefers reliable and rarely tried workflows.
        """
        drawn = {
            workflow: random.betavariate(wins + 1, self._tries[subject][workflow] - wins + 1)
            for workflow, wins in self._wins[subject].items()
            if wins
        }
        return max(drawn, key=drawn.__getitem__) if drawn else None

    def rank_successful(self, subject: Subject) -> list[Workflow]:
        """Return the workflows that succeeded on the subject, the most reliable first. Of equally reliable ones, the
        shorter comes first."""
        right = [workflow for workflow, wins in self._wins[subject].items() if wins]
        return sorted(right, key=lambda workflow: (-self.reliability(subject, workflow), len(workflow.steps)))


class Exploration(NamedTuple):
    """The results of the tried workflows."""

    workflows: dict[str, list[Workflow]]
    """The workflows for SFT examples by problem key, the most reliable first. They exist for problems that no worker
    reliably solves alone."""
    rounds: list[FirstRound]
    """Every workflow that gave an answer, in the order of the tries."""


async def explore_workflows(
    problems: Sequence[Problem],
    sampler: WorkflowSampler,
    attempts: int,
    team: Team,
    on_progress: Progress | None = None,
) -> Exploration:
    """Try workflows on the problems that no worker reliably solves alone, in two passes of `attempts` workflows per
    problem.

    In the first pass, every ordered pair of workers is tried once on each subject as a chain, and then random
    workflows. In the second pass, the workflows with most successes on the subject are tried again, unchanged or with a
    step added, changed or removed. A workflow to be changed may come from any subject of the domain.

    A workflow becomes an example of a problem if it answered the problem, or if it nearly always answers the problem's
    subject. For multiple-choice questions, it must succeed more often than by guessing. Raises `OverBudget` and
    `ConfigError`; the answers that were received are in the response cache.
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
    """Return every ordered pair of workers as a workflow, in random order. The second worker reads the first one's
    response."""
    pairs = list(product(range(len(team.workers)), repeat=2)) if team.prompting.max_steps > 1 else []
    random.shuffle(pairs)
    return (Workflow((Step(first, SOLVE_SUBTASK), Step(second, SOLVE_SUBTASK, "all"))) for first, second in pairs)


def _select_workflows(problem: Problem, tally: WorkflowTally, right: Iterable[Workflow]) -> Iterator[Workflow]:
    """Yield the workflows that may be examples of a problem, given those that answered it (`right`)."""
    subject, answered = _subject_of(problem), set(right)
    ranked = tally.rank_successful(subject)
    by_chance = 1 / len(problem.choices) if problem.choices else 0.0
    least = min(2 * by_chance, (1 + by_chance) / 2)  # twice the probability of a guess, if that is possible
    known = (workflow for workflow in ranked if workflow in answered)
    trusted = (workflow for workflow in ranked if workflow not in answered)
    for workflow in chain(known, trusted):
        reliability = tally.reliability(subject, workflow)
        if reliability > least and (workflow in answered or reliability >= MIN_TRUSTED_RELIABILITY):
            yield workflow


def _subject_of(problem: Problem) -> Subject:
    return problem.domain, problem.subject
