"""Compare the Conductor with opponents at an equal price, and at an equal number of calls."""

from __future__ import annotations

from ops.reports.claims import contrast_systems
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import (
    Cell,
    ExhibitContent,
    Table,
    exhibit,
    format_accuracy,
    format_number,
    format_p_value,
    format_points,
)
from ops.reports.prices import find_best_within
from ops.results.statistics import OVERALL

SELECTION_NOTE = (
    "The opponent was chosen as the best on these same questions, which favours it; the interval and p-value (of this "
    "difference alone) do not make up for that."
)
NO_MORE_USD, NO_MORE_CALLS, NO_LIMIT = "best at no more USD", "best at no more calls", "best at any price"


@exhibit(
    "At equal price and at equal calls",
    40,
    shows="The best other system that costs no more for a question than the Conductor, the best that makes no more "
    "calls, and the best of all. A system that is the best in several respects has one row.",
    paper="its baselines, each held to five calls (Mixture-of-Agents to eight)",
    needs=("conductor", "opponents"),
)
def equal_cost(evidence: Evidence) -> ExhibitContent:
    """Compare with the best worker or baseline within the Conductor's price and calls, chosen on the same questions.

    Raises `ValueError` without scores of the Conductor.
    """
    ours = evidence.conductor
    if ours is None:
        raise ValueError("a comparison at equal means needs the Conductor's scores")
    rows: list[list[Cell]] = []
    said = []
    for group, over in evidence.groups.items():
        chosen = _choose_opponents(evidence, ours, over)
        rows.append([group, "Conductor", *_cells(ours, over), "", "", ""])
        labels: dict[str, list[str]] = {}
        for label, system in chosen.items():
            labels.setdefault(system.name if system else "", []).append(label)
        rows += [[group, ", ".join(names), *_compare(ours, chosen[names[0]], over)] for names in labels.values()]
        within = chosen[NO_MORE_USD]
        if within is None:
            said.append(f"{group.capitalize()} no opponent costs as little as the Conductor.")
        else:
            ahead = ours.mean_accuracy(over).mean - within.mean_accuracy(over).mean
            side = "above" if ahead > 0 else "below"
            best = f"the {NO_MORE_USD}, {within.title}"
            said.append(f"{group.capitalize()} the Conductor is {100 * abs(ahead):.1f} points {side} {best}.")
    head = ["benchmarks", "which", "system", "accuracy, %", "USD a question", "calls a question",
            "Conductor minus it, points", "95 % interval", "p"]  # fmt: skip
    marked = [place for place, row in enumerate(rows) if row[1] == "Conductor"]
    return ExhibitContent([Table("", head, rows, marked, SELECTION_NOTE)], evidence.sample_description, " ".join(said))


def _choose_opponents(evidence: Evidence, ours: System, over: list[str]) -> dict[str, System | None]:
    means, others = ours.mean_values(over), evidence.opponents
    return {
        NO_MORE_USD: find_best_within(others, over, "cost_usd", means["cost_usd"]),
        NO_MORE_CALLS: find_best_within(others, over, "calls", means["calls"]),
        NO_LIMIT: find_best_within(others, over, "cost_usd"),
    }


def _cells(system: System, over: list[str]) -> list[Cell]:
    accuracy, calls = format_accuracy(system.mean_accuracy(over)), system.mean_values(over)["calls"]
    return [system.title, accuracy, system.describe_usd(over), format_number(calls, 2)]


def _compare(ours: System, system: System | None, over: list[str]) -> list[Cell]:
    if system is None:
        return ["none", *["–"] * 6]
    contrast = next(row for row in contrast_systems(ours, [system], over) if row.benchmark == OVERALL)
    interval = f"{format_points(contrast.low)} … {format_points(contrast.high)}"
    return [*_cells(system, over), format_points(contrast.difference), interval, format_p_value(contrast.p_value)]
