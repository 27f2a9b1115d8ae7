"""The reward function that TRL calls, and the statistics of each step's rollouts.

A completion's reward is 0, 0.5 or 1 plus the recipe's reward terms, or None if its answer is not known.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ops.conductor.rollout import REWARDS, Rollout
from ops.config import Grpo
from ops.core.problem import Problem
from ops.training.rewards.outage import FirstStepCheck, OutagePolicy, execute_rollouts_with_retries
from ops.training.rewards.reward_term import weigh_terms
from ops.workflow.strategy import SHAPES, classify_shape, count_worker_use, measure_diversity, workflow_pattern
from ops.workflow.team import Team

FIRST_ROUND, SECOND_ROUND = "round_1", "round_2"
"""The names of first rounds and of recursive rounds in the statistics."""


def count_rounds(rollouts: Sequence[Rollout]) -> Counter[str]:
    """Count the first rounds (`round_1`), the recursive rounds (`round_2`) and the outcomes of each.

    `NAME/right` counts the rounds with a right answer. Four further counts describe the recursive rounds:
    `round_2/kept` counts those that keep the previous answer by three empty lists, `round_2/loops` those that repeat
    the previous workflow, `round_2/to_right` those that turn a wrong answer into a right one, and `round_2/to_wrong`
    those that do the opposite.
    """
    counts = Counter[str]()
    for rollout in rollouts:
        before, name = rollout.previous, FIRST_ROUND if rollout.previous is None else SECOND_ROUND
        counts[name] += 1
        counts[f"{name}/right"] += rollout.outcome == "right"
        if before is None:
            continue
        workflow = rollout.parsed.workflow
        kept = workflow is not None and workflow.is_empty
        counts[f"{name}/kept"] += kept
        counts[f"{name}/loops"] += rollout.has_kept_answer and not kept
        counts[f"{name}/to_right"] += (before.outcome, rollout.outcome) == ("wrong", "right")
        counts[f"{name}/to_wrong"] += (before.outcome, rollout.outcome) == ("right", "wrong")
    return counts


def round_shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Return each count as a share (0-1) of its round's rollouts, and the number of recursive rounds.

    The mapping is empty if there were no rounds.
    """
    if not counts:
        return {}
    of_rounds = {name: count / counts[name.partition("/")[0]] for name, count in counts.items() if "/" in name}
    return {f"{SECOND_ROUND}/rollouts": counts.get(SECOND_ROUND, 0), **of_rounds}


class WorkerSamples(NamedTuple):
    """Decides which sample of a worker's answers each rollout uses, so that rollouts can share or not share answers."""

    answers: int | Literal["every"] = 1
    """The number of different answers that a prompt has over all epochs. "every" gives each rollout an answer of its
    own."""
    group: int = 1
    """The number of rollouts per question."""
    rank: int = 0
    """The rank of this process."""

    @classmethod
    def from_settings(cls, grpo: Grpo) -> WorkerSamples:
        """Return the `WorkerSamples` that the GRPO settings ask for in this process."""
        return cls(grpo.worker_samples, grpo.rollouts_per_question, int(os.environ.get("RANK", "0")))

    def sample_indices(self, epoch: int, places: Iterable[int], rows: int | None = None) -> list[int]:
        """Return the sample index of each rollout at the given places among this process's rows.

        `rows` is the number of this process's rows; None means that `places` lists all of them. A problem is used once
        per epoch, so the epoch and a rollout's place in its group give a unique index. The rows of a group are
        consecutive over all ranks, and may be divided between two ranks.
        """
        here = list(places)
        if self.answers != "every":
            return [epoch % self.answers] * len(here)
        before = self.rank * (len(here) if rows is None else rows)
        return [epoch * self.group + (before + place) % self.group for place in here]


ONE_SAMPLE = WorkerSamples()
"""Gives every rollout of every epoch the same answer to the same prompt."""


TOP_PATTERNS = 10
"""The number of patterns that a step's statistics list as the most frequent ones."""
NO_WAITING = OutagePolicy(max_unscorable=1.0, total_s=0.0)
"""An outage policy that accepts a step even if every worker is unreachable."""
RewardFunction = Callable[..., Awaitable[list[float | None]]]
"""A function that TRL calls with a batch of completions and that returns a reward, or None, for each."""


@dataclass
class StepStatistics:
    """Statistics of a step's rollouts, kept as sums so that the statistics of several ranks can be added."""

    rollouts: int = 0
    """The number of rollouts."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of rollouts per outcome (`share/…`), per reason for an invalid workflow (`invalid/…`) and per shape of
    the workflow (`shape/…`)."""
    every_pattern: Counter[str] = field(default_factory=Counter)
    """The number of rollouts per pattern of the workflow (`ops.workflow.strategy.workflow_pattern`)."""
    planned_steps: int = 0
    """The number of steps of all well-formed workflows, whether they were executed or not."""
    calls: int = 0
    """The number of worker responses, including those from the response cache."""
    cached_calls: int = 0
    """The number of these responses that came from the response cache."""
    tokens: int = 0
    """Tokens of the worker responses and of their prompts."""
    cost_usd: float = 0.0
    """USD that the worker responses cost when they were first given."""
    seconds: float = 0.0
    """Seconds of waiting for workers. Ranks wait at the same time, so the longest wait counts when ranks are merged."""
    scorable: int = 0
    """The number of rollouts that have a reward."""
    terms: dict[str, float] = field(default_factory=dict)
    """The sum that each reward term added to the rewards of the scorable rollouts, by the term's name."""
    rounds: Counter[str] = field(default_factory=Counter)
    """The counts of first and recursive rounds (`count_rounds`). They are empty if the step has no recursive rounds."""
    worker_use: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of workflow steps that each worker was given, by domain and then by worker."""
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of rollouts with each outcome, by domain and then by outcome."""
    sample: str = ""
    """The text of one workflow whose answer was right. It is empty if there was none."""

    @property
    def top_patterns(self) -> dict[str, int]:
        """Return the `TOP_PATTERNS` most frequent patterns with their numbers of rollouts."""
        return dict(self.every_pattern.most_common(TOP_PATTERNS))

    @property
    def metrics(self) -> dict[str, float]:
        """Return one number per name: counts, shares of the rollouts in [0, 1], USD and seconds.

        `right_if_valid` is the share of right answers among the graded rollouts. `diversity` is the entropy of the
        patterns in bits. `term/…` is the mean contribution of a reward term to a scorable rollout.
        """
        patterns, entropy = measure_diversity(self.every_pattern.elements())
        graded = self.counts["share/right"] + self.counts["share/wrong"]
        return {
            "rollouts": self.rollouts,
            **{name: count / self.rollouts for name, count in self.counts.items()},
            **({"right_if_valid": self.counts["share/right"] / graded} if graded else {}),
            "patterns": patterns,
            "diversity": entropy,
            "steps": self.planned_steps / max(1, self.every_pattern.total()),
            "calls": self.calls,
            "calls/cached": self.cached_calls,
            "tokens": self.tokens,
            "cost_usd": self.cost_usd,
            "seconds/workers": self.seconds,
            **{f"term/{name}": total / max(1, self.scorable) for name, total in self.terms.items()},
            **round_shares(self.rounds),
        }


def merge_ranks(parts: Sequence[StepStatistics]) -> StepStatistics:
    """Return the statistics of one step over all ranks, given those of each rank."""
    whole = StepStatistics()
    for part in parts:
        whole.rollouts += part.rollouts
        whole.counts.update(part.counts)
        whole.every_pattern.update(part.every_pattern)
        whole.rounds.update(part.rounds)
        whole.planned_steps += part.planned_steps
        whole.calls += part.calls
        whole.cached_calls += part.cached_calls
        whole.tokens += part.tokens
        whole.cost_usd += part.cost_usd
        whole.scorable += part.scorable
        whole.seconds = max(whole.seconds, part.seconds)
        whole.sample = whole.sample or part.sample
    whole.terms = _sum_terms([part.terms for part in parts])
    whole.worker_use = _add_counts([part.worker_use for part in parts])
    whole.outcomes = _add_counts([part.outcomes for part in parts])
    return whole


def add_round(before: StepStatistics, after: StepStatistics) -> StepStatistics:
    """Return the statistics of two successive rounds of one step on one rank, whose waiting times are added."""
    both = merge_ranks([before, after])
    both.seconds = before.seconds + after.seconds
    return both


def _add_counts(parts: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Add nested counts (domain, then name) of several parts."""
    return count_worker_use(
        (domain, name)
        for part in parts
        for domain, counts in part.items()
        for name, count in counts.items()
        for _ in range(count)
    )


def summarize_rollouts(
    rollouts: Sequence[Rollout],
    problems: Sequence[Problem],
    seconds: float,
    contributions: Sequence[Mapping[str, float]] = (),
) -> StepStatistics:
    """Return the statistics of one batch of rollouts on the given problems.

    `seconds` is the time that the batch took. `contributions` holds what each reward term added to each rollout's
    reward.
    """
    workflows = [rollout.parsed.workflow for rollout in rollouts if rollout.parsed.workflow]
    traces = [rollout.trace for rollout in rollouts if rollout.trace]
    answers = [step for trace in traces for step in trace.steps if step.is_paid]
    used = count_worker_use(
        (problem.domain, step.worker)
        for rollout, problem in zip(rollouts, problems, strict=True)
        if rollout.trace
        for step in rollout.trace.steps
    )
    tally = Counter({f"share/{outcome}": 0 for outcome in REWARDS})
    tally.update({f"shape/{name}": 0 for name in SHAPES})
    tally.update(f"share/{rollout.outcome}" for rollout in rollouts)
    tally.update(f"invalid/{rollout.parsed.failure}" for rollout in rollouts if rollout.parsed.failure)
    tally.update(f"shape/{classify_shape(workflow)}" for workflow in workflows)
    return StepStatistics(
        rollouts=len(rollouts),
        counts=tally,
        every_pattern=Counter(map(workflow_pattern, workflows)),
        planned_steps=sum(len(workflow.steps) for workflow in workflows),
        calls=len(answers),
        cached_calls=sum(step.response.cached for step in answers),
        tokens=sum(step.response.prompt_tokens + step.response.completion_tokens for step in answers),
        cost_usd=sum(trace.cost_usd for trace in traces),
        seconds=seconds,
        scorable=sum(rollout.reward is not None for rollout in rollouts),
        terms=_sum_terms(contributions),
        worker_use=used,
        outcomes=count_worker_use(
            (problem.domain, rollout.outcome) for rollout, problem in zip(rollouts, problems, strict=True)
        ),
        sample=next((r.text for r in reversed(rollouts) if r.outcome == "right"), ""),
    )


def _sum_terms(added: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of each reward term over all rollouts."""
    totals: dict[str, float] = {}
    for contribution in added:
        for name, value in contribution.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def build_reward_function(
    problems: Mapping[str, Problem],
    team: Team,
    on_batch: Callable[[StepStatistics], None],
    weights: Mapping[str, float] | None = None,
    worker_samples: WorkerSamples = ONE_SAMPLE,
    ends: Collection[int] = (),
    outage_policy: OutagePolicy = NO_WAITING,
    *,
    renumbered: bool = False,
    first_step: FirstStepCheck | None = None,
) -> RewardFunction:
    """Return the async function that TRL calls for rewards (its `reward_funcs`).

    TRL's data set must have the columns `problem` (the problem's key) and `epoch`. If it also has a column `offered`,
    each question's prompt offered only the workers with these ordinals, and every rollout is parsed and executed
    accordingly. With `renumbered`, the offered workers are counted from 0 in the order of the column.

    `weights` maps each reward term to its weight. Without weights the reward is 0, 0.5 or 1. `ends` holds the ids of
    the tokens that end a completion. A completion without such a token was cut off and counts as invalid, because the
    policy would not learn to end its text if a text that goes on after its lists earned the same reward. If `ends` is
    empty, every completion counts as ended. `first_step` checks the first batch; None accepts any first step.

    `on_batch` receives the statistics of each batch, unless the caller of the function passes another callback as
    `seen`. Overlapping trainers do so, because two batches may end in either order.

    The function raises `Outage` if workers are unreachable for longer than `outage_policy` allows, and
    `InvalidFirstStep` if the check of the first step fails.
    """

    async def workflow_reward(
        completions: list[Any],
        problem: list[str],
        epoch: list[int],
        completion_ids: Sequence[Sequence[int]] = (),
        offered: list[list[int]] | None = None,
        seen: Callable[[StepStatistics], None] = on_batch,
        **_: Any,
    ) -> list[float | None]:
        started = time.perf_counter()
        samples = worker_samples.sample_indices(epoch[0], range(len(problem)))  # all rows of a step belong to one epoch
        teams = (
            [team] * len(problem) if offered is None else [team.restrict_to(e, renumbered=renumbered) for e in offered]
        )
        batch = [problems[name] for name in problem]
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        cut_off = {i for i, ids in enumerate(completion_ids) if ends and (not ids or ids[-1] not in ends)}
        if first_step is not None:
            first_step.check(texts, teams, cut_off)
        rollouts = await execute_rollouts_with_retries(
            texts, batch, teams, outage_policy, sample=samples, cut_off=cut_off
        )
        added = [weigh_terms(rollout, weights or {}) for rollout in rollouts]
        seen(summarize_rollouts(rollouts, batch, time.perf_counter() - started, added))
        return [
            None if rollout.reward is None else rollout.reward + sum(terms.values())
            for rollout, terms in zip(rollouts, added, strict=True)
        ]

    return workflow_reward
