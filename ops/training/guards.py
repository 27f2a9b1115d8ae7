"""Guards over a finished run's curve: each guard detects one way in which GRPO can fail.

The mean reward alone does not show these failures. It rises even while the policy learns the format only, uses a single
worker, or writes the same workflow for every question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ops.config import Guards, Setup
from ops.core.errors import DataError
from ops.training.run.training_run import CURVE_FILE, RunPlan, read_curve
from ops.workflow.cards import load_cards

Row = Mapping[str, Any]
"""A line of `curve.jsonl`."""


class GuardResult(NamedTuple):
    """What one guard found in a run, in words, and whether this is within the guard's threshold."""

    passed: bool
    """True if the finding is within the threshold."""
    finding: str
    """What the guard found, in words."""
    threshold: str
    """The threshold in words."""


class GuardFinding(NamedTuple):
    """A guard's result on one run, together with the guard's name and the remedy."""

    guard: str
    """The name of the guard."""
    passed: bool
    """True if the finding is within the threshold."""
    finding: str
    """What the guard found, in words."""
    threshold: str
    """The threshold in words."""
    remedy: str
    """What the user can do if the finding is outside the threshold."""

    def __str__(self) -> str:
        """Return the finding in one line, with the remedy if it is outside the threshold."""
        line = f"{self.finding} (threshold: {self.threshold})"
        return line if self.passed else f"{line}. {self.remedy}"


@dataclass(frozen=True)
class GuardEvidence:
    """What the guards judge: the steps of a run in order, the thresholds, and the measured accuracy of the workers."""

    rows: Sequence[Row]
    """The lines of the run's curve, one per step."""
    guards: Guards
    """The thresholds of the recipe."""
    solo_accuracy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The accuracy of each worker alone, in [0, 1], by domain and then by worker. It is empty if it was not
    measured."""
    from_champion: bool = False
    """True if the run fine-tunes a champion for a changed pool."""

    @property
    def window(self) -> int:
        """Return the number of steps that count as the beginning, and as the end, of the run."""
        return max(1, min(self.guards.window, len(self.rows) // 2))

    @property
    def first(self) -> Sequence[Row]:
        """Return the first `window` steps."""
        return self.rows[: self.window]

    @property
    def last(self) -> Sequence[Row]:
        """Return the last `window` steps."""
        return self.rows[-self.window :]


class Guard(NamedTuple):
    """A check of a finished run: what it checks and its remedy, both in words, and the function that judges a run."""

    about: str
    """A sentence that says what a healthy run looks like."""
    remedy: str
    """What the user can do if a run fails the check."""
    assess: Callable[[GuardEvidence], GuardResult]
    """The function that judges a run."""


def check_guards(evidence: GuardEvidence) -> list[GuardFinding]:
    """Return the finding of every guard, in the order of `GUARDS`. Raises `ValueError` for a run without a step."""
    if not evidence.rows:
        raise ValueError("a run without a step shows nothing")
    return [GuardFinding(name, *guard.assess(evidence), guard.remedy) for name, guard in GUARDS.items()]


def _format_failures(evidence: GuardEvidence) -> GuardResult:
    """Judge the share of invalid completions at the end of the run."""
    before, after = _mean(evidence.first, "share/invalid"), _mean(evidence.last, "share/invalid")
    limit = evidence.guards.max_invalid
    reasons = Counter[str]()
    for row in evidence.last:
        reasons.update({name: share for name, share in row.items() if name.startswith("invalid/")})
    commonest = f", most often {reasons.most_common(1)[0][0].removeprefix('invalid/')}" if reasons.total() else ""
    saw = f"{after:.1%} of the completions are no workflow{commonest}; {before:.1%} at the beginning"
    return GuardResult(not after > limit, saw, f"at most {limit:.0%}")


def _one_worker(evidence: GuardEvidence) -> GuardResult:
    """Judge the largest share of the steps that one worker is given in every domain."""
    limit, use = evidence.guards.max_worker_share, _count_worker_use(evidence.last)
    threshold = f"at most {limit:.0%} in the domain where it is used least"
    workers = {name for used in use.values() for name in used}
    least = {name: min(used[name] / used.total() for used in use.values()) for name in workers}
    if not least:
        return GuardResult(True, "no worker was given a step", threshold)
    name, share = max(least.items(), key=lambda item: item[1])
    saw = f"{name} is given at least {share:.1%} of the steps in every domain ({', '.join(sorted(use))})"
    return GuardResult(not share > limit, saw, threshold)


def _worker_mismatch(evidence: GuardEvidence) -> GuardResult:
    """Judge how much less accurate alone the most used worker of a domain is than the domain's best worker."""
    limit = evidence.guards.max_worker_gap
    threshold = f"at most {100 * limit:.0f} points below the best worker there"
    gaps = []
    for domain, used in _count_worker_use(evidence.last).items():
        alone, chosen = evidence.solo_accuracy.get(domain, {}), used.most_common(1)[0][0]
        if chosen in alone:
            best = max(alone, key=lambda name: alone[name])
            gaps.append((alone[best] - alone[chosen], domain, chosen, best))
    if not gaps:
        return GuardResult(True, "the workers were not measured alone", threshold)
    gap, domain, chosen, best = max(gaps)
    alone = evidence.solo_accuracy[domain]
    saw = f"{domain}: {chosen} is used most, alone right on {alone[chosen]:.1%}; {best} on {alone[best]:.1%}"
    return GuardResult(not gap > limit, saw, threshold)


def _one_pattern(evidence: GuardEvidence) -> GuardResult:
    """Judge the share of the workflows at the end that have the most frequent pattern."""
    limit, patterns = evidence.guards.max_pattern_share, Counter[str]()
    for row in evidence.last:
        patterns.update(row["top_patterns"])
    workflows = sum(row["rollouts"] * (1 - row["share/invalid"]) for row in evidence.last)
    if not patterns:
        return GuardResult(True, "no workflow was written", f"at most {limit:.0%}")
    commonest, count = patterns.most_common(1)[0]
    share = count / workflows
    saw = f"{share:.1%} of the workflows have the pattern {commonest!r} (worker<steps that it sees)"
    return GuardResult(not share > limit, saw, f"at most {limit:.0%}")


def _routing_entropy(evidence: GuardEvidence) -> GuardResult:
    """Judge how much of the patterns' entropy in the first steps is left at the end."""
    before, after = _mean(evidence.first, "diversity"), _mean(evidence.last, "diversity")
    limit = evidence.guards.min_entropy_kept
    saw = f"the patterns' entropy went from {before:.2f} to {after:.2f} bits"
    return GuardResult(not after < limit * before, saw, f"at least {limit:.0%} of the first")


def _right_if_valid_rises(evidence: GuardEvidence) -> GuardResult:
    """Judge the rise of the share of right answers among valid workflows.

    A fine-tuning is not judged. It starts from a champion that is trained already, and its purpose is to make the
    champion usable with a changed pool. After a worker was removed, it has to restore the format and can succeed
    without such a rise.
    """
    before, after = _right_if_valid(evidence.first), _right_if_valid(evidence.last)
    limit = evidence.guards.min_gain
    saw = f"of the valid workflows {_percent(before)} were right at the beginning and {_percent(after)} at the end"
    if evidence.from_champion:
        return GuardResult(True, saw, "none for a fine-tuning, which adapts a trained champion to a changed pool")
    return GuardResult(not after - before < limit, saw, f"a rise of at least {100 * limit:.0f} points")


def _unscorable(evidence: GuardEvidence) -> GuardResult:
    """Judge the share of rollouts without a reward over the whole run."""
    share, limit = _mean(evidence.rows, "share/unscorable"), evidence.guards.max_unscorable
    worst = max(evidence.rows, key=lambda row: row["share/unscorable"])
    saw = f"{share:.1%} of all rollouts have no reward, {worst['share/unscorable']:.1%} in step {worst['step']}"
    return GuardResult(not share > limit, saw, f"at most {limit:.0%}")


def _recursion_loops(evidence: GuardEvidence) -> GuardResult:
    """Judge the share of recursive rounds that repeat the previous workflow or, on balance, turn right answers into
    wrong ones."""
    limit = evidence.guards.max_loops
    rows = [row for row in evidence.last if row.get("round_2/rollouts")]
    if not rows:
        return GuardResult(True, "there are no recursive rounds", f"at most {limit:.0%}")
    loops, right, wrong = (_mean(rows, f"round_2/{name}") for name in ("loops", "to_right", "to_wrong"))
    saw = (
        f"of the recursive rounds {loops:.1%} repeat the workflow before, {wrong:.1%} make a right answer wrong and "
        f"{right:.1%} a wrong one right"
    )
    lost = loops + max(0.0, wrong - right)
    return GuardResult(not lost > limit, saw, f"at most {limit:.0%} repeat, or lose net of gains")


def _zero_variance(evidence: GuardEvidence) -> GuardResult:
    """Judge the share of groups at the end in which all rewards are equal."""
    before, after = _mean(evidence.first, "zero_variance_groups"), _mean(evidence.last, "zero_variance_groups")
    limit = evidence.guards.max_zero_variance
    saw = f"in {_percent(after)} of the groups all rewards are alike; {_percent(before)} at the beginning"
    return GuardResult(not after > limit, saw, f"at most {limit:.0%}")


def _mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of the rows' values of `name`. If no row has a value, return NaN, which passes every guard."""
    values = [float(row[name]) for row in rows if row.get(name) is not None and not math.isnan(row[name])]
    return math.fsum(values) / len(values) if values else math.nan


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.1%}"


def _right_if_valid(rows: Sequence[Row]) -> float:
    """Return the share (0-1) of right answers among graded rollouts, or NaN if there are none."""
    right = math.fsum(row["share/right"] for row in rows)
    graded = right + math.fsum(row["share/wrong"] for row in rows)
    return right / graded if graded else math.nan


def _count_worker_use(rows: Sequence[Row]) -> dict[str, Counter[str]]:
    """Return the number of steps that each worker was given in each domain, without domains in which no worker was
    called."""
    use: dict[str, Counter[str]] = {}
    for row in rows:
        for domain, used in row["use"].items():
            use.setdefault(domain, Counter()).update(used)
    return {domain: used for domain, used in use.items() if used.total()}


GUARDS = {
    "format_failures": Guard(
        "The share of completions that are not valid workflows should be small",
        "Give the cold start more steps, show examples in the prompt, or raise grpo.max_completion_tokens if texts are "
        "cut off",
        _format_failures,
    ),
    "one_worker": Guard(
        "The Conductor should not use the same worker in every domain",
        "Compare the Conductor with this worker alone (leaderboard), and try more grpo.entropy or a cost term in "
        "grpo.reward_terms",
        _one_worker,
    ),
    "worker_mismatch": Guard(
        "The worker that is used most in a domain should be about as accurate there as the best one",
        "Look at worker_profiles for each domain, and try more grpo.steps, or prompting.cards, which shows the "
        "accuracy of workers in the prompt",
        _worker_mismatch,
    ),
    "one_pattern": Guard(
        "The workflows should differ between questions, and not all have the same workers and access",
        "Take an earlier checkpoint, or train again with more grpo.entropy or a smaller grpo.learning_rate",
        _one_pattern,
    ),
    "routing_entropy": Guard(
        "A part of the variety of workflows in the first steps should be left at the end",
        "Try fewer grpo.steps, a smaller grpo.learning_rate, or more grpo.entropy",
        _routing_entropy,
    ),
    "right_if_valid_rises": Guard(
        "The accuracy of valid workflows should rise. Otherwise the reward rises only because more workflows are valid",
        "Look at signal_forecast and zero_variance, and try harder or easier questions, larger groups or a better cold "
        "start",
        _right_if_valid_rises,
    ),
    "unscorable": Guard(
        "Only few rollouts should have no reward because their workers could not be reached",
        "Look for the worker in trainer.log, and at its limits, time-out and retries in the pool",
        _unscorable,
    ),
    "recursion_loops": Guard(
        "Only few recursive rounds should repeat a workflow or turn right answers into wrong ones",
        "Try fewer limits.rounds (podium study rounds measures each number), or more recursive.steps",
        _recursion_loops,
    ),
    "zero_variance": Guard(
        "Only some groups should have equal rewards, because GRPO learns nothing from them",
        "Stop earlier (grpo.stop_without_signal), or choose questions whose rewards differ more (grpo.sampling, "
        "curation.selector, curation.shortlist_factor)",
        _zero_variance,
    ),
}
"""The guards by name. The asset check of a guard has the same name."""


def check_run_guards(setup: Setup, folder: Path) -> list[GuardFinding]:
    """Return the findings of all guards on the run in `folder`, with the recipe's current thresholds.

    Raises `DataError` if the run has no step yet.
    """
    if not (rows := read_curve(folder)):
        raise DataError(folder / CURVE_FILE, "", "has no training step", "Train first: materialize conductor")
    plan = RunPlan.read(folder)
    solo_accuracy = _read_solo_accuracy(setup, plan.offered)
    return check_guards(GuardEvidence(rows, setup.recipe.guards, solo_accuracy, plan.from_champion))


def _read_solo_accuracy(setup: Setup, offered: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return the accuracy of each worker alone, by domain and then by worker.

    The mapping is empty unless worker profiles exist for all offered workers.
    """
    try:
        cards = load_cards(setup.workspace.data, offered)
    except DataError:
        return {}
    alone: dict[str, dict[str, float]] = {}
    for name, card in zip(offered, cards, strict=True):
        for domain, accuracy in card.accuracy.items():
            alone.setdefault(domain, {})[name] = accuracy
    return alone
