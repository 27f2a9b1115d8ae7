"""The training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ops.core.charts import LineChart
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit

WINDOW_STEPS = 10
"""Number of steps in the curves' running means and in each end of the table."""
STAGE_TITLES = {"conductor": "GRPO", "adaptive_conductor": "on subsets", "recursive_conductor": "in rounds"}
SHARE_TITLES = {"right_if_valid": "right, given valid", "valid": "valid workflows", "share/right": "right"}
"""Column of the curve → its name in the report."""
Curve = Sequence[Mapping[str, Any]]


@exhibit(
    "Training: reward, validity, correctness given validity, diversity",
    100,
    shows=f"Means over the rollouts of a step. Each point is the mean of the last {WINDOW_STEPS} steps. The reward is "
    "0 without a valid workflow, 0.5 for a wrong answer and 1 for a right one, before the recipe's reward "
    "terms.",
    paper="its training curves",
    needs=("curve",),
)
def training(evidence: Evidence) -> ExhibitContent:
    """Three charts per stage and a table of its first and last steps; reward means omit steps without a reward."""
    parts: list[LineChart | Table] = []
    rows: list[list[Cell]] = []
    steps = 0
    for stage, curve in evidence.curves.items():
        if not curve:
            continue
        name, steps = STAGE_TITLES.get(stage, stage), steps + len(curve)
        rewards = {"reward": _running_mean(curve, "reward")}
        parts += [
            LineChart(f"{name}: reward", "training step", "mean reward of a rollout", rewards, None),
            LineChart(f"{name}: validity and correctness", "training step", "share of rollouts in %",
                  {label: _running_mean(curve, key, 100) for key, label in SHARE_TITLES.items()}, 0, 103),
            LineChart(f"{name}: diversity", "training step", "entropy of the patterns in bits",
                  {"diversity": _running_mean(curve, "diversity")}),
        ]  # fmt: skip
        ends = {"first": curve[:WINDOW_STEPS], "last": curve[-WINDOW_STEPS:]}
        rows += [[name, f"{end} {len(part)}", *_means(part)] for end, part in ends.items()]
    head = ["stage", "steps", "reward", "valid, %", "right, given valid, %", "right, %", "diversity, bits",
            "steps a workflow", "groups all alike, %"]  # fmt: skip
    return ExhibitContent(
        [*parts, Table("The two ends", head, rows)], f"{steps} steps, {_count_rollouts(evidence):,} rollouts"
    )


def _value(row: Mapping[str, Any], key: str) -> float | None:
    if key == "valid":
        return 1.0 - float(row["share/invalid"])
    value = row.get(key)
    return None if value is None else float(value)


def _running_mean(curve: Curve, key: str, scale: float = 1.0) -> tuple[list[float], list[float]]:
    known = [(row["step"], scale * value) for row in curve if (value := _value(row, key)) is not None]
    values = [value for _, value in known]
    means = [fmean(values[max(0, place - WINDOW_STEPS + 1) : place + 1]) for place in range(len(values))]
    return [step for step, _ in known], means


def _means(part: Curve) -> list[str]:
    def mean(key: str, form: str, scale: float = 1.0) -> str:
        values = [value for row in part if (value := _value(row, key)) is not None]
        return format(scale * fmean(values), form) if values else "–"

    return [
        mean("reward", ".3f"), mean("valid", ".1f", 100), mean("right_if_valid", ".1f", 100),
        mean("share/right", ".1f", 100), mean("diversity", ".2f"), mean("steps", ".2f"),
        mean("zero_variance_groups", ".1f", 100),
    ]  # fmt: skip


def _count_rollouts(evidence: Evidence) -> int:
    return sum(row["rollouts"] for curve in evidence.curves.values() for row in curve)
