"""The leaderboard of an evaluation: the table in the terminal, the tables of the report, and charts.

They show names and numbers but never a question or an answer, because GPQA asks that its questions are not published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS, ood_benchmarks, training_benchmarks
from ops.core.charts import DotPlot, ErrorBar, LineChart, Point, ScatterPlot, StackedAreas, StackedBars, compute_shares
from ops.precaching.profiles import Profile, Score
from ops.results.measures import MEASURES, average_values
from ops.results.reach import Reach
from ops.results.statistics import MeanEstimate, accuracy_from_moments, average_estimates
from ops.results.summary import Summary, count_worker_steps, describe_invalid, summarize
from ops.results.table import Rows
from ops.workflow.strategy import SHAPES, Diversity, measure_diversity

if TYPE_CHECKING:
    from rich.table import Table

IN_DOMAIN, OOD = "in-domain mean", "OOD mean"
UNCERTAINTY_NOTE = "± is one standard error; two numbers with … are the ends of a 95 % interval that is not symmetric"
"""The note below a table whose cells `format_accuracy` has formatted."""
TITLE = "Accuracy in %, its 95 % interval, tokens and USD per question, latency"
"""The title of the full table in the terminal."""
COST_TABLES = {
    table: [measure for measure in MEASURES if measure.table == table]
    for table in dict.fromkeys(measure.table for measure in MEASURES if measure.table)
}
"""The tables of measures by name, each of which also is a line of the cells in the terminal."""


@dataclass(frozen=True)
class Leaderboard:
    """The summaries of all systems by system and benchmark, in display order with the Conductor first."""

    systems: Mapping[str, Mapping[str, Summary]]

    @property
    def benchmarks(self) -> list[str]:
        """The names of the benchmarks that any system was scored on, training benchmarks first."""
        seen = {name for scores in self.systems.values() for name in scores}
        known = [name for name in BENCHMARKS if name in seen]
        return known + sorted(seen - set(known))

    def mean_accuracy(self, system: str, over: Sequence[str]) -> MeanEstimate:
        """Return a system's unweighted mean accuracy over those benchmarks in `over` that it was scored on."""
        scores = self.systems[system]
        return average_estimates([scores[name].accuracy for name in over if name in scores])

    def mean_values(self, system: str, over: Sequence[str]) -> Mapping[str, float]:
        """Return a system's unweighted mean of each measure over those benchmarks in `over` that it was scored on; NaN
        if there are none."""
        scores = self.systems[system]
        return average_values([scores[name].values for name in over if name in scores])

    def describe_invalid(self, system: str, over: Sequence[str]) -> str:
        """Return the share of invalid workflows as a note beside a mean cost over these benchmarks."""
        scores = self.systems[system]
        shares = [1 - scores[name].format_compliance for name in over if name in scores]
        return describe_invalid(fmean(shares)) if shares else ""


def build_leaderboard(
    conductor: Rows,
    baselines: Mapping[str, Mapping[str, Summary]],
    cold_start: Rows | None = None,
) -> Leaderboard:
    """Return the leaderboard of the Conductor, its cold start and the baselines, in this order.

    `conductor` and `cold_start` are their rows. `baselines` maps a system and a benchmark to a summary, in display
    order.
    """
    systems: dict[str, Mapping[str, Summary]] = {"Conductor": summarize(conductor)}
    if cold_start is not None:
        systems["cold start"] = summarize(cold_start)
    return Leaderboard({**systems, **baselines})


def build_systems_table(board: Leaderboard) -> Table:
    """Return the short table for the terminal with each system's mean accuracies and cost, at most 80 columns wide."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("system", overflow="fold")
    for head in ("in-domain, %", "OOD, %", "USD a question"):
        table.add_column(head, justify="right", no_wrap=True)
    for system in board.systems:
        usd = board.mean_values(system, training_benchmarks())["cost_usd"]
        invalid = board.describe_invalid(system, training_benchmarks())
        cells = (*(format_accuracy(board.mean_accuracy(system, of())) for of in (training_benchmarks, ood_benchmarks)),
                 "–" if math.isnan(usd) else f"{invalid[2:]} {usd:.6f}".lstrip())  # fmt: skip
        table.add_row(Text(system), *cells, style="bold" if system == "Conductor" else None)
    return table


def build_leaderboard_table(board: Leaderboard) -> Table:
    """Return the full table for the terminal, with a row for each benchmark and mean and a column for each system."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=TITLE, title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("benchmark", no_wrap=True)
    for system in board.systems:
        table.add_column(Text(system.replace(" (", "\n(")), justify="right", overflow="fold")
    for table_row in _build_rows(board):
        cells = [cell.text if cell else "–" for cell in table_row.cells]
        table.add_row(
            Text(f"{table_row.label}\nn = {table_row.n}"), *cells, style="bold" if table_row.is_mean else None
        )
        if _ends_section(board, table_row.label):
            table.add_row()
    return table


def _ends_section(board: Leaderboard, label: str) -> bool:
    """Return whether the row is the last one of the training benchmarks, or the last one of all benchmarks."""
    training = [name for name in board.benchmarks if name in training_benchmarks()]
    return label in {*board.benchmarks[-1:], *training[-1:]}


class _Cell(NamedTuple):
    """A system's results on one benchmark, or the mean over several."""

    accuracy: MeanEstimate
    values: Mapping[str, float]
    invalid: str
    """The share of invalid workflows as a note."""

    def show_values(self, table: str, *, in_cell: bool = False) -> str:
        """Return the values of the measures of one of the `COST_TABLES`."""
        measures = COST_TABLES[table]
        shown = [(measure.in_cell if in_cell else "{}").format(measure.format(self.values[measure.name]))
                 for measure in measures]  # fmt: skip
        return " ".join(shown) + self.invalid * any(measure.is_mean for measure in measures)

    @property
    def text(self) -> str:
        """The accuracy, its interval, and the measures of each of the `COST_TABLES`, each on a line of its own."""
        accuracy = self.accuracy if self.accuracy.is_symmetric else MeanEstimate(self.accuracy.mean, float("nan"), 0)
        costs = (self.show_values(table, in_cell=True) for table in COST_TABLES)
        return "\n".join([format_accuracy(accuracy), format_interval(self.accuracy), *costs])


class _TableRow(NamedTuple):
    label: str
    n: int
    cells: list[_Cell | None]
    is_mean: bool = False


def _build_rows(board: Leaderboard) -> list[_TableRow]:
    """Return a row for each benchmark and for the means. A system that was not scored there has the cell None."""
    means = {IN_DOMAIN: training_benchmarks(), OOD: ood_benchmarks()}
    groups: dict[str, Sequence[str]] = {name: [name] for name in board.benchmarks}
    groups |= {label: names for label, names in means.items() if any(name in names for name in board.benchmarks)}
    rows = []
    for label, over in groups.items():
        made = (
            _Cell(board.mean_accuracy(name, over), board.mean_values(name, over), board.describe_invalid(name, over))
            for name in board.systems
        )
        cells = [cell if cell.accuracy.n else None for cell in made]
        rows.append(
            _TableRow(label, max((cell.accuracy.n for cell in cells if cell), default=0), cells, label in means)
        )
    return rows


def format_accuracy(accuracy: MeanEstimate) -> str:
    """Return an accuracy, or a difference of accuracies, in percent with its uncertainty.

    "71.0 ± 4.5" gives the standard error. "0.0 (0.0 … 13.8)" gives the 95 % interval; this form is used where the
    standard error is misleading, for few questions and near 0 and 100 %. The uncertainty is left out if it is not
    known, and the result is a dash if nothing was scored.
    """
    if math.isnan(accuracy.mean):
        return "–"
    mean = f"{100 * accuracy.mean:.1f}"
    if accuracy.has_interval and not accuracy.is_symmetric:
        return f"{mean} ({format_interval(accuracy)})"
    return mean if math.isnan(accuracy.standard_error) else f"{mean} ± {100 * accuracy.standard_error:.1f}"


def format_interval(accuracy: MeanEstimate) -> str:
    """Return the 95 % interval of an accuracy in percent, for example "62.2 … 79.8"; a dash if it is not known."""
    return f"{100 * accuracy.low:.1f} … {100 * accuracy.high:.1f}" if accuracy.has_interval else "–"


def estimate_of_score(score: Score) -> MeanEstimate:
    """Return a worker's measured score as an estimate with its 95 % interval."""
    return accuracy_from_moments(score.accuracy, score.se if score.n > 1 else float("nan"), score.n)


def build_reach_tables(reaches: Mapping[str, Reach]) -> dict[str, TableData]:
    """Return the tables `reach` and `strategies_that_paid` for the Conductor's reach on several sets of questions.

    `reaches` maps the name of a set of questions to the reach. The table `reach` has a row for each set, with the share
    of questions that some system answered (the ceiling) and the Conductor's share of these. The table
    `strategies_that_paid` has a row for each set and shape of workflow.
    """
    answerable = "at least one system right, partly by luck"
    head = ["questions", answerable, "of those by the Conductor", "valid workflows", "right if valid"]
    parts: list[list[str | int | float]] = [
        [name, *(f"{share:.1%}" for share in (part.ceiling, part.reached, part.valid, part.right_if_valid))]
        for name, part in reaches.items()
    ]
    shapes: list[list[str | int | float]] = [
        # No-break spaces keep a workflow on one line in a narrow column.
        [
            name,
            strategy.shape,
            f"{strategy.share:.1%}",
            strategy.where,
            strategy.paid,
            strategy.example.replace(" ", "\N{NO-BREAK SPACE}"),
        ]
        for name, part in reaches.items()
        for strategy in part.strategies
    ]
    columns = ["questions", "shape", "share", "most on", "answers that no single worker gives", "an example"]
    return {"reach": TableData(head, parts), "strategies_that_paid": TableData(columns, shapes)}


class TableData(NamedTuple):
    """A table to be rendered: distinct column headings, and rows of text and numbers."""

    head: list[str]
    rows: list[list[str | int | float]]


def build_tables(board: Leaderboard) -> dict[str, TableData]:
    """Return the leaderboard as tables by name.

    They hold accuracies, their intervals, the measures of the `COST_TABLES`, properties of the workflows, and
    strategies. The table `strategies` shows how frequent each shape is among the well-formed workflows of each system
    and, for the first system, on each benchmark. Its column `patterns` counts distinct patterns (workers and access,
    without wording), and `diversity` is the entropy of the patterns in bits. Systems without workflows are left out of
    it.
    """
    systems = list(board.systems)
    lines = _build_rows(board)

    def texts(text: Callable[[_Cell], str]) -> list[list[str | int | float]]:
        return [[line.label, *(text(cell) if cell else "–" for cell in line.cells)] for line in lines]

    def accuracies(text: Callable[[MeanEstimate], str]) -> list[list[str | int | float]]:
        # No-break spaces keep the numbers on one line in a narrow column.
        shown = texts(lambda cell: text(cell.accuracy).replace(" ", "\N{NO-BREAK SPACE}"))
        return [[label, line.n, *cells] for line, (label, *cells) in zip(lines, shown, strict=True)]

    properties = [[name, *_workflow_properties(list(scores.values()))] for name, scores in board.systems.items()]
    return {
        "accuracy_in_percent": TableData(["benchmark", "n", *systems], accuracies(format_accuracy)),
        "accuracy_95_percent_intervals": TableData(["benchmark", "n", *systems], accuracies(format_interval)),
        **{
            table: TableData(["benchmark", *systems], texts(partial(_Cell.show_values, table=table)))
            for table in COST_TABLES
        },
        "workflows": TableData(
            ["system", "mean steps", "format compliance", "more than one worker", "unscorable"], [*properties]
        ),
        "strategies": _strategies_table(board),
    }


def _strategies_table(board: Leaderboard) -> TableData:
    groups = {name: list(scores.values()) for name, scores in board.systems.items()}
    first_system = next(iter(board.systems), "")
    groups |= {
        f"{first_system} on {name}": [board.systems[first_system][name]]
        for name in board.benchmarks
        if name in board.systems[first_system]
    }
    rows = {name: row for name, scores in groups.items() if (row := _count_strategies(scores))}
    shown = [shape for shape in SHAPES if any(shapes[shape] for shapes, _ in rows.values())]
    head = ["strategy", *(shape.replace("_", " ") for shape in shown), "patterns", "diversity (bits)"]
    return TableData(head, [
        [name, *(f"{shapes[shape] / shapes.total():.0%}" for shape in shown), diversity.distinct,
         round(diversity.entropy, 2)]
        for name, (shapes, diversity) in rows.items()
    ])  # fmt: skip


def _count_strategies(scores: list[Summary]) -> tuple[Counter[str], Diversity] | None:
    shapes, patterns = Counter[str](), Counter[str]()
    for summary in scores:
        shapes.update(summary.shapes)
        patterns.update(summary.patterns)
    return (shapes, measure_diversity(patterns.elements())) if shapes else None


def _workflow_properties(scores: list[Summary]) -> list[str | int | float]:
    rows = sum(s.rows for s in scores)
    if not rows:
        return ["–"] * 4
    written = {id(s): s.rows * s.format_compliance for s in scores}
    workflows = sum(written.values())

    def per_workflow(field: str, form: str) -> str:
        if not workflows:
            return "–"
        return format(sum(getattr(s, field) * written[id(s)] for s in scores if written[id(s)]) / workflows, form)

    return [
        per_workflow("steps", ".2f"),
        f"{workflows / rows:.1%}",
        per_workflow("multi_worker_share", ".1%"),
        sum(s.unscorable for s in scores),
    ]


# ── charts ───────────────────────────────────────────────────────────────────


def chart_reward(steps: Sequence[int], rewards: Sequence[float]) -> LineChart:
    """Return a chart of the mean reward by training step, with its running mean over five steps."""
    means = [fmean(rewards[max(0, place - 4) : place + 1]) for place in range(len(rewards))]
    series = {"mean of 5 steps": (steps, means), "step": (steps, rewards)}
    return LineChart("", "training step", "mean reward", series, None)


def chart_strategies(rows: Sequence[Mapping[str, Any]]) -> StackedAreas:
    """Return a chart of the shares of shapes among well-formed workflows, and of the entropy of their patterns, by
    training step.

    `rows` are the lines of a training curve with the keys `step`, `shape/NAME`, `patterns` and `diversity` (bits).
    """
    totals = [sum(row.get(f"shape/{name}", 0.0) for name in SHAPES) or 1.0 for row in rows]
    layers = {
        name.replace("_", " "): [
            100 * row.get(f"shape/{name}", 0.0) / total for row, total in zip(rows, totals, strict=True)
        ]
        for name in SHAPES
        if any(row.get(f"shape/{name}") for row in rows)
    }
    steps, entropy = [row["step"] for row in rows], [row.get("diversity", 0.0) for row in rows]
    return StackedAreas(
        "", "training step", "share of workflows in %", steps, layers, entropy, "entropy of patterns, bits"
    )


def chart_accuracy_by_benchmark(board: Leaderboard) -> DotPlot:
    """Return a chart of the accuracy of every system on every benchmark, with 95 % intervals."""
    series = {
        system: [error_bar_of(scores[name].accuracy) if name in scores else None for name in board.benchmarks]
        for system, scores in board.systems.items()
    }
    return DotPlot("", "accuracy in % (95 % interval)", "benchmark", board.benchmarks, series)


def error_bar_of(accuracy: MeanEstimate) -> ErrorBar:
    """Return an accuracy in percent with the ends of its 95 % interval as an error bar."""
    return ErrorBar(100 * accuracy.mean, 100 * accuracy.low, 100 * accuracy.high)


def chart_worker_use(rows: Rows) -> StackedBars:
    """Return a chart of each worker's share of the executed steps in each domain."""
    used = count_worker_steps(rows)
    layers = compute_shares(used, {name: name for name in sorted(set().union(*used.values()))})
    return StackedBars("", "share of the steps in %", "domain", list(used), layers)


def chart_accuracy_against_cost(profiles: Sequence[Profile], level: tuple[str, float] | None = None) -> ScatterPlot:
    """Return a chart of the workers' mean accuracy over the benchmarks, in percent, against USD per 1,000 calls.

    `level` is the name and the height, in percent, of a horizontal line, for example that of the oracle. Workers that
    were unreachable are left out. A worker without a price is drawn to the left of the cheapest one. Raises
    `ValueError` if no worker has answered a problem.
    """
    answered = [profile for profile in profiles if profile.overall.n]
    if not answered:
        raise ValueError("no worker has answered a problem: there is nothing to draw")
    leftmost_usd = 0.4 * min((profile.cost_usd for profile in answered if profile.cost_usd > 0), default=1e-6)
    points = []
    for profile in answered:
        accuracy = average_estimates([estimate_of_score(score) for score in profile.by_benchmark.values()])
        name = profile.worker if profile.cost_usd > 0 else f"{profile.worker} (no price)"
        points.append(Point(name, 1000 * (profile.cost_usd or leftmost_usd), error_bar_of(accuracy), name))
    return ScatterPlot("", "mean USD for 1,000 calls", "accuracy in % (95 % interval)", points, reference_line=level)
