"""The evaluation of a Conductor that works in rounds: one row a question, of all its rounds together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ops.config import Evaluation, RoundLimits
from ops.core.problem import Problem
from ops.core.response import Message
from ops.evaluation.rows import NO_WORKFLOW, ScoreRow
from ops.evaluation.runner import Writer, usage_of
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.recursion import Fits
from ops.workflow.strategy import pattern, shape
from ops.workflow.team import Team

if TYPE_CHECKING:
    from ops.conductor.rounds import RecursiveRollout


async def evaluate_in_rounds(
    conductor: Writer,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    limits: RoundLimits,
    *,
    seed: int = 0,
    fits: Fits | None = None,
    on_rollouts: Callable[[Sequence[RecursiveRollout], Sequence[Problem]], None] | None = None,
) -> list[ScoreRow]:
    """As `ops.evaluation.runner.evaluate`, in rounds within `limits`; a repeat is one set of questions, whose calls are
    bounded together.

    A row's steps, tokens, USD and seconds are those of all rounds; shape and pattern are those of the workflow whose
    answer stands. `fits` as in `recurse`. Raises as `evaluate` does.
    """
    from ops.conductor.rounds import roll_out_in_rounds

    async def write(prompts: list[list[Message]], repeat: int) -> list[str]:
        texts: list[str] = []
        for start in range(0, len(prompts), settings.batch):
            some = prompts[start : start + settings.batch]
            writing = partial(conductor.write, some, temperature=settings.temperature, seed=seed + repeat)
            try:
                texts += await asyncio.to_thread(writing)
            except PromptTooLongError as error:  # a first round's: `fits` leaves out the others
                problem = problems[start + error.index]
                raise PromptTooLongError.of(problem, error.tokens, error.limit) from None
        return texts

    rows: list[tuple[int, ScoreRow]] = []
    for repeat in range(settings.repeats):
        writing = partial(write, repeat=repeat)
        rollouts = await roll_out_in_rounds(problems, writing, team, limits, sample=repeat, fits=fits)
        if on_rollouts is not None:
            on_rollouts(rollouts, problems)
        made = zip(rollouts, problems, strict=True)
        rows += [(place, _row(rollout, problem, repeat)) for place, (rollout, problem) in enumerate(made)]
    return [row for _, row in sorted(rows, key=lambda placed: (placed[0], placed[1].repeat))]


def _row(rollout: RecursiveRollout, problem: Problem, repeat: int) -> ScoreRow:
    rounds, first = rollout.rounds, rollout.rounds.rounds[0].parsed
    workflow = rounds.workflow
    return ScoreRow(
        benchmark=problem.benchmark,
        problem_id=problem.id,
        repeat=repeat,
        domain=problem.domain,
        correct=int(rollout.outcome == "right"),
        format_ok=first.workflow is not None,
        failure=str(first.failure or ""),
        status=rounds.status if rounds.traces else NO_WORKFLOW,
        steps=sum(len(trace.workflow.steps) for trace in rounds.traces),
        workers=tuple(step.worker for trace in rounds.traces for step in trace.steps if step.is_paid),
        tokens=rounds.tokens,
        cost_usd=rounds.cost_usd,
        latency_s=rounds.latency_s,
        completion="\n\n".join(round_.text for round_ in rounds.rounds),
        answer=rounds.answer or "",
        unscorable=rollout.outcome == "unscorable",
        shape=shape(workflow) if workflow else "",
        pattern=pattern(workflow) if workflow else "",
        usage=tuple(use for trace in rounds.traces for use in usage_of(trace)),
        rounds=len(rounds.rounds),
        stop=rounds.stop,
        trace=rounds.id if rounds.traces else "",
    )
