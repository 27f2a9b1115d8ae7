"""The tested claims."""

from __future__ import annotations

from collections import Counter

from ops.core.charts import DotPlot, ErrorBar
from ops.reports.claims import ALPHA, FAILS, HOLDS, Claim, contrast_systems
from ops.reports.claims import test_claims as all_claims
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit, format_p_value, format_points
from ops.results.statistics import OVERALL


@exhibit(
    "The claims, tested one by one",
    60,
    shows="Whether the Conductor is right more often than each system. Differences are paired by question, and the "
    "p-values are adjusted for all claims of the table (Holm).",
    paper="what its tables say in words: better than every worker and every baseline",
    needs=("conductor", "opponents"),
)
def claims(evidence: Evidence) -> ExhibitContent:
    """A row per claim and group of benchmarks, including failed claims; then the best worker per benchmark."""
    made = all_claims(evidence)
    head = ["claim", "benchmarks", "difference, points", "95 % interval", "p", "p, adjusted", "at the price of it",
            "questions", "verdict"]  # fmt: skip
    rows = [_row(claim) for claim in made]
    note = (
        f"“Holds” and “does not hold”: adjusted p below {ALPHA}, for the Conductor or against it. “Undecided”: a "
        "true difference as large as the minimum detectable one, in points, would have been found in four of five "
        "tests, before the adjustment. A price of 2 ×: the Conductor costs twice as much a question."
    )
    parts: list[DotPlot | Table] = [_claims_chart(made), Table("", head, rows, note=note)]
    if singly := _best_worker_table(evidence):
        parts.append(singly)
    verdicts = Counter(claim.verdict.partition(" (")[0] for claim in made)
    said = (
        f"Of {len(made)} claims, {verdicts[HOLDS]} hold, {verdicts[FAILS]} do not hold, and "
        f"{len(made) - verdicts[HOLDS] - verdicts[FAILS]} are undecided."
    )
    return ExhibitContent(parts, f"{evidence.sample_description}; {len(made)} claims", said)


def _row(claim: Claim) -> list[str | int]:
    row = claim.contrast
    return [
        f"Conductor over {claim.against.title}", claim.group, format_points(row.difference),
        f"{format_points(row.low)} … {format_points(row.high)}", format_p_value(row.p_value),
        format_p_value(row.p_adjusted), claim.price, row.n, claim.verdict,
    ]  # fmt: skip


def _claims_chart(made: list[Claim]) -> DotPlot:
    names = list(dict.fromkeys(claim.against.title for claim in made))
    spreads = {(claim.against.title, claim.group): ErrorBar(*(100 * value for value in (
        claim.contrast.difference, claim.contrast.low, claim.contrast.high))) for claim in made}  # fmt: skip
    series = {
        group: [spreads.get((name, group)) for name in names] for group in dict.fromkeys(claim.group for claim in made)
    }
    unit = "Conductor minus the other, in points (95 % interval)"
    return DotPlot("", unit, "opponent", names, series, shows_zero_line=True)


def _best_worker_table(evidence: Evidence) -> Table | None:
    best = evidence.systems.get(evidence.best_worker)
    if best is None or evidence.conductor is None:
        return None
    every = [
        row for row in contrast_systems(evidence.conductor, [best], evidence.benchmarks) if row.benchmark != OVERALL
    ]
    head = ["benchmark", "difference, points", "95 % interval", "p", "p, adjusted", "Conductor alone right",
            f"{best.title} alone right", "McNemar's p", "detectable, points", "questions"]  # fmt: skip
    rows: list[list[Cell]] = [
        [row.benchmark, format_points(row.difference), f"{format_points(row.low)} … {format_points(row.high)}",
         format_p_value(row.p_value),
         format_p_value(row.p_adjusted), row.mcnemar.gains, row.mcnemar.losses, format_p_value(row.mcnemar.p_value),
         format_points(row.detectable), row.n]
        for row in every if row.mcnemar is not None
    ]  # fmt: skip
    return Table(
        f"Benchmark by benchmark: the Conductor minus the best worker ({best.title})", head, rows, is_folded=True
    )
