"""Two rounds of one question in GRPO: which rollout continues which, and their rewards (arXiv:2512.04388, section 3.2).

Half of a question's rollouts are first rounds. Each of the others continues one of them: its prompt contains the first
round's completion and final response. The reward of a recursive round is that of its own outcome. If it keeps the
answer, its outcome is that of the first round. The reward of a first round is (1 - γ) times its own outcome plus γ
times the mean of the rounds that continue it.

All rollouts of a question are one group. TRL normalises each reward by the mean and deviation of both rounds together,
so γ, which is not a factor of the whole group, does not cancel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random
from statistics import fmean
from typing import Any

from ops.conductor.rollout import Rollout
from ops.config import Recursive
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.training.rewards.outage import FirstStepCheck, OutagePolicy, execute_rollouts_with_retries
from ops.training.rewards.reward import StepStatistics, WorkerSamples, count_rounds, summarize_rollouts
from ops.training.rewards.reward_term import weigh_terms
from ops.workflow.answer_rounds import HasRoom, build_next_round_messages
from ops.workflow.team import Team


def select_problems(problems: Sequence[Problem], recursive: Recursive, seed: int) -> list[Problem]:
    """Return the problems of the training mix that the recursive stage uses, in the mix's order."""
    by_benchmark: dict[str, list[str]] = {}
    for problem in problems:
        if recursive.benchmarks is None or problem.benchmark in recursive.benchmarks:
            by_benchmark.setdefault(problem.benchmark, []).append(problem.key)
    taken: set[str] = set()
    for name, keys in by_benchmark.items():
        size = len(keys) if recursive.per_benchmark is None else min(recursive.per_benchmark, len(keys))
        taken.update(Random(f"{seed} {name}").sample(keys, size))
    return [problem for problem in problems if problem.key in taken]


def mark_recursive_rollouts(questions: Sequence[str]) -> list[bool]:
    """Return for each rollout whether it is in the second half of its question's rollouts.

    The rollouts of a question must be consecutive.
    """
    places: list[bool] = []
    for _, group in groupby(questions):
        size = len(list(group))
        places += [place >= size // 2 for place in range(size)]
    return places


def assign_previous_rounds(questions: Sequence[str], can_continue: Sequence[bool]) -> list[int | None]:
    """Return for each rollout the place of the rollout that it continues, or None if it is a first round.

    `can_continue` says for each rollout whether it is a first round that can be continued. The rollouts in the second
    half continue these in turn. If a question has none, the second half are first rounds as well.
    """
    follows: list[int | None] = []
    for _, group in groupby(range(len(questions)), key=lambda place: questions[place]):
        places = list(group)
        half = len(places) // 2
        able = [place for place in places[:half] if can_continue[place]]
        follows += [None] * half
        follows += [able[turn % len(able)] if able else None for turn in range(len(places) - half)]
    return follows


def blend_rewards(reward: float | None, later_rewards: Sequence[float | None], gamma: float) -> float | None:
    """Return a first round's reward: (1 - γ) times its own reward plus γ times the mean of the rounds that continue it.

    Its own reward alone counts if no round continues it or if none of those has a reward. The result is None if the
    first round has no reward.
    """
    known = [reward for reward in later_rewards if reward is not None]
    return reward if reward is None or not known else (1 - gamma) * reward + gamma * fmean(known)


@dataclass(frozen=True)
class _FirstRounds:
    """The executed first rounds of a step, and which of them each recursive round continues."""

    rollouts: Mapping[int, Rollout]
    """The first rounds by their places among the step's rollouts."""
    previous_of: Sequence[int | None]
    """For each place, the place of the first round that is continued there, or None."""
    seconds: float
    """The seconds that executing the first rounds took."""


class RoundRewards:
    """Executes a step's rollouts in two parts and returns their rewards to TRL.

    `execute_first_rounds` is called after the first rounds are generated. `workflow_reward`, which TRL calls, follows
    after the others are generated. The arguments are those of `ops.training.rewards.reward.build_reward_function`.
    `has_room(prompt)` returns True if a completion fits into the model's context after the prompt.
    """

    def __init__(
        self,
        problems: Mapping[str, Problem],
        team: Team,
        recursive: Recursive,
        on_batch: Callable[[StepStatistics], None],
        *,
        weights: Mapping[str, float],
        worker_samples: WorkerSamples,
        ends: Collection[int],
        outage_policy: OutagePolicy,
        has_room: HasRoom,
        first_step: FirstStepCheck | None = None,
    ) -> None:
        self._problems, self._team, self._recursive, self._on_batch = problems, team, recursive, on_batch
        self._weights, self._worker_samples, self._ends = weights, worker_samples, ends
        self._outage_policy, self._has_room, self._first_step = outage_policy, has_room, first_step
        self._first_rounds: _FirstRounds | None = None

    async def execute_first_rounds(
        self, questions: Sequence[str], texts: Mapping[int, str], ids: Mapping[int, Sequence[int]], epoch: int
    ) -> dict[int, list[Message]]:
        """Execute the first rounds, and return the prompts of the recursive rounds by their places among the step's
        rollouts.

        `texts` and `ids` hold completions and their tokens by the same places. Raises the errors of
        `execute_rollouts_with_retries`.
        """
        started = time.perf_counter()
        rollouts = await self._execute_rollouts(questions, texts, ids, epoch, {})
        prompts = {
            place: build_next_round_messages(
                self._team,
                self._problems[questions[place]],
                rollout.text,
                rollout.trace.answer,
                self._recursive.limits,
            )
            for place, rollout in rollouts.items()
            if rollout.trace is not None and rollout.trace.answer is not None
        }
        ready = [place in prompts and self._has_room(prompts[place]) for place in range(len(questions))]
        follows = assign_previous_rounds(questions, ready)
        self._first_rounds = _FirstRounds(rollouts, follows, time.perf_counter() - started)
        return {place: prompts[before] for place, before in enumerate(follows) if before is not None}

    async def workflow_reward(
        self,
        completions: list[Any],
        problem: list[str],
        epoch: list[int],
        completion_ids: Sequence[Sequence[int]],
        **_: Any,
    ) -> list[float | None]:
        """Execute the step's other rollouts and return the reward of every rollout.

        Raises the errors of `execute_rollouts_with_retries`.
        """
        begun, self._first_rounds = self._first_rounds, None
        assert begun is not None  # the step's first rounds were executed before its others were generated
        started = time.perf_counter()
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        others = [place for place in range(len(texts)) if place not in begun.rollouts]
        after = {place: begun.rollouts[before] for place in others if (before := begun.previous_of[place]) is not None}
        later = await self._execute_rollouts(
            problem,
            {place: texts[place] for place in others},
            dict(enumerate(completion_ids)),
            epoch[0],
            after,
        )
        every = {**later, **begun.rollouts}
        added = {place: weigh_terms(rollout, self._weights) for place, rollout in every.items()}
        batch = [self._problems[problem[place]] for place in every]
        seconds = begun.seconds + time.perf_counter() - started
        statistics = summarize_rollouts(list(every.values()), batch, seconds, list(added.values()))
        self._on_batch(replace(statistics, rounds=count_rounds(list(every.values()))))
        own = {
            place: None if rollout.reward is None else rollout.reward + sum(added[place].values())
            for place, rollout in every.items()
        }
        return [self._total_reward(place, own, begun.previous_of) for place in range(len(texts))]

    def _total_reward(self, place: int, own: Mapping[int, float | None], follows: Sequence[int | None]) -> float | None:
        """Return the reward of the rollout at a place, in which the rounds that continue it count."""
        later = [own[after] for after, before in enumerate(follows) if before == place]
        return blend_rewards(own[place], later, self._recursive.gamma)

    async def _execute_rollouts(
        self,
        questions: Sequence[str],
        texts: Mapping[int, str],
        ids: Mapping[int, Sequence[int]],
        epoch: int,
        after: Mapping[int, Rollout],
    ) -> dict[int, Rollout]:
        """Execute the rollouts at some places, each after the rollout that it continues (`after`), if there is one."""
        places = list(texts)
        cut_off = {
            index
            for index, place in enumerate(places)
            if self._ends and (not ids[place] or ids[place][-1] not in self._ends)
        }
        if self._first_step is not None and not after:
            self._first_step.check([texts[place] for place in places], [self._team] * len(places), cut_off)
        rollouts = await execute_rollouts_with_retries(
            [texts[place] for place in places],
            [self._problems[questions[place]] for place in places],
            self._team,
            self._outage_policy,
            sample=self._worker_samples.sample_indices(epoch, places, len(questions)),
            cut_off=cut_off,
            previous=[after.get(place) for place in places],
        )
        return dict(zip(places, rollouts, strict=True))
