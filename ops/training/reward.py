"""The reward as TRL calls it: completions in, 0 / 0.5 / 1 / None out, and what was seen on the way.

What belongs here: the bridge from TRL's reward signature to `ops.rollout`, and the
statistics of a step. What does not: how a rollout is executed or graded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops.config import Execution, Prompting, Worker
from ops.problem import Problem
from ops.rollout import REWARDS, Rollout, roll_out
from ops.workers.client import WorkerClient
from ops.workflow.strategy import SHAPES, diversity, pattern, shape, use

TOP = 10
"""Patterns that a step's statistics name."""
RewardFunction = Callable[..., Awaitable[list[float | None]]]


@dataclass
class StepStatistics:
    """What one batch of rollouts showed: shares in [0, 1], USD and seconds per batch."""

    values: dict[str, float] = field(default_factory=dict)
    sample: str = ""
    """A workflow that was right, as its text."""
    use: dict[str, dict[str, int]] = field(default_factory=dict)
    """Domain → worker → steps given to it."""
    patterns: dict[str, int] = field(default_factory=dict)
    """The most frequent patterns (`ops.workflow.strategy.pattern`) → rollouts."""


def summarize(rollouts: Sequence[Rollout], problems: Sequence[Problem], seconds: float) -> StepStatistics:
    """Rates of each outcome and of each way to fail, mean steps, cost, strategies and worker use.

    `diversity` is the entropy of the patterns in bits.
    """
    workflows = [rollout.parsed.workflow for rollout in rollouts if rollout.parsed.workflow]
    traces = [rollout.trace for rollout in rollouts if rollout.trace]
    used = use(
        (problem.domain, step.worker)
        for rollout, problem in zip(rollouts, problems, strict=True)
        if rollout.trace
        for step in rollout.trace.steps
    )
    patterns = Counter(map(pattern, workflows))
    tally = Counter({f"share/{outcome}": 0 for outcome in REWARDS})
    tally.update({f"shape/{name}": 0 for name in SHAPES})
    tally.update(f"share/{rollout.outcome}" for rollout in rollouts)
    tally.update(f"invalid/{rollout.parsed.failure}" for rollout in rollouts if rollout.parsed.failure)
    tally.update(f"shape/{shape(workflow)}" for workflow in workflows)
    values = {name: count / len(rollouts) for name, count in tally.items()}
    values["patterns"], values["diversity"] = diversity(patterns.elements())
    values["steps"] = sum(len(workflow.steps) for workflow in workflows) / max(1, len(workflows))
    values["cost_usd"] = sum(trace.cost_usd for trace in traces)
    values["seconds/workers"] = seconds
    sample = next((r.text for r in reversed(rollouts) if r.outcome == "right"), "")
    return StepStatistics(values, sample, used, dict(patterns.most_common(TOP)))


def reward_function(
    problems: Mapping[str, Problem],
    offered: Sequence[Worker],
    client: WorkerClient,
    prompting: Prompting,
    on_batch: Callable[[StepStatistics], None],
    settings: Execution | None = None,
) -> RewardFunction:
    """An async function for TRL's `reward_funcs`; the data set must have a column `problem` of keys."""

    async def workflow_reward(completions: list[Any], problem: list[str], **_: Any) -> list[float | None]:
        started = time.perf_counter()
        asked = [problems[name] for name in problem]
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        rollouts = await roll_out(texts, asked, offered, client, prompting, settings=settings)
        on_batch(summarize(rollouts, asked, time.perf_counter() - started))
        return [rollout.reward for rollout in rollouts]

    return workflow_reward
