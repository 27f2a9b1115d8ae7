"""Reach of a Conductor: its share of the answerable questions, and the strategies that it uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.benchmarks.registry import is_confidential
from ops.results.summary import QUESTION_KEY, collect_in_parts, filter_scored
from ops.results.table import Rows, to_table

if TYPE_CHECKING:
    import polars as pl


class StrategyUse(NamedTuple):
    """The use of one shape of workflow (`ops.workflow.strategy.classify_shape`)."""

    shape: str
    share: float
    """The share of well-formed workflows with this shape, in [0, 1]."""
    where: str
    """The benchmark on which the shape is most frequent."""
    paid: int
    """The number of questions that workflows of this shape answered and no single worker did."""
    example: str
    """A workflow for one of those questions, or else for any question that the shape answered; empty if there is no
    such question on a public benchmark."""


@dataclass(frozen=True)
class Reach:
    """The Conductor's share of the answerable questions, and its strategies; all shares are in [0, 1]."""

    ceiling: float
    """The share of questions that the Conductor, its cold start or a single worker answered at any repeat."""
    reached: float
    """The Conductor's share of the questions within the ceiling."""
    valid: float
    """The share of rows with a well-formed workflow."""
    right_if_valid: float
    """The share of right answers among the rows with a well-formed workflow."""
    strategies: tuple[StrategyUse, ...] = ()
    """Shapes of workflows, the most frequent first."""

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Reach:
        """Restore a `Reach` from JSON that was made with `dataclasses.asdict`."""
        strategies = tuple(StrategyUse(*row) for row in facts["strategies"])
        return cls(**{**facts, "strategies": strategies})


def compute_reach(conductor: Rows, others: Rows, single_workers: Rows, benchmarks: Collection[str]) -> Reach | None:
    """Compute the reach on `benchmarks` from the Conductor's rows; None without scored rows.

    `single_workers` are the rows of single workers; `others` are rows of further systems that count for the ceiling.
    """
    import polars as pl

    rows = filter_scored(conductor).with_row_index("place").filter(pl.col("benchmark").is_in(list(benchmarks)))
    questions = collect_in_parts(rows.group_by(QUESTION_KEY).agg(right=(pl.col("correct") == 1).any()))
    if questions.is_empty():
        return None
    single, other = _find_answered(single_workers), _find_answered(others)
    right = questions.filter("right").select(QUESTION_KEY)
    answerable = pl.concat([single, right, other]).unique().join(questions, on=QUESTION_KEY, how="semi").height
    written = rows.filter("format_ok")
    valid = collect_in_parts(rows.select(valid=pl.col("format_ok").mean())).item()
    right_if_valid = collect_in_parts(written.select(pl.col("correct").mean())).item()
    return Reach(
        ceiling=answerable / questions.height,
        reached=right.height / answerable if answerable else 0.0,
        valid=valid,
        right_if_valid=right_if_valid or 0.0,
        strategies=tuple(_find_strategies(written, single)),
    )


def _find_answered(rows: Rows) -> pl.DataFrame:
    """Return the questions with a right answer."""
    import polars as pl

    return collect_in_parts(to_table(rows).filter(pl.col("correct") == 1).select(QUESTION_KEY).unique())


def _find_strategies(written: pl.LazyFrame, single: pl.DataFrame) -> list[StrategyUse]:
    import polars as pl

    known = single.lazy().with_columns(known=pl.lit(True))
    columns = ("place", *QUESTION_KEY, "shape", "correct")
    marked = written.select(columns).join(known, on=QUESTION_KEY, how="left")
    paid = (pl.col("correct") == 1) & pl.col("known").is_null()
    by_benchmark = collect_in_parts(
        marked.group_by("shape", "benchmark").agg(
            pl.len().alias("count"),
            pl.col("place").min(),
            pl.col("problem_id").filter(paid).n_unique().alias("paid"),
            pl.col("place").filter(paid).min().alias("first_paid"),
            pl.col("place").filter(pl.col("correct") == 1).min().alias("first_right"),
        )
    )
    public = ~pl.col("benchmark").is_in([name for name in by_benchmark["benchmark"].unique() if is_confidential(name)])
    by_shape = (
        by_benchmark.sort(["count", "place"], descending=[True, False])
        .group_by("shape", maintain_order=True)
        .agg(
            pl.col("count").sum(),
            pl.col("place").min(),
            pl.col("benchmark").first().alias("where"),
            pl.col("paid").sum(),
            example=pl.coalesce(*(pl.col(name).filter(public).min() for name in ("first_paid", "first_right"))),
        )
        .sort(["count", "place"], descending=[True, False])
    )
    shown = by_shape["example"].drop_nulls()
    examples = written.filter(pl.col("place").is_in(shown.implode())).select("place", "completion")
    texts = {place: " ".join(completion.split()) for place, completion in collect_in_parts(examples).iter_rows()}
    total = int(by_shape["count"].sum())
    return [
        StrategyUse(row["shape"], row["count"] / total, row["where"], row["paid"], texts.get(row["example"], ""))
        for row in by_shape.iter_rows(named=True)
    ]
