"""Waiting for workers that are away: a step of which hardly anything can be rewarded would be a step on noise."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from ops.conductor.rollout import Rollout, roll_out
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.workflow.team import Team

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 600.0
"""Pauses double: the first is as long as a worker rests that failed five times, the longest what is lost at most when
the workers are back."""
_log = logging.getLogger(__name__)


class Outage(PodiumError):
    """Workers were away for longer than a training waits: says which, and how to go on."""


@dataclass(frozen=True)
class Patience:
    """When to wait, and for how long: `max_unscorable` and `outage_s` of `Grpo`. `sleep` takes seconds."""

    max_unscorable: float
    total_s: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def roll_out_patiently(
    texts: Sequence[str],
    problems: Sequence[Problem],
    team: Team | Sequence[Team],
    patience: Patience,
    *,
    sample: int | Sequence[int] = 0,
    cut_off: Collection[int] = (),
    after: Sequence[Rollout | None] | None = None,
) -> list[Rollout]:
    """`roll_out`, and again those that are unscorable, after ever longer pauses, while they are more than is allowed.

    After a pause they are asked for as long as that makes them fewer. What a worker has answered is in the cache: it
    is neither asked nor paid for again. Raises `Outage` when the pauses add up to `patience.total_s`, and what
    `roll_out` raises.
    """
    teams = [team] * len(texts) if isinstance(team, Team) else team
    samples = [sample] * len(texts) if isinstance(sample, int) else sample
    earlier = [None] * len(texts) if after is None else after
    rollouts = await roll_out(texts, problems, teams, sample=samples, cut_off=cut_off, after=earlier)
    pause, waited = FIRST_PAUSE_S, 0.0
    while len(away := _unscorable(rollouts)) > patience.max_unscorable * len(rollouts):
        share, who = len(away) / len(rollouts), _who(rollouts)
        if waited >= patience.total_s:
            raise Outage(
                f"{share:.0%} of the step's rollouts have no reward after {waited / 60:.0f} minutes of waiting "
                f"(grpo.max_unscorable allows {patience.max_unscorable:.0%}): {who}. When the workers are back, "
                "the same command goes on from the last checkpoint"
            )
        pause = min(pause, LONGEST_PAUSE_S, patience.total_s - waited)
        _log.warning("%.0f%% of the step's rollouts have no reward: %s; again in %.0f s", 100 * share, who, pause)
        await patience.sleep(pause)
        waited, pause = waited + pause, 2 * pause
        while away:  # of a worker that failed, one call is let through to try it: when it is back, the others follow
            again = await roll_out(
                [texts[i] for i in away],
                [problems[i] for i in away],
                [teams[i] for i in away],
                sample=[samples[i] for i in away],
                after=[earlier[i] for i in away],
            )
            for index, rollout in zip(away, again, strict=True):
                rollouts[index] = rollout
            before, away = away, _unscorable(rollouts)
            if len(away) == len(before):
                break
    if waited:
        _log.warning("the workers are back after %.0f s of waiting", waited)
    return rollouts


def _unscorable(rollouts: Sequence[Rollout]) -> list[int]:
    return [index for index, rollout in enumerate(rollouts) if rollout.reward is None]


def _who(rollouts: Sequence[Rollout]) -> str:
    """The workers that did not answer, and what the one that failed most said last."""
    failed = [
        step
        for rollout in rollouts
        if rollout.trace is not None
        for step in rollout.trace.steps
        if step.status in ("unreachable", "timed_out")
    ]
    counts = Counter(step.worker for step in failed)
    if not counts:
        return "no worker failed, but every deadline (execution.deadline_s) passed"
    named = ", ".join(f"{worker} ({count} steps)" for worker, count in counts.most_common())
    [(most, _)] = counts.most_common(1)
    last = next(step for step in reversed(failed) if step.worker == most)
    return f"{named} gave no answer, at last: {last.error or 'the deadline passed (execution.deadline_s)'}"
