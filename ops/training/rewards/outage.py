"""The two conditions under which a training stops by itself: unreachable workers, and a first step of invalid
workflows."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from ops.conductor.rollout import CUT_OFF_RESULT, Rollout, execute_rollouts
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.training.run.failure_reasons import INVALID_FIRST_STEP
from ops.workflow.team import Team


class InvalidFirstStep(PodiumError):
    """Raised if too many completions of a champion's first training step are invalid workflows.

    The message has the share of invalid completions, the reasons and the remedy.
    """


class FirstStepCheck:
    """Checks that the first batch of completions of a run consists of valid workflows.

    A champion generates valid workflows. If it does not in the first step of fine-tuning, its prompt contains something
    that it was not trained on (a new worker, another style), and training would teach it the format again at the
    expense of its skills. `max_invalid` is the permitted share (0-1) of invalid completions. Each rank checks its own
    completions.
    """

    def __init__(self, max_invalid: float, recipe: str, seed: int) -> None:
        self._max_invalid, self._restart_command = max_invalid, f"podium run {recipe} --seed {seed}"
        self._checked = False

    def check(self, texts: Sequence[str], teams: Sequence[Team], cut_off: Collection[int] = ()) -> None:
        """Parse every completion of the first batch as for execution; later batches are not checked.

        Raises `InvalidFirstStep` if too many completions are invalid.
        """
        if self._checked:
            return
        self._checked = True
        written = enumerate(zip(texts, teams, strict=True))
        parsed = [CUT_OFF_RESULT if i in cut_off else team.parse(text) for i, (text, team) in written]
        failures = Counter(str(reading.failure) for reading in parsed if reading.failure)
        share = failures.total() / max(1, len(parsed))
        if share > self._max_invalid:
            causes = ", ".join(f"{name} {count}" for name, count in failures.most_common(3))
            raise InvalidFirstStep(
                f"{INVALID_FIRST_STEP}, before a worker was asked: {failures.total()} of its {len(parsed)} "
                f"completions ({share:.0%}) are no workflow ({causes}), and "
                f"guards.max_invalid_first_step allows {self._max_invalid:.0%}. The champion that it starts from "
                f"does not understand this prompt. Train from the start: `{self._restart_command}`"
            )


FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 600.0
"""The shortest and the longest pause between two attempts to reach workers, in seconds. Each pause is twice the one
before. The first is as long as a worker's own pause after five failures. The longest limits the time that is lost after
the workers have recovered."""
_log = logging.getLogger(__name__)


class Outage(PodiumError):
    """Raised if workers were unreachable for longer than a training waits.

    The message names the workers and says how to continue.
    """


@dataclass(frozen=True)
class OutagePolicy:
    """Says how many rollouts of a step may lack a reward, and how long a training waits for unreachable workers
    otherwise."""

    max_unscorable: float
    """The permitted share (0-1) of a step's rollouts without a reward (`Grpo.max_unscorable`)."""
    total_s: float
    """The longest total wait in one step, in seconds (`Grpo.outage_s`)."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """The coroutine function that waits for a number of seconds. Tests and stop requests replace it."""


async def execute_rollouts_with_retries(
    texts: Sequence[str],
    problems: Sequence[Problem],
    team: Team | Sequence[Team],
    outage_policy: OutagePolicy,
    *,
    sample: int | Sequence[int] = 0,
    cut_off: Collection[int] = (),
    previous: Sequence[Rollout | None] | None = None,
) -> list[Rollout]:
    """Execute rollouts, and repeat those without a reward while there are more of them than `outage_policy` permits.

    Before each repetition there is a pause, each twice as long as the one before. After a pause the rollouts are
    repeated as long as the number of those without a reward falls. Answers that were received are in the response cache
    and are not paid for again.

    Raises `Outage` when the pauses add up to `outage_policy.total_s`, and the errors of `execute_rollouts`.
    """
    teams = [team] * len(texts) if isinstance(team, Team) else team
    samples = [sample] * len(texts) if isinstance(sample, int) else sample
    earlier = [None] * len(texts) if previous is None else previous
    rollouts = await execute_rollouts(texts, problems, teams, sample=samples, cut_off=cut_off, previous=earlier)
    pause, waited = FIRST_PAUSE_S, 0.0
    while len(away := _find_unscorable(rollouts)) > outage_policy.max_unscorable * len(rollouts):
        share, who = len(away) / len(rollouts), _describe_unreachable(rollouts)
        if waited >= outage_policy.total_s:
            raise Outage(
                f"{share:.0%} of the step's rollouts have no reward after {waited / 60:.0f} minutes of waiting "
                f"(grpo.max_unscorable allows {outage_policy.max_unscorable:.0%}): {who}. When the workers are back, "
                "the same command goes on from the last checkpoint"
            )
        pause = min(pause, LONGEST_PAUSE_S, outage_policy.total_s - waited)
        _log.warning("%.0f%% of the step's rollouts have no reward: %s; again in %.0f s", 100 * share, who, pause)
        await outage_policy.sleep(pause)
        waited, pause = waited + pause, 2 * pause
        while away:  # a failed worker gets one call as a probe first; the others follow when it has recovered
            again = await execute_rollouts(
                [texts[i] for i in away],
                [problems[i] for i in away],
                [teams[i] for i in away],
                sample=[samples[i] for i in away],
                previous=[earlier[i] for i in away],
            )
            for index, rollout in zip(away, again, strict=True):
                rollouts[index] = rollout
            before, away = away, _find_unscorable(rollouts)
            if len(away) == len(before):
                break
    if waited:
        _log.warning("the workers are back after %.0f s of waiting", waited)
    return rollouts


def _find_unscorable(rollouts: Sequence[Rollout]) -> list[int]:
    """Return the places of the rollouts that have no reward."""
    return [index for index, rollout in enumerate(rollouts) if rollout.reward is None]


def _describe_unreachable(rollouts: Sequence[Rollout]) -> str:
    """Return a text that names the workers that did not answer, with the last error of the one that failed most
    often."""
    failed = [
        step
        for rollout in rollouts
        if rollout.trace is not None
        for step in rollout.trace.steps
        if not step.status.is_scorable
    ]
    counts = Counter(step.worker for step in failed)
    if not counts:
        return "no worker failed, but every deadline (execution.deadline_s) passed"
    named = ", ".join(f"{worker} ({count} steps)" for worker, count in counts.most_common())
    [(most, _)] = counts.most_common(1)
    last = next(step for step in reversed(failed) if step.worker == most)
    return f"{named} gave no answer, at last: {last.error or 'the deadline passed (execution.deadline_s)'}"
