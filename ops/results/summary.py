"""Figures of the results table, by question, by benchmark and for pairs of systems, as polars expressions over its
rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ops.core.errors import format_p_value
from ops.results.measures import MEANS, MEASURES, Measure
from ops.results.statistics import (
    Interval,
    MeanEstimate,
    average_estimates,
    estimate_accuracy,
    estimate_difference,
    estimate_mean,
    mcnemar_test,
    score_interval,
)
from ops.results.table import Rows, to_table

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

QUESTION_KEY = ("benchmark", "problem_id")
"""The columns that together identify a question."""
MEAN_COLUMNS = ("correct", *(measure.name for measure in MEANS))
"""The columns that `average_by_question` averages over the answers to a question."""
_NAN = float("nan")


def collect_in_parts(frame: pl.LazyFrame) -> pl.DataFrame:
    """Return the result of a query, which polars computes in parts so that memory does not grow with the number of
    rows."""
    return frame.collect(engine="streaming")


def filter_scored(rows: Rows) -> pl.LazyFrame:
    """Return the rows of which it is known whether the answer is correct. All averages exclude the other rows."""
    import polars as pl

    return to_table(rows).filter(~pl.col("unscorable"))


def filter_valid(rows: Rows) -> pl.LazyFrame:
    """Return the rows with a well-formed workflow. An invalid one calls no worker, so it costs nothing and takes no
    time; means of cost and latency are compared without such rows."""
    return to_table(rows).filter("format_ok")


def count_unscorable(rows: Rows) -> int:
    """Return the number of rows in which a worker or the judging model could not be reached."""
    import polars as pl

    return int(collect_in_parts(to_table(rows).select(pl.col("unscorable").cast(pl.Int64).sum())).item())


def select_grades(rows: Rows) -> pl.DataFrame:
    """Return `problem_key`, `repeat`, `correct` and `unscorable` of each row, sorted by these columns."""
    import polars as pl

    key = pl.concat_str(QUESTION_KEY, separator="/").alias("problem_key")
    chosen = to_table(rows).select(key, "repeat", "correct", "unscorable")
    return collect_in_parts(chosen.sort("problem_key", "repeat", "correct", "unscorable"))


def grades_by_repeat(rows: Rows) -> dict[tuple[str, str], list[float]]:
    """Return for each (benchmark, question) a list with 1 or 0 for each repeat from 0, or NaN where correctness is not
    known."""
    import polars as pl

    correct_if_known = pl.when(~pl.col("unscorable")).then(pl.col("correct"))
    grades: dict[tuple[str, str], list[float]] = defaultdict(list)
    answers = collect_in_parts(
        to_table(rows).select(*QUESTION_KEY, "repeat", correct_if_known).sort(*QUESTION_KEY, "repeat")
    )
    for benchmark, question, repeat, correct in answers.iter_rows():
        question_grades = grades[benchmark, question]
        question_grades += [_NAN] * (repeat - len(question_grades))
        question_grades.append(_NAN if correct is None else float(correct))
    return grades


def count_questions(rows: Rows) -> dict[str, int]:
    """Return the number of questions of each benchmark, sorted by benchmark."""
    import polars as pl

    counted = collect_in_parts(to_table(rows).group_by("benchmark").agg(pl.col("problem_id").n_unique()))
    return dict(counted.sort("benchmark").iter_rows())


def list_benchmarks(rows: Rows) -> list[str]:
    """Return the sorted names of the benchmarks that occur in the rows."""
    return sorted(collect_in_parts(to_table(rows).select("benchmark").unique())["benchmark"])


# ── by question ──────────────────────────────────────────────────────────────


def average_by_question(rows: Rows, *by: str | pl.Expr) -> pl.DataFrame:
    """Return a line for each question with a scored answer, sorted by benchmark and question.

    `answers` is the number of scored answers. `correct` (a share in [0, 1]) and the `MEANS`, such as `cost_usd`, are
    means over them. With `by`, there is a line for each question and value of these columns.
    """
    import polars as pl

    measured = {measure.name: measure.expression(pl.col) for measure in MEANS}
    answers = filter_scored(rows).with_columns(**measured).group_by(*by, *QUESTION_KEY)
    grouped = answers.agg(pl.len().cast(pl.Int64).alias("answers"), pl.col(*MEAN_COLUMNS).mean())
    return collect_in_parts(grouped.sort(*QUESTION_KEY))


def mean_usd(rows: Rows) -> float:
    """Return the mean cost of an answer in USD, unscorable ones included; NaN if there are no rows."""
    costs = collect_in_parts(to_table(rows).select("cost_usd"))["cost_usd"]
    return math.fsum(costs) / len(costs) if len(costs) else _NAN


def format_compliance_by_question(rows: Rows) -> pl.DataFrame:
    """Return a line for each question with the number of its `answers`, the number of well-formed workflows (`written`)
    and their `share`.

    Rows with unreachable workers count, because the workflow was written before the workers were called.
    """
    import polars as pl

    written = pl.col("format_ok").cast(pl.Int64)
    counts = (pl.len().cast(pl.Int64).alias("answers"), written.sum().alias("written"), written.mean().alias("share"))
    return collect_in_parts(to_table(rows).group_by(QUESTION_KEY).agg(*counts).sort(QUESTION_KEY))


def mean_per_answer(questions: pl.DataFrame, column: str) -> float:
    """Return the mean of a column of `average_by_question` over all answers; NaN if there are none."""
    if questions.is_empty():
        return _NAN
    # The sum is exact (`math.fsum`), so that it does not depend on the order in which the rows were read.
    return math.fsum((questions[column] * questions["answers"]).to_list()) / int(questions["answers"].sum())


def accuracy_by_question(rows: Rows) -> dict[str, dict[str, float]]:
    """Return the accuracy over repeats, in [0, 1], by benchmark and question, for paired comparisons."""
    accuracies: dict[str, dict[str, float]] = defaultdict(dict)
    for benchmark, question, correct in average_by_question(rows).select(*QUESTION_KEY, "correct").iter_rows():
        accuracies[benchmark][question] = correct
    return dict(accuracies)


def select_benchmark(questions: pl.DataFrame, benchmark: str) -> pl.DataFrame:
    """Return the lines of one benchmark."""
    return questions.filter(questions["benchmark"] == benchmark)


def mean_accuracy(questions: pl.DataFrame, benchmarks: Sequence[str]) -> MeanEstimate:
    """Return the unweighted mean accuracy over these benchmarks; it is NaN if one of them has no question."""
    return average_estimates([estimate_accuracy(select_benchmark(questions, name)["correct"]) for name in benchmarks])


# ── by benchmark ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Summary:
    """The results of one system on one benchmark.

    `values` are those of the `MEASURES` by name, over scored rows, and `steps` is the mean over well-formed workflows.
    Shares are in [0, 1]. A mean over no rows is NaN.
    """

    benchmark: str
    accuracy: MeanEstimate
    rows: int
    unscorable: int
    values: Mapping[str, float]
    steps: float
    format_compliance: float
    multi_worker_share: float
    """The share of well-formed workflows in which more than one worker answered."""
    shapes: dict[str, int] = field(default_factory=dict)
    """The number of well-formed workflows of each shape."""
    patterns: dict[str, int] = field(default_factory=dict)
    """The number of well-formed workflows of each pattern (workers and access, without the wording)."""

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Summary:
        """Restore a summary from the values that `as_dict` returned. A measure that is not among them is NaN."""
        own = {each.name: facts[each.name] for each in fields(cls) if each.name in facts}
        values = {measure.name: facts.get(measure.name, _NAN) for measure in MEASURES}
        return cls(**{**own, "accuracy": MeanEstimate(*facts["accuracy"]), "values": values})

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, with those of the measures beside the others."""
        facts = asdict(self)
        values: dict[str, Any] = facts.pop("values")
        return values | facts

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are logged to MLflow, by name."""
        return {
            "accuracy": self.accuracy.mean,
            "standard_error": self.accuracy.standard_error,
            "accuracy_low": self.accuracy.low,
            "accuracy_high": self.accuracy.high,
            **{measure.key: self.values[measure.name] for measure in MEASURES},
            "steps": self.steps,
            "format_compliance": self.format_compliance,
            "unscorable": float(self.unscorable),
        }

    @property
    def written(self) -> int:
        """The number of well-formed workflows."""
        return round(self.rows * self.format_compliance) if self.rows else 0


def describe_invalid(share: float) -> str:
    """Return ", 40% invalid", to stand beside a mean cost that invalid workflows lower, because each counts as $0 and 0
    seconds; empty below 1 %."""
    return f", {share:.0%} invalid" if share >= 0.01 else ""


def _summary_expressions() -> dict[str, pl.Expr]:
    """Return the fields of `Summary`, and the measures that are no means, with their expressions over the rows of a
    benchmark."""
    import polars as pl

    written = pl.col("format_ok")
    return {
        "rows": pl.len().cast(pl.Int64),
        "unscorable": pl.col("unscorable").cast(pl.Int64).sum(),
        "steps": pl.col("steps").filter(written).mean(),
        "format_compliance": written.mean(),
        "multi_worker_share": (pl.col("workers").list.n_unique() > 1).filter(written).mean(),
        **{measure.name: measure.expression(pl.col) for measure in MEASURES if not measure.is_mean},
    }


def summarize(rows: Rows) -> dict[str, Summary]:
    """Return a `Summary` for each benchmark, in order of first appearance. Unscorable rows enter only the counts."""
    import polars as pl

    rows = to_table(rows)
    by_benchmark = (
        rows.with_row_index("place").group_by("benchmark").agg(pl.col("place").min(), **_summary_expressions())
    )
    questions, shapes, patterns = (
        average_by_question(rows),
        count_values_by_benchmark(rows, "shape"),
        count_values_by_benchmark(rows, "pattern"),
    )
    summaries = {}
    for row in collect_in_parts(by_benchmark).sort("place").drop("place").to_dicts():
        name, benchmark_questions = row["benchmark"], select_benchmark(questions, row["benchmark"])
        figures: dict[str, Any] = {key: _NAN if value is None else value for key, value in row.items()}
        figures |= {measure.name: mean_per_answer(benchmark_questions, measure.name) for measure in MEANS}
        summaries[name] = Summary(
            values={measure.name: figures.pop(measure.name) for measure in MEASURES},
            accuracy=estimate_accuracy(benchmark_questions["correct"]),
            shapes={shape: count for shape, count in shapes[name].items() if shape},
            patterns={pattern: count for pattern, count in patterns[name].items() if pattern},
            **figures,
        )
    return summaries


def count_values(rows: Rows, column: str) -> Counter[str]:
    """Return the number of rows with each value of a column, in descending order; equal counts are in order of first
    appearance."""
    import polars as pl

    places = to_table(rows).select(column).with_row_index("place")
    counted = collect_in_parts(places.group_by(column).agg(pl.len().alias("count"), pl.col("place").min()))
    return Counter(dict(counted.sort("count", "place", descending=[True, False]).select(column, "count").iter_rows()))


def count_values_by_benchmark(rows: Rows, column: str) -> dict[str, Counter[Any]]:
    """Return for each benchmark the number of well-formed workflows with each value of a column, in descending
    order."""
    import polars as pl

    counted = collect_in_parts(to_table(rows).filter("format_ok").group_by("benchmark", column).agg(count=pl.len()))
    counts: dict[str, Counter[Any]] = defaultdict(Counter)
    for benchmark, value, count in counted.sort("count", column, descending=[True, False]).iter_rows():
        counts[benchmark][value] = count
    return counts


def count_worker_steps(rows: Rows) -> dict[str, Counter[str]]:
    """Return for each domain the number of steps that each worker ran, sorted by name. Domains without steps are left
    out."""
    import polars as pl

    steps = to_table(rows).select("domain", "workers").explode("workers").filter(pl.col("workers").is_not_null())
    counted = collect_in_parts(steps.group_by("domain", "workers").agg(count=pl.len())).sort("domain", "workers")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for domain, worker, count in counted.iter_rows():
        counts[domain][worker] = count
    return dict(counts)


# ── in pairs ─────────────────────────────────────────────────────────────────


class PairedQuestions:
    """Two systems on the questions that both of them scored, with the repeats of a question averaged."""

    def __init__(self, ours: pl.DataFrame, theirs: pl.DataFrame, rows: Sequence[Rows] = ()) -> None:
        """Pair the lines of `average_by_question` of two systems. `rows` are the rows of both, from which measures
        without a mean by question are computed."""
        self.rows = rows
        self.questions = ours.join(theirs, on=QUESTION_KEY, suffix="_theirs").sort(*QUESTION_KEY)
        self.asked = theirs.height
        """The number of questions that the other system scored."""

    @classmethod
    def from_rows(cls, ours: Rows, theirs: Rows) -> PairedQuestions:
        """Return the pairs for the rows of two systems."""
        return cls(average_by_question(ours), average_by_question(theirs), (ours, theirs))

    @classmethod
    def from_valid_rows(cls, ours: Rows, theirs: Rows) -> PairedQuestions:
        """Pair the questions for which both systems wrote a well-formed workflow, for comparisons of cost and latency.
        Answers without a workflow are left out."""
        return cls.from_rows(filter_valid(ours), filter_valid(theirs))

    def __len__(self) -> int:
        return self.questions.height

    def select_benchmark(self, benchmark: str) -> PairedQuestions:
        """Return the pairs of one benchmark."""
        selected = PairedQuestions.__new__(PairedQuestions)
        selected.questions = select_benchmark(self.questions, benchmark)
        selected.asked, selected.rows = selected.questions.height, self.rows
        return selected

    def strata(self) -> dict[str, list[float]]:
        """Return for each benchmark the paired differences: our accuracy minus theirs on each question."""
        gains = self.questions.select("benchmark", gain=self.questions["correct"] - self.questions["correct_theirs"])
        return {
            str(name): group["gain"].to_list() for (name,), group in gains.group_by("benchmark", maintain_order=True)
        }

    def difference(self, benchmarks: Sequence[str]) -> MeanEstimate:
        """Return our accuracy minus theirs as the mean over these benchmarks; it is NaN if one of them has no pair."""
        all_strata = self.strata()
        strata = [all_strata.get(name, []) for name in benchmarks]
        return (
            estimate_difference(strata)
            if all(strata)
            else average_estimates([estimate_mean(stratum) for stratum in strata])
        )

    def difference_interval(self, confidence: float) -> Interval:
        """Return the difference of the mean accuracies with its score interval. Every benchmark has the same weight."""
        return score_interval(list(self.strata().values()), confidence=confidence)

    def accuracies(self) -> tuple[MeanEstimate, MeanEstimate]:
        """Return the mean accuracy of each system over the benchmarks, with its 95 % interval."""
        names = list(self.strata())
        theirs = self.questions.select(*QUESTION_KEY, correct="correct_theirs")
        return mean_accuracy(self.questions, names), mean_accuracy(theirs, names)

    def accuracy_vectors(self) -> tuple[list[float], list[float]]:
        """Return the accuracies of each system, one for each question."""
        return self.questions["correct"].to_list(), self.questions["correct_theirs"].to_list()

    def describe_discordance(self) -> str:
        """Return a sentence fragment with the numbers of questions that only one system answered correctly, and
        McNemar's p-value."""
        test = mcnemar_test(*self.accuracy_vectors())
        return f"{test.gains} gains and {test.losses} losses of {len(self)}, McNemar's p {format_p_value(test.p_value)}"

    def values(self, measure: Measure) -> tuple[float, float]:
        """Return the value of a measure on these questions for each system; NaN if there is no common question.

        A mean gives every question the same weight. A measure that is no mean needs the pairs of `from_rows`.
        """
        import polars as pl

        if not self:
            return _NAN, _NAN
        if measure.is_mean:
            columns = (measure.name, f"{measure.name}_theirs")
            ours, theirs = (math.fsum(self.questions[name]) / len(self) for name in columns)
            return ours, theirs
        asked = self.questions.lazy()
        answers = (to_table(rows).join(asked, on=QUESTION_KEY, how="semi") for rows in self.rows)
        ours, theirs = (collect_in_parts(own.select(measure.expression(pl.col))).item() for own in answers)
        return ours, theirs


def gains_over_seeds(pairs: Sequence[PairedQuestions], benchmarks: Sequence[str]) -> list[NDArray[np.float64]]:
    """Return the paired differences of each benchmark as an array of shape (seeds, questions). `pairs` has an item for
    each seed.

    A question is used if both systems scored it with every seed. Benchmarks without such a question are left out.
    """
    import numpy as np
    import polars as pl

    gain = pl.col("correct") - pl.col("correct_theirs")
    seeds = [pair.questions.select(*QUESTION_KEY, gain=gain, seed=pl.lit(seed)) for seed, pair in enumerate(pairs)]
    by_question = pl.concat(seeds).sort(*QUESTION_KEY, "seed").group_by(QUESTION_KEY, maintain_order=True).agg("gain")
    shared = by_question.filter(pl.col("gain").list.len() == len(pairs))
    differences = [select_benchmark(shared, name)["gain"].to_list() for name in benchmarks]
    return [np.array(stratum).T.copy() for stratum in differences if stratum]
