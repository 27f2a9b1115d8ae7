"""Shared code of the comparisons at equal price and at equal number of calls."""

from __future__ import annotations

from collections.abc import Callable

from ops.reports.claims import compared
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, Shown, Table, accuracy, points, probability
from ops.reports.prices import Measure, best_within
from ops.results.statistics import OVERALL

NOTE = (
    "The opponent was chosen as the best on these same questions, which favours it; the interval and p-value (of this "
    "difference alone) do not make up for that."
)


def beside_the_best(
    evidence: Evidence, measure: Measure, unit: str, whole: str, written: Callable[[float], str]
) -> Shown:
    """A table per group: the Conductor, the best opponent within its price or calls, and the best opponent overall.

    Raises `ValueError` without scores of the Conductor.
    """
    ours = evidence.ours
    if ours is None:
        raise ValueError("a comparison at equal means needs the Conductor's scores")
    rows: list[list[Cell]] = []
    said = []
    for group, over in evidence.groups.items():
        means = measure(ours.price(over))
        within = best_within(evidence.opponents, over, measure, means)
        rows.append([group, "Conductor", ours.title, accuracy(ours.accuracy(over)), written(means), "", "", ""])
        lines = {
            f"best at no more {unit}": within,
            f"best at any {whole}": best_within(evidence.opponents, over, measure),
        }
        rows += [_row(evidence, ours, group, label, chosen, measure, written) for label, chosen in lines.items()]
        if within is None:
            said.append(f"{group.capitalize()} no opponent takes as little as the Conductor.")
        else:
            ahead = ours.accuracy(over).mean - within.accuracy(over).mean
            side = "above" if ahead > 0 else "below"
            best = f"the best at no more {unit}, {within.title}"
            said.append(f"{group.capitalize()} the Conductor is {100 * abs(ahead):.1f} points {side} {best}.")
    head = ["benchmarks", "which", "system", "accuracy, %", f"{unit} a question", "Conductor minus it, points",
            "95 % interval", "p"]  # fmt: skip
    marked = [place for place, row in enumerate(rows) if row[1] == "Conductor"]
    return Shown([Table("", head, rows, marked, NOTE)], evidence.n, " ".join(said))


def _row(
    evidence: Evidence,
    ours: System,
    group: str,
    label: str,
    chosen: System | None,
    measure: Measure,
    written: Callable[[float], str],
) -> list[Cell]:
    if chosen is None:
        return [group, label, "none", "–", "–", "–", "–", "–"]
    over = evidence.groups[group]
    contrast = next(row for row in compared(ours, [chosen], over) if row.benchmark == OVERALL)
    return [
        group, label, chosen.title, accuracy(chosen.accuracy(over)), written(measure(chosen.price(over))),
        points(contrast.difference), f"{points(contrast.low)} … {points(contrast.high)}",
        probability(contrast.p_value),
    ]  # fmt: skip
