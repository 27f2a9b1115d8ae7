"""Reports of an evaluation: the table in the terminal, the leaderboard's tables, and charts.

Reports show names and numbers, never a question or an answer: GPQA asks that its questions are not published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks, unseen_benchmarks
from ops.core.charts import Dots, Layers, Lines, Plane, Point, Spread, Stacked, shares
from ops.evaluation.reach import Reach
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import Summary
from ops.evaluation.statistics import MeanEstimate, mean_of
from ops.precaching.profiles import Profile, Score, mean_score
from ops.spending.books import usd
from ops.workflow.strategy import SHAPES, Diversity, diversity

if TYPE_CHECKING:
    from rich.table import Table

IN_DOMAIN, OOD = "in-domain mean", "OOD mean"
TITLE = "Accuracy in % ± standard error; below it tokens and USD per question"


@dataclass(frozen=True)
class Leaderboard:
    """Scores of all systems in display order, the Conductor first: name → benchmark → summary."""

    systems: Mapping[str, Mapping[str, Summary]]

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks with a score, in the registry's order: training benchmarks first."""
        seen = {name for scores in self.systems.values() for name in scores}
        known = [name for name in BENCHMARKS if name in seen]
        return known + sorted(seen - set(known))

    def mean(self, system: str, over: Sequence[str]) -> MeanEstimate:
        """Return the unweighted mean accuracy over the benchmarks in `over` that the system was scored on."""
        scores = self.systems[system]
        return mean_of([scores[name].accuracy for name in over if name in scores])

    def cost(self, system: str, over: Sequence[str]) -> tuple[float, float]:
        """Return (tokens, USD) per question, each the unweighted mean over the benchmarks in `over`, or NaN."""
        chosen = [self.systems[system][name] for name in over if name in self.systems[system]]
        if not chosen:
            return float("nan"), float("nan")
        return sum(s.tokens for s in chosen) / len(chosen), sum(s.cost_usd for s in chosen) / len(chosen)


def leaderboard(
    conductor: Iterable[OutcomeRow],
    baselines: Mapping[str, Mapping[str, Summary]],
    cold_start: Iterable[OutcomeRow] | None = None,
) -> Leaderboard:
    """Make the leaderboard of the Conductor, its cold start and the baselines, in display order.

    `baselines` is the result of `standings`.
    """
    from ops.evaluation.runner import summarize

    systems: dict[str, Mapping[str, Summary]] = {"Conductor": summarize(conductor)}
    if cold_start is not None:
        systems["cold start"] = summarize(cold_start)
    return Leaderboard({**systems, **baselines})


def systems_table(board: Leaderboard) -> Table:
    """Return the short table for the terminal: mean accuracies and cost per system, at most 80 columns wide."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    shown.add_column("system", overflow="fold")
    for head in ("in-domain, %", "OOD, %", "USD a question"):
        shown.add_column(head, justify="right", no_wrap=True)
    for system in board.systems:
        price = board.cost(system, training_benchmarks())[1]
        cells = (*(percent(board.mean(system, of())) for of in (training_benchmarks, unseen_benchmarks)),
                 "–" if math.isnan(price) else f"{price:.6f}")  # fmt: skip
        shown.add_row(Text(system), *cells, style="bold" if system == "Conductor" else None)
    return shown


def leaderboard_table(board: Leaderboard, title: str = TITLE) -> Table:
    """Return the full table for the terminal: one row per benchmark and mean, one column per system."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
    shown.add_column("benchmark", no_wrap=True)
    for system in board.systems:
        shown.add_column(Text(system.replace(" (", "\n(")), justify="right", overflow="fold")
    for line in _lines(board):
        shown.add_row(Text(f"{line.label}\nn = {line.n}"), *line.cells, style="bold" if line.is_mean else None)
        if _ends_section(board, line.label):
            shown.add_row()
    return shown


def _ends_section(board: Leaderboard, label: str) -> bool:
    seen = [name for name in board.benchmarks if name in training_benchmarks()]
    return label in {*board.benchmarks[-1:], *seen[-1:]}


class _Line(NamedTuple):
    label: str
    n: int
    cells: list[str]
    is_mean: bool = False


def _lines(board: Leaderboard) -> list[_Line]:
    lines = []
    for benchmark in board.benchmarks:
        scores = [by_name.get(benchmark) for by_name in board.systems.values()]
        n = max((s.accuracy.n for s in scores if s), default=0)
        cells = [_cell(s.accuracy, s.tokens, s.cost_usd) if s else "–" for s in scores]
        lines.append(_Line(benchmark, n, cells))
    for label, names in ((IN_DOMAIN, training_benchmarks()), (OOD, unseen_benchmarks())):
        if any(name in names for name in board.benchmarks):
            means = [(board.mean(system, names), *board.cost(system, names)) for system in board.systems]
            lines.append(_Line(label, max(m[0].n for m in means), [_cell(*m) for m in means], is_mean=True))
    return lines


def _cell(accuracy: MeanEstimate, tokens: float, cost: float) -> str:
    return f"{percent(accuracy)}\n{_number(tokens)} {usd(cost)}" if accuracy.n else "–"


def percent(accuracy: MeanEstimate) -> str:
    """Format an accuracy as `71.0 ± 4.5`: a dash if nothing was scored, no error if there is only one question."""
    if math.isnan(accuracy.mean):
        return "–"
    error = "" if math.isnan(accuracy.standard_error) else f" ± {100 * accuracy.standard_error:.1f}"
    return f"{100 * accuracy.mean:.1f}{error}"


def reach_tables(reaches: Mapping[str, Reach]) -> dict[str, Columns]:
    """Return two tables, `reach` and `strategies_that_paid`.

    `reach` has the ceiling and the Conductor's share of it; `strategies_that_paid` has one row per shape of workflow.
    """
    head = ["questions", "solved by a worker", "of those by the Conductor", "valid workflows", "right if valid"]
    parts: list[list[str | int | float]] = [
        [name, *(f"{share:.1%}" for share in (part.ceiling, part.reached, part.valid, part.right_if_valid))]
        for name, part in reaches.items()
    ]
    shapes: list[list[str | int | float]] = [
        # No-break spaces keep a workflow on one line in a narrow column.
        [name, each.shape, f"{each.share:.1%}", each.where, each.paid, each.example.replace(" ", "\N{NO-BREAK SPACE}")]
        for name, part in reaches.items()
        for each in part.strategies
    ]
    columns = ["questions", "shape", "share", "most on", "answers that no single worker gives", "an example"]
    return {"reach": Columns(head, parts), "strategies_that_paid": Columns(columns, shapes)}


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


class Columns(NamedTuple):
    """A table to render: distinct column heads, and rows of text and numbers."""

    head: list[str]
    rows: list[list[str | int | float]]


def tables(board: Leaderboard) -> dict[str, Columns]:
    """Return the leaderboard as tables: accuracies, cost per question, properties of workflows, and strategies.

    `strategies` has the share of each shape among well-formed workflows, per system and, for the first system, per
    benchmark. Its column `patterns` counts distinct patterns (workers and access, without wording), and `diversity` is
    their entropy in bits. Systems without workflows are left out of it.
    """
    systems = list(board.systems)
    cells = [(line, *zip(*(cell.partition("\n")[::2] for cell in line.cells), strict=True)) for line in _lines(board)]
    accuracies: list[list[str | int | float]] = [
        # No-break spaces keep the two numbers on one line in a narrow column.
        [line.label, line.n, *(text.replace(" ", "\N{NO-BREAK SPACE}") for text in shown)]
        for line, shown, _ in cells
    ]
    habits = [[name, *_habits(list(scores.values()))] for name, scores in board.systems.items()]
    return {
        "accuracy_in_percent": Columns(["benchmark", "n", *systems], accuracies),
        "tokens_and_usd_a_question": Columns(
            ["benchmark", *systems], [[line.label, *(text or "–" for text in spent)] for line, _, spent in cells]
        ),
        "workflows": Columns(
            ["system", "mean steps", "format compliance", "more than one worker", "unscorable"], [*habits]
        ),
        "strategies": _strategies(board),
    }


def _strategies(board: Leaderboard) -> Columns:
    groups = {name: list(scores.values()) for name, scores in board.systems.items()}
    first = next(iter(board.systems), "")
    groups |= {
        f"{first} on {name}": [board.systems[first][name]] for name in board.benchmarks if name in board.systems[first]
    }
    rows = {name: row for name, scores in groups.items() if (row := _strategy(scores))}
    shown = [shape for shape in SHAPES if any(shapes[shape] for shapes, _ in rows.values())]
    head = ["strategy", *(shape.replace("_", " ") for shape in shown), "patterns", "diversity (bits)"]
    return Columns(head, [
        [name, *(f"{shapes[shape] / shapes.total():.0%}" for shape in shown), varied.distinct, round(varied.entropy, 2)]
        for name, (shapes, varied) in rows.items()
    ])  # fmt: skip


def _strategy(scores: list[Summary]) -> tuple[Counter[str], Diversity] | None:
    shapes, patterns = Counter[str](), Counter[str]()
    for summary in scores:
        shapes.update(summary.shapes)
        patterns.update(summary.patterns)
    return (shapes, diversity(patterns.elements())) if shapes else None


def _habits(scores: list[Summary]) -> list[str | int | float]:
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


def reward_curve(steps: Sequence[int], rewards: Sequence[float], *, smooth: int = 5) -> Lines:
    """Chart the mean reward by training step and its running mean over `smooth` steps."""
    means = [fmean(rewards[max(0, place - smooth + 1) : place + 1]) for place in range(len(rewards))]
    series = {f"mean of {smooth} steps": (steps, means), "step": (steps, rewards)}
    return Lines("", "training step", "mean reward", series, None)


def strategy_curve(rows: Sequence[Mapping[str, Any]]) -> Layers:
    """Chart the shares of shapes among well-formed workflows and the patterns' entropy by training step.

    `rows` are the lines of a training curve with `step`, `shape/NAME`, `patterns` and `diversity` (bits).
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
    return Layers("", "training step", "share of workflows in %", steps, layers, entropy, "entropy of patterns, bits")


def accuracy_by_benchmark(board: Leaderboard) -> Dots:
    """Chart the accuracy of every system on every benchmark, with standard errors."""
    series = {
        system: [_spread(scores[name].accuracy) if name in scores else None for name in board.benchmarks]
        for system, scores in board.systems.items()
    }
    return Dots("", "accuracy in %", "benchmark", board.benchmarks, series)


def _spread(accuracy: MeanEstimate) -> Spread:
    return Spread.around(100 * accuracy.mean, 100 * accuracy.standard_error)


def worker_use(rows: Iterable[OutcomeRow]) -> Stacked:
    """Chart each worker's share of the steps that ran in each domain."""
    counts = worker_counts(rows)
    used = {domain: counts[domain] for domain in sorted(counts)}
    layers = shares(used, {name: name for name in sorted(set().union(*used.values()))})
    return Stacked("", "share of the steps in %", "domain", list(used), layers)


def worker_counts(rows: Iterable[OutcomeRow]) -> dict[str, Counter[str]]:
    """Return domain → worker → number of steps that it ran; domains without steps are left out."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row.workers:
            counts.setdefault(row.domain, Counter()).update(row.workers)
    return counts


def accuracy_against_cost(profiles: Sequence[Profile], oracle: Score | None = None) -> Plane:
    """Chart mean accuracy over the benchmarks (%, ± standard error) against USD per 1,000 calls, by worker.

    `oracle`: score of choosing the best worker for each problem, drawn as a line. Unreachable workers are omitted. A
    worker without a price is drawn left of the cheapest one. Raises `ValueError` if no profile has an answer.
    """
    answered = [profile for profile in profiles if profile.overall.n]
    if not answered:
        raise ValueError("no worker has answered a problem: there is nothing to draw")
    free = 0.4 * min((profile.cost_usd for profile in answered if profile.cost_usd > 0), default=1e-6)
    points = []
    for profile in answered:
        score = mean_score(profile.by_benchmark.values())
        name = profile.worker if profile.cost_usd > 0 else f"{profile.worker} (no price)"
        points.append(Point(name, 1000 * (profile.cost_usd or free), 100 * score.accuracy, 100 * score.se, name))
    level = None
    if oracle is not None and oracle.n:
        level = (f"best worker of each problem, with hindsight: {100 * oracle.accuracy:.1f} %", 100 * oracle.accuracy)
    return Plane("", "mean USD for 1,000 calls", "accuracy in % ± standard error", points, level=level)
