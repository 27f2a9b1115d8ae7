"""Strategy emergence: when each pattern first appeared in GRPO, and the diversity of patterns beside the reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

from ops.core.charts import render_png
from ops.evaluation.arms import Findings
from ops.evaluation.study import TrainingRecord, observation
from ops.results.leaderboard import TableData, chart_strategies

LISTED_PATTERNS = 50
"""The number of patterns in the detailed table."""
WINDOWS = 10
"""The number of rows in the summary: equal parts of the training, in order."""
PATTERNS_FIELD = "every_pattern"
"""The field of a line of the training curve with pattern → rollouts of that step with the pattern."""

CurveLine = Mapping[str, Any]


class Appearance(NamedTuple):
    """The occurrence of one pattern in a training."""

    pattern: str
    step: int
    """The step in which the pattern was first written."""
    rollouts: int
    """The number of rollouts with the pattern in the whole training."""
    rollouts_at_end: int
    """The number of rollouts with the pattern in the last tenth of the steps."""


def list_appearances(curve: Sequence[CurveLine]) -> list[Appearance]:
    """Return every pattern in the order of first appearance; within a step, the more frequent pattern comes first."""
    first: dict[str, int] = {}
    totals: Counter[str] = Counter()
    end: Counter[str] = Counter()
    for place, line in enumerate(curve):
        for pattern in sorted(line[PATTERNS_FIELD], key=lambda pattern: (-line[PATTERNS_FIELD][pattern], pattern)):
            first.setdefault(pattern, line["step"])
        totals.update(line[PATTERNS_FIELD])
        if place >= len(curve) - max(1, len(curve) // WINDOWS):
            end.update(line[PATTERNS_FIELD])
    return [Appearance(pattern, step, totals[pattern], end[pattern]) for pattern, step in first.items()]


@observation(
    "Strategy emergence",
    50,
    about=f"the first {LISTED_PATTERNS} distinct patterns of GRPO's rollouts and the step in which each appeared; the "
    "patterns' entropy beside the reward",
    after="conductor",
)
def strategy_emergence(record: TrainingRecord) -> Findings:
    """Tabulate reward, entropy and new patterns by tenth of the training, and the first distinct patterns by step."""
    curve = record.curve
    every = list_appearances(curve)
    listed = every[:LISTED_PATTERNS]
    details: list[list[str | int | float]] = [list(each) for each in listed]
    last = listed[-1].step if listed else 0
    said = (
        f"Of every rollout: {len(every)} distinct patterns, the first {len(listed)} of them by step {last}, "
        f"{sum(each.rollouts_at_end > 0 for each in listed)} of those still written in the last tenth of the steps."
    )
    return Findings(
        summary=TableData(
            ["steps", "reward", "entropy of the patterns, bits", "distinct patterns a step", "new patterns"],
            [_summarize_window(part, every) for part in _split_into_windows(curve)],
        ),
        details=TableData(["pattern", "first step", "rollouts", "in the last tenth"], details),
        note=said,
        picture=render_png(chart_strategies(curve)),
    )


def _split_into_windows(curve: Sequence[CurveLine]) -> list[list[CurveLine]]:
    placed = groupby(enumerate(curve), lambda each: each[0] * WINDOWS // len(curve))
    return [[line for _, line in part] for _, part in placed]


def _summarize_window(part: Sequence[CurveLine], every: Sequence[Appearance]) -> list[str | int | float]:
    steps = {line["step"] for line in part}
    rewards = [line["reward"] for line in part if line["reward"] is not None]
    return [
        f"{min(steps)} to {max(steps)}",
        f"{fmean(rewards):.3f}" if rewards else "–",
        f"{fmean(line['diversity'] for line in part):.2f}",
        f"{fmean(line['patterns'] for line in part):.0f}",
        sum(each.step in steps for each in every),
    ]
