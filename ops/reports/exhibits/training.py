"""The training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ops.core.charts import LineChart
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, Shown, Table, exhibit

WINDOW = 10
"""Number of steps in the curves' running means and in each end of the table."""
STAGES = {"conductor": "GRPO", "adaptive_conductor": "on subsets", "recursive_conductor": "in rounds"}
SHARES = {"right_if_valid": "right, given valid", "valid": "valid workflows", "share/right": "right"}
"""Column of the curve → its name in the report."""
Curve = Sequence[Mapping[str, Any]]


@exhibit(
    "Training: reward, validity, correctness given validity, diversity",
    100,
    shows=f"Means over the rollouts of a step. Each point is the mean of the last {WINDOW} steps. The reward is 0 "
    "without a valid workflow, 0.5 for a wrong answer and 1 for a right one, before the recipe's reward "
    "terms.",
    paper="its training curves",
    needs=("curve",),
)
def training(evidence: Evidence) -> Shown:
    """Three charts per stage and a table of its first and last steps; reward means omit steps without a reward."""
    parts: list[LineChart | Table] = []
    rows: list[list[Cell]] = []
    steps = 0
    for stage, curve in evidence.curves.items():
        if not curve:
            continue
        name, steps = STAGES.get(stage, stage), steps + len(curve)
        rewards = {"reward": _smooth(curve, "reward")}
        parts += [
            LineChart(f"{name}: reward", "training step", "mean reward of a rollout", rewards, None),
            LineChart(f"{name}: validity and correctness", "training step", "share of rollouts in %",
                  {label: _smooth(curve, key, 100) for key, label in SHARES.items()}, 0, 103),
            LineChart(f"{name}: diversity", "training step", "entropy of the patterns in bits",
                  {"diversity": _smooth(curve, "diversity")}),
        ]  # fmt: skip
        ends = {"first": curve[:WINDOW], "last": curve[-WINDOW:]}
        rows += [[name, f"{end} {len(part)}", *_means(part)] for end, part in ends.items()]
    head = ["stage", "steps", "reward", "valid, %", "right, given valid, %", "right, %", "diversity, bits",
            "steps a workflow", "groups all alike, %"]  # fmt: skip
    return Shown([*parts, Table("The two ends", head, rows)], f"{steps} steps, {_rollouts(evidence):,} rollouts")


def _value(row: Mapping[str, Any], key: str) -> float | None:
    if key == "valid":
        return 1.0 - float(row["share/invalid"])
    value = row.get(key)
    return None if value is None else float(value)


def _smooth(curve: Curve, key: str, scale: float = 1.0) -> tuple[list[float], list[float]]:
    known = [(row["step"], scale * value) for row in curve if (value := _value(row, key)) is not None]
    values = [value for _, value in known]
    means = [fmean(values[max(0, place - WINDOW + 1) : place + 1]) for place in range(len(values))]
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


def _rollouts(evidence: Evidence) -> int:
    return sum(row["rollouts"] for curve in evidence.curves.values() for row in curve)
