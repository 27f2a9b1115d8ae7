"""Accuracy against price."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.charts import Point, ScatterPlot
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import ExhibitContent, Table, exhibit, format_points
from ops.reports.exhibit import format_accuracy as written
from ops.results.leaderboard import error_bar_of
from ops.results.statistics import PricedAccuracy, find_frontier
from ops.spending.bookings import format_usd


@exhibit(
    "Accuracy against USD a question",
    30,
    shows="The price and the accuracy of each system. The axis of prices is logarithmic. The dashed line joins the "
    "systems for which no cheaper one is as accurate.",
    paper="its picture of performance against cost",
    needs=("opponents",),
)
def accuracy_against_usd(evidence: Evidence) -> ExhibitContent:
    """A plane and a table of its frontier per group of benchmarks; the logarithmic axis excludes free systems."""
    parts: list[ScatterPlot | Table] = []
    said = []
    for group, over in evidence.groups.items():
        prices = {name: system.mean_values(over)["cost_usd"] for name, system in evidence.systems.items()}
        systems = [system for name, system in evidence.systems.items() if prices[name] > 0]
        offers = [PricedAccuracy(prices[system.name], system.mean_accuracy(over).mean) for system in systems]
        line = find_frontier(offers)
        points = [_point(system, offer, over) for system, offer in zip(systems, offers, strict=True)]
        parts.append(
            ScatterPlot(
                f"accuracy against USD, {group}",
                "USD a question (logarithmic)",
                "accuracy in % (95 % interval)",
                points,
                line,
            )
        )
        rows = [[systems[place].title, systems[place].describe_usd(over), written(systems[place].mean_accuracy(over))]
                for place in line]  # fmt: skip
        marked = [row for row, place in enumerate(line) if systems[place].kind == "Conductor"]
        head = ["system", "USD a question", "accuracy, %"]
        parts.append(Table(f"The line, {group}", head, rows, marked, is_folded=True))
        if evidence.conductor is not None:
            said.append(_describe_dearer(evidence.conductor, evidence.opponents, group, over))
    return ExhibitContent(parts, evidence.sample_description, " ".join(said))


def _describe_dearer(ours: System, others: Sequence[System], group: str, over: list[str]) -> str:
    """Say what a higher price than the Conductor's buys."""
    reached, price = ours.mean_accuracy(over).mean, ours.mean_values(over)["cost_usd"]
    better = [system for system in others if system.mean_accuracy(over).mean > reached]
    if not better:
        return f"{group.capitalize()}, no worker and no baseline is more accurate than the Conductor at any price."
    cheapest = min(better, key=lambda system: system.mean_values(over)["cost_usd"])
    points = format_points(cheapest.mean_accuracy(over).mean - reached)
    cost = format_usd(cheapest.mean_values(over)["cost_usd"])
    return (
        f"{group.capitalize()}, {len(better)} of {len(others)} workers and baselines are more accurate than the "
        f"Conductor; the cheapest of these is {cheapest.title} ({points} points, {cost} instead of "
        f"{format_usd(price)} a question)."
    )


def _point(system: System, offer: PricedAccuracy, over: list[str]) -> Point:
    return Point(system.title, offer.price, error_bar_of(system.mean_accuracy(over)), system.kind)
