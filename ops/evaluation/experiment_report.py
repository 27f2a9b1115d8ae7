"""What a person sees of an experiment: its table, its picture, its part of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.evaluation.report import Columns, figure_of, percent, png_of
from ops.evaluation.rows import ScoreRow
from ops.evaluation.statistics import MeanEstimate
from ops.evaluation.subsets import accuracy, difference

AS_IT_IS = "the policy as it is"
HEAD = ["workflows", "changed, %", "in-domain, %", "in-domain minus as it is, points", "unseen, %",
        "unseen minus as it is, points", "calls a question", "USD a question"]  # fmt: skip


class ArmRows(NamedTuple):
    """What the workflows of one arm gave."""

    name: str
    changed: float
    """Share of the policy's workflows that the arm made others of, in [0, 1]."""
    rows: Sequence[ScoreRow]


def intervention_table(as_it_is: Sequence[ScoreRow], arms: Sequence[ArmRows]) -> Columns:
    """A row for the policy as it is and one an arm: means over benchmarks, differences paired by question."""
    lines = [_line(ArmRows(AS_IT_IS, 0.0, as_it_is), None), *(_line(arm, as_it_is) for arm in arms)]
    return Columns(HEAD, lines)


def _line(arm: ArmRows, base: Sequence[ScoreRow] | None) -> list[str | int | float]:
    cells: list[str | int | float] = [arm.name, "–" if base is None else f"{100 * arm.changed:.0f}"]
    for names in benchmark_groups(arm.rows).values():
        own = percent(accuracy([arm.rows], names))
        cells += [own, "–" if base is None else percent(difference([arm.rows], [base], names))]
    scored = [row for row in arm.rows if not row.unscorable]
    if not scored:
        return [*cells, "–", "–"]
    calls, usd = fmean(len(row.workers) for row in scored), fmean(row.cost_usd for row in scored)
    return [*cells, f"{calls:.2f}", f"{usd:.6f}"]


def intervention_picture(as_it_is: Sequence[ScoreRow], arms: Sequence[ArmRows]) -> bytes:
    """PNG: each arm minus the policy as it is, in-domain and unseen, with standard errors."""
    own = {name: names for name, names in benchmark_groups(as_it_is).items() if names}
    differences = {
        arm.name: {group: difference([arm.rows], [as_it_is], names) for group, names in own.items()} for arm in arms
    }
    return bars(differences, "minus the policy as it is, in points")


def bars(estimates: Mapping[str, Mapping[str, MeanEstimate]], unit: str) -> bytes:
    """PNG: a bar for each estimate of each group, in per cent or points, with its standard error."""
    groups = list(dict.fromkeys(group for each in estimates.values() for group in each))
    figure, axes = figure_of(unit, "", width=8.0, height=1.2 + 0.45 * len(estimates))
    thick = 0.8 / max(1, len(groups))
    for place, group in enumerate(groups):
        own = [each[group] for each in estimates.values()]
        axes.barh(
            [row + thick * (place - (len(groups) - 1) / 2) for row in range(len(own))],
            [100 * each.mean for each in own],
            thick,
            xerr=[0.0 if math.isnan(each.standard_error) else 100 * each.standard_error for each in own],
            label=group,
            color=("#1f5a8a", "#9db4c8")[place % 2],
            capsize=2,
        )
    axes.set_yticks(range(len(estimates)), list(estimates), fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="#1f2933", linewidth=0.8)
    if len(groups) > 1:
        axes.legend(frameon=False, fontsize=8)
    return png_of(figure)


def markdown(columns: Columns) -> str:
    """A table as a page has it."""
    lines = [f"| {' | '.join(columns.head)} |", f"|{' --- |' * len(columns.head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in columns.rows)]) + "\n"


def benchmark_groups(rows: Sequence[ScoreRow]) -> dict[str, list[str]]:
    """The benchmarks that the rows are of, trained on and unseen."""
    asked = {row.benchmark for row in rows}
    return {
        "in-domain": [name for name in training_benchmarks() if name in asked],
        "unseen": [name for name in unseen_benchmarks() if name in asked],
    }
