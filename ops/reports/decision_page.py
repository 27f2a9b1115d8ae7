"""Write a decision of the promotion gate as one HTML file: comparisons, checks, versions and questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ops.core.charts import Chart, DotPlot, ErrorBar
from ops.core.errors import format_figure
from ops.release.dossier import MEAN_LABEL, Dossier, Opponent, PairedComparison
from ops.release.promotion import NO_CHAMPION, GateCheck, GateDecision
from ops.reports.exhibit import Cell, Table, format_number
from ops.reports.page import render_template
from ops.results.measures import COMPARED


class VersionStatus(NamedTuple):
    """What happened to a version, according to its tags."""

    verdict: str
    """"promoted" or "not promoted; …"; empty if the gate has not decided."""
    override: str = ""
    rolled_back: str = ""


def render_decision_page(version: str, decision: GateDecision, dossier: Dossier | None, status: VersionStatus) -> str:
    """Return the whole document. Without a dossier, which versions of an earlier checkout lack, it contains the checks
    only."""
    return render_template(
        "verdict.html",
        title=f"Conductor version {version}: {_describe_outcome(status)}",
        warnings={"Promoted in spite of the gate by": status.override, "Rolled back": status.rolled_back},
        checks=make_checks_table(decision.checks),
        dossier=dossier,
        facts=_list_facts(dossier, decision) if dossier else {},
        opponents=[(each, _opponent_parts(each, dossier.confidence)) for each in dossier.opponents] if dossier else [],
        tested=[_versions_table(dossier), _questions_table(dossier), _gate_table(dossier.gate)] if dossier else [],
    )


def make_checks_table(checks: Sequence[GateCheck], title: str = "") -> Table:
    """Return a table of the gate's checks with their bounds. Failed checks are highlighted."""
    rows = [
        ("yes" if each.passed else "no", each.name, format_figure(each.value), each.describe_bound(), each.explanation)
        for each in checks
    ]
    failed = [place for place, check in enumerate(checks) if not check.passed]
    note = "" if rows else "None: it was not judged by the gate."
    return Table(title, ("passed", "check", "value", "bound", "what it says"), rows, failed, note)


def make_comparison_table(opponent: Opponent, confidence: float) -> Table:
    """Return a table with one row per benchmark: both accuracies, their difference with its interval, and the questions
    that only one side solved."""
    rows = [
        (
            pair.benchmark, pair.questions, _format_accuracy(pair.ours, pair.our_low, pair.our_high),
            _format_accuracy(pair.theirs, pair.their_low, pair.their_high),
            f"{100 * (pair.ours - pair.theirs):+.1f}", f"{100 * pair.low:+.1f} … {100 * pair.high:+.1f}",
            pair.gains, pair.losses,
        )
        for pair in opponent.pairings
    ]  # fmt: skip
    head = (
        "benchmark", "questions", "challenger % (95 % interval)", "opponent % (95 % interval)", "difference",
        f"{100 * confidence:.6g} % interval", "right alone: challenger", "right alone: opponent",
    )  # fmt: skip
    return Table("Accuracy", head, rows, [place for place, row in enumerate(rows) if row[0] == MEAN_LABEL])


def draw_differences(opponent: Opponent, confidence: float) -> Chart:
    """Return a chart of the differences in accuracy on each benchmark, with their intervals."""
    spreads = [_spread(pair) for pair in opponent.pairings]
    x = f"challenger less opponent, points of accuracy ({100 * confidence:.6g} % intervals)"
    names = [pair.benchmark for pair in opponent.pairings]
    return DotPlot(f"difference to the {opponent.name}", x, "", names, {"difference": spreads}, shows_zero_line=True)


def _opponent_parts(opponent: Opponent, confidence: float) -> dict[str, Table | Chart]:
    """Return the tables and the chart of an opponent; nothing without a common question."""
    if not opponent.pairings:
        return {}
    return {
        "accuracy": make_comparison_table(opponent, confidence),
        "chart": draw_differences(opponent, confidence),
        "costs": make_costs_table(opponent),
    }


def make_costs_table(opponent: Opponent) -> Table:
    """Return a table with one row per benchmark: both values of each measure that the gate compares, and the shares of
    invalid workflows."""
    sides = ("challenger", "opponent")
    rows: list[list[Cell]] = [
        [
            pair.benchmark, pair.questions if pair.cost_questions is None else pair.cost_questions,
            *(measure.format(value) for measure in COMPARED for value in pair.pair_values(measure)),
            format_number(100 * pair.invalid, 1), format_number(100 * pair.their_invalid, 1),
        ]
        for pair in opponent.pairings
    ]  # fmt: skip
    head = (
        "benchmark", "questions", *(f"{side} {measure.head}" for measure in COMPARED for side in sides),
        *(f"{side} invalid, %" for side in sides),
    )  # fmt: skip
    note = "USD and latency of a question, over the questions for which both wrote a valid workflow; the mean is over "
    note += "all of these. Latency is the critical path's; a percentile, such as p95, is that of the answers' latency. "
    note += "Invalid: the share of the answers to all common questions that are no valid workflow."
    if any(pair.cost_questions is None for pair in opponent.pairings):
        note = "USD and latency of a question, over the questions that both answered; an invalid workflow counts as 0. "
        note += "This version was judged before invalid workflows were left out of these means."
    return Table("Cost and latency", head, rows, note=note)


def _versions_table(dossier: Dossier) -> Table:
    known = {"challenger": dossier.facts} | {opponent.name: opponent.facts for opponent in dossier.opponents}
    names = list(dict.fromkeys(name for facts in known.values() for name in facts))
    rows = [(name, *(facts.get(name, "–") for facts in known.values())) for name in names]
    return Table("Versions", ("", *known), rows)


def _questions_table(dossier: Dossier) -> Table:
    rows = [(name, said) for name, said in dossier.questions.items()]
    return Table("Questions", ("benchmark", "questions of the challenger (key)"), rows)


def _gate_table(settings: Mapping[str, object]) -> Table:
    return Table("The gate (config/promotion.yaml)", ("setting", "value"), [(k, str(v)) for k, v in settings.items()])


def _list_facts(dossier: Dossier, decision: GateDecision) -> dict[str, str]:
    return {
        "judged": f"{dossier.at} UTC",
        "against": f"version {decision.against}" if decision.against not in (None, NO_CHAMPION) else "no champion",
        "interim analysis": f"{decision.analysis} against that champion; intervals at {100 * dossier.confidence:.6g} %",
        **({"cost": dossier.cost} if dossier.cost else {}),
        **({"change of the pool": dossier.pool_change} if dossier.pool_change else {}),
    }


def _describe_outcome(status: VersionStatus) -> str:
    if status.rolled_back:
        return "rolled back"
    if status.override:
        return "promoted by override"
    return status.verdict.partition(";")[0] or "not judged"


def _spread(pair: PairedComparison) -> ErrorBar:
    return ErrorBar(100 * (pair.ours - pair.theirs), 100 * pair.low, 100 * pair.high)


def _format_accuracy(share: float, low: float, high: float) -> str:
    ends = "" if math.isnan(low) else f" ({100 * low:.1f} … {100 * high:.1f})"
    return f"{100 * share:.1f}{ends}"
