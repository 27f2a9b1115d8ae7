"""Accuracy adjusted for cost."""

from __future__ import annotations

from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit, format_accuracy, format_number, format_points
from ops.reports.prices import compute_mixture_accuracy
from ops.results.statistics import PricedAccuracy
from ops.spending.bookings import format_usd


@exhibit(
    "Cost-adjusted accuracy",
    110,
    shows="What a right answer costs, and by how much a system is more or less accurate than a mixture of the "
    "others at the same price, in which each question is given to one of them at random.",
    paper="its discussion of cost; the adjustment is ours",
    needs=("opponents",),
)
def cost_adjusted(evidence: Evidence) -> ExhibitContent:
    """A table per group, sorted by the accuracy beyond what the other systems reach at the same price."""
    tables, said = [], []
    for group, over in evidence.groups.items():
        systems = list(evidence.systems.values())
        offers = {
            each.name: PricedAccuracy(each.mean_values(over)["cost_usd"], each.mean_accuracy(over).mean)
            for each in systems
        }
        beyond = {name: _accuracy_beyond_mixtures(name, offers) for name in offers}
        systems.sort(key=lambda system: -beyond[system.name])
        head = ["system", "accuracy, %", "USD a question", "USD a right answer", "right answers a USD",
                "beyond the others at its price, points"]  # fmt: skip
        rows = [_row(system, over, beyond[system.name]) for system in systems]
        marked = [place for place, system in enumerate(systems) if system.kind == "Conductor"]
        tables.append(Table(group.capitalize(), head, rows, marked, is_folded=True))
        if evidence.conductor is not None:
            points = format_points(beyond[evidence.conductor.name])
            said.append(f"{group.capitalize()}, the Conductor differs from such a mixture by {points} points.")
    return ExhibitContent(tables, evidence.sample_description, " ".join(said))


def _accuracy_beyond_mixtures(name: str, offers: dict[str, PricedAccuracy]) -> float:
    others = [offer for other, offer in offers.items() if other != name]
    return offers[name].accuracy - compute_mixture_accuracy(others, offers[name].price)


def _row(system: System, over: list[str], beyond: float) -> list[Cell]:
    price, mean = system.mean_values(over)["cost_usd"], system.mean_accuracy(over).mean
    a_right = format_usd(price / mean) if mean else "–"
    return [
        system.title, format_accuracy(system.mean_accuracy(over)), system.describe_usd(over), a_right,
        format_number(mean / price) if price else "–", format_points(beyond),
    ]  # fmt: skip
