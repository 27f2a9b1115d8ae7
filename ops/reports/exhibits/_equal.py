"""Shared code of the comparisons at equal price and at equal number of calls."""

from __future__ import annotations

from collections.abc import Callable

from ops.reports.claims import contrast_systems
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, ExhibitContent, Table, format_accuracy, format_p_value, format_points
from ops.reports.prices import Measure, find_best_within
from ops.results.statistics import OVERALL

SELECTION_NOTE = (
    "The opponent was chosen as the best on these same questions, which favours it; the interval and p-value (of this "
    "difference alone) do not make up for that."
)


def compare_with_best(
    evidence: Evidence, measure: Measure, unit: str, whole_word: str, format_value: Callable[[float], str]
) -> ExhibitContent:
    """A table per group: the Conductor, the best opponent within its price or calls, and the best opponent overall.

    Raises `ValueError` without scores of the Conductor.
    """
    ours = evidence.conductor
    if ours is None:
        raise ValueError("a comparison at equal means needs the Conductor's scores")
    rows: list[list[Cell]] = []
    said = []
    for group, over in evidence.groups.items():
        means = measure(ours.mean_usage(over))
        within = find_best_within(evidence.opponents, over, measure, means)
        rows.append(
            [group, "Conductor", ours.title, format_accuracy(ours.mean_accuracy(over)), format_value(means), "", "", ""]
        )
        lines = {
            f"best at no more {unit}": within,
            f"best at any {whole_word}": find_best_within(evidence.opponents, over, measure),
        }
        rows += [_row(evidence, ours, group, label, chosen, measure, format_value) for label, chosen in lines.items()]
        if within is None:
            said.append(f"{group.capitalize()} no opponent takes as little as the Conductor.")
        else:
            ahead = ours.mean_accuracy(over).mean - within.mean_accuracy(over).mean
            side = "above" if ahead > 0 else "below"
            best = f"the best at no more {unit}, {within.title}"
            said.append(f"{group.capitalize()} the Conductor is {100 * abs(ahead):.1f} points {side} {best}.")
    head = ["benchmarks", "which", "system", "accuracy, %", f"{unit} a question", "Conductor minus it, points",
            "95 % interval", "p"]  # fmt: skip
    marked = [place for place, row in enumerate(rows) if row[1] == "Conductor"]
    return ExhibitContent([Table("", head, rows, marked, SELECTION_NOTE)], evidence.sample_description, " ".join(said))


def _row(
    evidence: Evidence,
    ours: System,
    group: str,
    label: str,
    chosen: System | None,
    measure: Measure,
    format_value: Callable[[float], str],
) -> list[Cell]:
    if chosen is None:
        return [group, label, "none", "–", "–", "–", "–", "–"]
    over = evidence.groups[group]
    contrast = next(row for row in contrast_systems(ours, [chosen], over) if row.benchmark == OVERALL)
    return [
        group, label, chosen.title, format_accuracy(chosen.mean_accuracy(over)),
        format_value(measure(chosen.mean_usage(over))),
        format_points(contrast.difference), f"{format_points(contrast.low)} … {format_points(contrast.high)}",
        format_p_value(contrast.p_value),
    ]  # fmt: skip
