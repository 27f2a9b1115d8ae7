"""What an answer takes, such as tokens, USD and seconds: each measure is declared once in `MEASURES`.

The leaderboard, the report, the page of a decision, Dagster's metadata, MLflow's metrics, the table of outcomes and the
gate's comparisons of cost iterate over the declarations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ops.spending.bookings import format_usd

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Measure:
    """One measure with its computation, its names and format, and the gate's rules on it. Less is better."""

    name: str
    """The name in summaries, in the lines of `average_by_question` and in the table of outcomes."""
    head: str
    """The head of a column that shows it, with the unit."""
    expression: Callable[[Any], pl.Expr]
    """Makes the expression over score rows from `polars.col`: of one answer for a mean, otherwise of all answers."""
    is_mean: bool = True
    """Whether the value of a system is the mean over its answers, so that it can be averaged by question. The value of
    several benchmarks is the mean of theirs in any case."""
    digits: int | None = 2
    """The number of decimals; None for an amount in USD."""
    alias: str = ""
    """The name in MLflow's metrics and in the evidence of a decision, if it is another than `name`."""
    table: str = ""
    """The leaderboard's table that shows it, which is also a line of each cell in the terminal; empty if none does."""
    in_cell: str = "{}"
    """How the terminal shows the value in a cell that holds several measures."""
    unit: str = ""
    """The unit in the words of the gate's checks."""
    max_ratio: str = ""
    """The gate's setting (`config/promotion.yaml`) of the largest ratio to the champion's value; empty if the gate does
    not compare it."""
    max_value: str = ""
    """The gate's setting of the largest value of the challenger itself, for a mean; empty if there is none."""

    def __post_init__(self) -> None:
        if self.max_value and not self.is_mean:
            raise ValueError(f"{self.name}: max_value is a bound on a mean, so a percentile has only max_ratio")

    @property
    def key(self) -> str:
        """The name in MLflow's metrics and in the evidence of a decision."""
        return self.alias or self.name

    def format(self, value: float) -> str:
        """Return the value as text without its unit (USD with the sign); a dash for NaN."""
        if self.digits is None:
            return format_usd(value)
        return "–" if math.isnan(value) else f"{value:,.{self.digits}f}"


def _latency_percentile(col: Any, share: float) -> pl.Expr:
    return col("latency_s").filter(~col("unscorable")).quantile(share, "linear")  # type: ignore[no-any-return]


_TOKENS_AND_USD = "tokens_and_usd_a_question"
MEASURES = (
    Measure("tokens", "tokens", lambda col: col("tokens"), digits=0, table=_TOKENS_AND_USD),
    Measure("calls", "calls", lambda col: col("usage").list.len()),
    Measure("cost_usd", "USD", lambda col: col("cost_usd"), digits=None, alias="usd", table=_TOKENS_AND_USD,
            unit="USD a question", max_ratio="max_cost_ratio", max_value="max_question_usd"),
    Measure("latency_s", "latency, s", lambda col: col("latency_s"),
            unit="seconds a question", max_ratio="max_latency_ratio", max_value="max_question_s"),
    Measure("latency_p95_s", "p95 latency, s", lambda col: _latency_percentile(col, 0.95), is_mean=False,
            table="p95_latency_s", in_cell="p95 {} s", unit="seconds", max_ratio="max_p95_latency_ratio"),
)  # fmt: skip
"""All measures, in the order of their columns."""
MEANS = tuple(measure for measure in MEASURES if measure.is_mean)
COMPARED = tuple(measure for measure in MEASURES if measure.max_ratio)
"""The measures that the gate compares with the champion's."""
UNKNOWN = {measure.name: math.nan for measure in MEASURES}
"""The values of a system of which no measure is known."""


def average_values(values: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the unweighted mean of each measure, for example over benchmarks; NaN if there are no values."""
    return {name: fmean(each[name] for each in values) for name in UNKNOWN} if values else UNKNOWN
