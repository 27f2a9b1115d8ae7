"""Accuracy against price."""

from __future__ import annotations

from ops.core.charts import Point, ScatterPlot
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import ExhibitContent, Table, exhibit
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
        systems = [system for system in evidence.systems.values() if system.mean_usage(over).usd > 0]
        offers = [PricedAccuracy(system.mean_usage(over).usd, system.mean_accuracy(over).mean) for system in systems]
        line = find_frontier(offers)
        points = [_point(system, offer, over) for system, offer in zip(systems, offers, strict=True)]
        parts.append(ScatterPlot(group, "USD a question (logarithmic)", "accuracy in % (95 % interval)", points, line))
        rows = [[systems[place].title, format_usd(offers[place].price), written(systems[place].mean_accuracy(over))]
                for place in line]  # fmt: skip
        marked = [row for row, place in enumerate(line) if systems[place].kind == "Conductor"]
        parts.append(Table(f"The line, {group}", ["system", "USD a question", "accuracy, %"], rows, marked))
        on_it = "is on the line" if marked else "is not on the line"
        if evidence.conductor is not None:
            said.append(f"{group.capitalize()} the Conductor {on_it}.")
    return ExhibitContent(parts, evidence.sample_description, " ".join(said))


def _point(system: System, offer: PricedAccuracy, over: list[str]) -> Point:
    return Point(system.title, offer.price, error_bar_of(system.mean_accuracy(over)), system.kind)
