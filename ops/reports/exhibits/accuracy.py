"""Accuracy of every system on every benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.charts import DotPlot, ErrorBar
from ops.reports import paper
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit, format_interval
from ops.reports.exhibit import format_accuracy as written
from ops.results.leaderboard import error_bar_of
from ops.results.statistics import MeanEstimate


@exhibit(
    "Accuracy by benchmark",
    10,
    shows="The accuracy of every system in % ± one standard error over questions, and its 95 % interval, which is also "
    "valid for few questions and near 0 and 100 %. In means, every benchmark has the same weight.",
    paper="its main results: systems × benchmarks, with a mean",
    needs=("opponents",),
)
def accuracy(evidence: Evidence) -> ExhibitContent:
    """A table of all systems; a chart of the Conductor, its cold start, the best worker and the best baseline."""
    systems = list(evidence.systems.values())
    marked = [place for place, system in enumerate(systems) if system.kind == "Conductor"]
    head = ["system", *(f"{group} mean" for group in evidence.groups), *evidence.benchmarks]
    columns = [*evidence.groups.values(), *([name] for name in evidence.benchmarks)]
    rows = [
        [_row_title(system, evidence), *(written(system.mean_accuracy(over)) for over in columns)] for system in systems
    ]
    ends = [
        [_row_title(system, evidence), *(format_interval(system.mean_accuracy(over)) for over in columns)]
        for system in systems
    ]
    parts: list[Table | DotPlot] = [
        DotPlot("", "accuracy in % (95 % interval)", "benchmark", evidence.benchmarks, _chart_series(evidence)),
        Table("", head, rows, marked),
        Table("95 % intervals, %", head, ends, marked, is_folded=True),
    ]
    if evidence.conductor is not None:
        parts.append(_paper_table(evidence, evidence.conductor))
    return ExhibitContent(parts, evidence.sample_description)


def _row_title(system: System, evidence: Evidence) -> str:
    return f"{system.title} (best by the mix)" if system.name == evidence.best_worker else system.title


def _chart_series(evidence: Evidence) -> dict[str, Sequence[ErrorBar | None]]:
    every = [name for names in evidence.groups.values() for name in names]
    baselines = sorted(evidence.list_systems("baseline"), key=lambda system: -system.mean_accuracy(every).mean)
    best = evidence.systems.get(evidence.best_worker)
    chosen = [*evidence.list_systems("Conductor", "cold start"), *([best] if best else []), *baselines[:1]]
    return {
        _row_title(system, evidence): [_spread(system.mean_accuracy([name])) for name in evidence.benchmarks]
        for system in chosen
    }


def _spread(estimate: MeanEstimate) -> ErrorBar | None:
    return error_bar_of(estimate) if estimate.n else None


def _paper_table(evidence: Evidence, ours: System) -> Table:
    where = paper.column_head(evidence.run.has_paper_setting)
    head = ["benchmark", "questions", "Conductor, %", f"{where}: constrained, %", f"{where}: unconstrained, %"]
    rows: list[list[Cell]] = [
        [name, ours.mean_accuracy([name]).n, written(ours.mean_accuracy([name])), paper.CONSTRAINED.get(name, "–"),
         paper.UNCONSTRAINED.get(name, "–")]
        for name in evidence.benchmarks
    ]  # fmt: skip
    differs = "The paper has other questions, workers and another policy, so compare only the order of the systems."
    note = "" if evidence.run.has_paper_setting else differs
    return Table("The Conductor beside the paper's", head, rows, note=note, is_folded=True)
