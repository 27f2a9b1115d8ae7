"""The reach of a Conductor: the share of the answerable questions that it answers, and the strategies that it uses."""

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
    """How a Conductor uses one shape of workflow (`ops.workflow.strategy.classify_shape`)."""

    shape: str
    share: float
    """The share of the well-formed workflows that have this shape, in [0, 1]."""
    where: str
    """The benchmark on which the shape is most frequent."""
    paid: int
    """The number of questions that workflows of this shape answered correctly and no single worker did."""
    example: str
    """A workflow for one of these questions, or otherwise for any question that the shape answered correctly. It is ""
    if there is no such question on a public benchmark."""


@dataclass(frozen=True)
class Reach:
    """The Conductor's share of the answerable questions, and its strategies. All shares are in [0, 1]."""

    ceiling: float
    """The share of questions that the Conductor, another system (such as its cold start) or a single worker answered at
    any repeat."""
    reached: float
    """The share of these questions that the Conductor answered at any repeat."""
    valid: float
    """The share of rows with a well-formed workflow."""
    right_if_valid: float
    """The share of correct answers among the rows with a well-formed workflow."""
    strategies: tuple[StrategyUse, ...] = ()
    """Shapes of workflows in descending order of frequency."""

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Reach:
        """Return the `Reach` whose JSON was made with `dataclasses.asdict`."""
        strategies = tuple(StrategyUse(*row) for row in facts["strategies"])
        return cls(**{**facts, "strategies": strategies})


def compute_reach(conductor: Rows, others: Rows, single_workers: Rows, benchmarks: Collection[str]) -> Reach | None:
    """Return the reach on `benchmarks`, computed from the Conductor's rows; None if there are no scored rows.

    `single_workers` are the rows of single workers, and `others` those of further systems that count for the ceiling.
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
    """Return the questions that have a correct answer at any repeat."""
    import polars as pl

    return collect_in_parts(to_table(rows).filter(pl.col("correct") == 1).select(QUESTION_KEY).unique())


def _find_strategies(written: pl.LazyFrame, single: pl.DataFrame) -> list[StrategyUse]:
    """Return the use of each shape among well-formed workflows. `single` are the questions that a single worker
    answered."""
    import polars as pl

    answered_alone = single.lazy().with_columns(known=pl.lit(True))
    columns = ("place", *QUESTION_KEY, "shape", "correct")
    joined = written.select(columns).join(answered_alone, on=QUESTION_KEY, how="left")
    paid = (pl.col("correct") == 1) & pl.col("known").is_null()
    by_benchmark = collect_in_parts(
        joined.group_by("shape", "benchmark").agg(
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
    example_places = by_shape["example"].drop_nulls()
    examples = written.filter(pl.col("place").is_in(example_places.implode())).select("place", "completion")
    texts = {place: " ".join(completion.split()) for place, completion in collect_in_parts(examples).iter_rows()}
    total = int(by_shape["count"].sum())
    return [
        StrategyUse(row["shape"], row["count"] / total, row["where"], row["paid"], texts.get(row["example"], ""))
        for row in by_shape.iter_rows(named=True)
    ]
