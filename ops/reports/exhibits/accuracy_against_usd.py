"""Accuracy against price."""

from __future__ import annotations

from ops.core.charts import Plane, Point
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import ExhibitContent, Table, exhibit
from ops.reports.exhibit import format_accuracy as written
from ops.results.leaderboard import spread
from ops.results.statistics import Offer, frontier
from ops.spending.books import usd


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
    parts: list[Plane | Table] = []
    said = []
    for group, over in evidence.groups.items():
        systems = [system for system in evidence.systems.values() if system.mean_usage(over).usd > 0]
        offers = [Offer(system.mean_usage(over).usd, system.mean_accuracy(over).mean) for system in systems]
        line = frontier(offers)
        points = [_point(system, offer, over) for system, offer in zip(systems, offers, strict=True)]
        parts.append(Plane(group, "USD a question (logarithmic)", "accuracy in % (95 % interval)", points, line))
        rows = [[systems[place].title, usd(offers[place].price), written(systems[place].mean_accuracy(over))]
                for place in line]  # fmt: skip
        marked = [row for row, place in enumerate(line) if systems[place].kind == "Conductor"]
        parts.append(Table(f"The line, {group}", ["system", "USD a question", "accuracy, %"], rows, marked))
        on_it = "is on the line" if marked else "is not on the line"
        if evidence.conductor is not None:
            said.append(f"{group.capitalize()} the Conductor {on_it}.")
    return ExhibitContent(parts, evidence.sample_description, " ".join(said))


def _point(system: System, offer: Offer, over: list[str]) -> Point:
    return Point(system.title, offer.price, spread(system.mean_accuracy(over)), system.kind)
