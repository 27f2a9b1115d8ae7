"""Accuracy, tokens, calls, USD and latency per in-domain question."""

from __future__ import annotations

from ops.reports import paper
from ops.reports.evidence import IN_DOMAIN, Evidence, System
from ops.reports.exhibit import ExhibitContent, Table, exhibit, format_accuracy, format_number
from ops.results.measures import MEASURES
from ops.spending.bookings import format_usd


@exhibit(
    "In-domain: accuracy, and what a question takes",
    20,
    shows="The accuracy, tokens, calls, USD and seconds for a question of the training benchmarks, with the most "
    "accurate system first.",
    paper="its efficiency comparison under constrained workers: mean of four tasks, tokens, USD",
    needs=("opponents",),
)
def in_domain(evidence: Evidence) -> ExhibitContent:
    """Unweighted means over the in-domain benchmarks."""
    over = evidence.groups.get(IN_DOMAIN, [])
    systems = sorted(evidence.systems.values(), key=lambda system: -system.mean_accuracy(over).mean)
    where = paper.column_head(evidence.run.has_paper_setting)
    head = ["system", "accuracy, %", *(measure.head for measure in MEASURES), "invalid workflows, %",
            f"{where}: accuracy, %", f"{where}: tokens", f"{where}: USD"]  # fmt: skip
    rows = [[*_measured_cells(system, over), *_paper_cells(system, evidence)] for system in systems]
    marked = [place for place, system in enumerate(systems) if system.kind == "Conductor"]
    note = (
        "Tokens and USD are the workers', prompts and completions together; what the Conductor writes itself is not "
        "counted, what a prompted one writes is. Latency is the critical path's. A percentile, such as p95, is that of "
        "the answers' latency, as a mean over the benchmarks. An invalid workflow counts as an answer without tokens, "
        "calls, USD and latency."
    )
    questions = max((system.mean_accuracy(over).n for system in systems), default=0)
    return ExhibitContent([Table("", head, rows, marked, note)], f"{questions:,} questions of {len(over)} benchmarks")


def _measured_cells(system: System, over: list[str]) -> list[str]:
    values = system.mean_values(over)
    shown = [measure.format(values[measure.name]) for measure in MEASURES]
    invalid = format_number(100 * system.mean_invalid(over), 1)
    return [system.title, format_accuracy(system.mean_accuracy(over)), *shown, invalid]


def _paper_cells(system: System, evidence: Evidence) -> list[str]:
    # Only the paper's own pool has the best worker whose accuracy the paper reports.
    is_reported = evidence.run.has_paper_setting and system.name == evidence.best_worker
    name = paper.BEST_WORKER if is_reported else system.name
    known = paper.REPORTED_SYSTEMS.get(name)
    if known is None:
        return ["–"] * 3
    tokens = "–" if known.tokens is None else f"{known.tokens:,.0f}"
    return [f"{known.accuracy:.2f}", tokens, "–" if known.usd is None else format_usd(known.usd)]
