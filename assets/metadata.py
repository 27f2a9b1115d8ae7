"""Dagster metadata: tables in Dagster's own format, pictures in Markdown."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import dagster as dg

from ops.benchmarks.registry import displayable_question
from ops.core.documents import format_markdown_table
from ops.core.errors import format_figure
from ops.core.problem import Problem
from ops.evaluation.arms import Findings
from ops.precaching.profiles import Score
from ops.release.promotion import GateCheck
from ops.results import leaderboard
from ops.results.leaderboard import estimate_of_score
from ops.results.measures import average_values
from ops.results.statistics import MeanEstimate, OracleEstimate, average_estimates
from ops.results.summary import Summary
from ops.training.cold_start.validation import ColdStartRecord, ValidationResult
from ops.workers.client import CallCounts


def make_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> dg.TableMetadataValue:
    """Return a table that Dagster's web interface draws itself. Numbers stay numbers, None becomes a dash, and equal
    headings are made distinct."""
    cells = [{name: "–" if cell is None else cell for name, cell in zip(head, row, strict=True)} for row in rows]
    schema = [dg.TableColumn(name, _column_type([row[name] for row in cells])) for name in head]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in cells], dg.TableSchema(schema))


def fold_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> dg.MarkdownMetadataValue:
    """Return a table that Dagster's page of an asset shows in its full width after a click, if it is large.

    A wide table of `make_table` is cut at the side, and with it every other table of the same page.
    """
    return dg.MetadataValue.md(format_markdown_table(head, rows))


def fold_tables(facts: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, dg.MetadataValue[Any]]:
    """Return `facts` with each of its tables as one of `fold_table`."""
    return {name: _fold(fact) if isinstance(fact, dg.TableMetadataValue) else fact for name, fact in facts.items()}


def _fold(table: dg.TableMetadataValue) -> dg.MarkdownMetadataValue:
    head = [column.name for column in table.schema.columns]
    return fold_table(head, ([record.data[name] for name in head] for record in table.records))


def describe_checks(checks: Sequence[GateCheck]) -> dict[str, dg.MetadataValue[Any]]:
    """Return the checks of a gate: a table with each value and its bound, and what each check says."""
    rows = [
        ("yes" if each.passed else "no", each.name, format_figure(each.value), each.describe_bound()) for each in checks
    ]
    said = "\n".join(f"* {check.name}: {check.explanation}" for check in checks)
    return {
        "checks": make_table(("passed", "check", "value", "bound"), rows),
        "what_the_checks_say": dg.MetadataValue.md(said),
    }


def describe_scores(summaries: Iterable[Summary]) -> dict[str, dg.MetadataValue[Any]]:
    """Return the means of a system over its benchmarks as numbers, which Dagster plots over the materializations."""
    known = list(summaries)
    values = average_values([each.values for each in known])
    means = {
        "accuracy_percent": 100 * average_estimates([each.accuracy for each in known]).mean,
        "valid_workflows_percent": 100 * fmean(each.format_compliance for each in known),
        "usd_a_question": values["cost_usd"],
        "seconds_a_question": values["latency_s"],
    }
    return {name: dg.MetadataValue.float(float(f"{mean:.6g}")) for name, mean in means.items() if math.isfinite(mean)}


def _column_type(cells: Sequence[object]) -> str:
    kinds = {type(cell) for cell in cells}
    return "int" if kinds == {int} else "float" if kinds and kinds <= {int, float} else "string"


def embed_png(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    """Return a PNG that is embedded in the metadata, so that no file has to be served or kept."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})")


def embed_svg(title: str, svg: str) -> dg.MarkdownMetadataValue:
    """Return an SVG that is embedded in the metadata as an image, so that scripts in it cannot run."""
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


def format_percent(score: Score | MeanEstimate | None) -> str:
    """Return an accuracy in % with its standard error or 95 % interval, or a dash if it was not measured."""
    if score is None:
        return "–"
    estimate = estimate_of_score(score) if isinstance(score, Score) else score
    # No-break spaces keep the numbers on one line in a narrow column.
    return leaderboard.format_accuracy(estimate).replace(" ", "\N{NO-BREAK SPACE}")


def format_oracle(estimates: Sequence[OracleEstimate]) -> str:
    """Return the oracle's mean accuracy over benchmarks in %, or its upper bound and what luck alone would reach."""
    fair = [each.cross_fitted for each in estimates if each.cross_fitted is not None]
    if len(fair) == len(estimates):
        return f"{format_percent(average_estimates(fair))} %"
    most, lucky = average_estimates([each.plain for each in estimates]), fmean(each.by_chance for each in estimates)
    return f"at most {format_percent(most)} %, with hindsight; by chance alone {100 * lucky:.1f} %"


def make_oracle_line(estimates: Sequence[OracleEstimate]) -> tuple[str, float]:
    """Return the name of the oracle's line in a chart of workers, and its height in %."""
    fair = [each.cross_fitted for each in estimates if each.cross_fitted is not None]
    if len(fair) == len(estimates):
        height = 100 * average_estimates(fair).mean
        return f"worker chosen for each problem by its other answers: {height:.1f} %", height
    height = 100 * average_estimates([each.plain for each in estimates]).mean
    return f"best worker of each problem, with hindsight (an upper bound): {height:.1f} %", height


def round_floats(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return `facts` with every float rounded to six significant digits, and NaN as a dash."""
    return {name: _round_float(fact) if isinstance(fact, float) else fact for name, fact in facts.items()}


def _round_float(fact: float) -> float | str:
    return "–" if math.isnan(fact) else float(f"{fact:.6g}")


def show_examples(problems: Sequence[Problem]) -> dg.MarkdownMetadataValue:
    """Return three of the problems as workers see them; for a confidential benchmark only their ids."""
    chosen = problems[:: max(1, len(problems) // 3)][:3]
    quoted = (displayable_question(problem).replace("\n", "\n> ") for problem in chosen)
    return dg.MetadataValue.md("\n\n".join(f"> {text}" for text in quoted))


def describe_cold_start(record: ColdStartRecord) -> dict[str, dg.MetadataValue[Any]]:
    """Return the facts about a cold start and its validation."""
    return {
        "examples": dg.MetadataValue.int(record.examples),
        "tokens": dg.MetadataValue.int(record.tokens),
        "seconds": dg.MetadataValue.float(round(record.seconds, 1)),
        "peak_gib": dg.MetadataValue.float(round(record.peak_gib, 2)),
        **({"last_loss": dg.MetadataValue.float(round(record.loss[-1], 4))} if record.loss else {}),
        **(_describe_teacher(record) if record.teacher_workflows else {}),
        **(describe_validity(record.validation) if record.validation else {}),
    }


def _describe_teacher(record: ColdStartRecord) -> dict[str, dg.MetadataValue[Any]]:
    return {
        "teacher_workflows": dg.MetadataValue.int(record.teacher_workflows),
        "teacher_right": dg.MetadataValue.int(record.teacher_right),
        "teacher_usd": dg.MetadataValue.float(round(record.teacher_usd, 6)),
    }


def describe_validity(seen: ValidationResult) -> dict[str, dg.MetadataValue[Any]]:
    """Return the share of valid workflows on problems without training examples, and the reasons for invalid ones."""
    return {
        "valid_workflows": dg.MetadataValue.float(seen.share),
        "problems_not_taught": dg.MetadataValue.int(seen.problems),
        "failures": dg.MetadataValue.json(seen.failures),
    }


def describe_findings(title: str, found: Findings) -> dict[str, dg.MetadataValue[Any] | str]:
    """Return the results of a study: its tables, a note about them and its picture."""
    tables = {"table": found.summary, "details": found.details, "families": found.families, "claims": found.claims}
    return {
        **{name: make_table(*columns) for name, columns in tables.items() if columns.rows},
        **({"said": found.note} if found.note else {}),
        "picture": embed_png(title, found.picture),
    }


def describe_calls(counts: CallCounts) -> dict[str, dg.MetadataValue]:
    """Return how many worker calls a stage made, and how many of them were cached, retried or failed."""
    return {
        "calls_live": dg.MetadataValue.int(counts.live),
        "calls_cached": dg.MetadataValue.int(counts.cached),
        "calls_replayed": dg.MetadataValue.int(counts.replayed),
        "calls_failed": dg.MetadataValue.int(counts.failed),
        "spent_usd": dg.MetadataValue.float(round(counts.usd, 6)),
    }
