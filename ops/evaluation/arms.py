"""Tables and pictures of the arms of a study: accuracies, paired differences, properties of workflows, and costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.core.charts import NARROW_IN, DotPlot, Point, ScatterPlot, render_png
from ops.results.leaderboard import TableData, error_bar_of, format_accuracy
from ops.results.statistics import (
    MeanEstimate,
    PooledEstimate,
    PricedAccuracy,
    adjust_holm,
    average_over_seeds,
    estimate_pooled,
    find_frontier,
)
from ops.results.summary import (
    QUESTION_KEY,
    PairedQuestions,
    average_by_question,
    collect_in_parts,
    count_values_by_benchmark,
    gains_over_seeds,
    list_benchmarks,
    mean_accuracy,
    mean_per_answer,
)
from ops.results.table import Rows, concatenate_rows
from ops.workflow.strategy import measure_diversity

if TYPE_CHECKING:
    import polars as pl

MINUS_CONDUCTOR = "minus Conductor"
"""The heading of the column in which an opponent is compared with the Conductor."""
TableRow = list[str | int | float]
TRAINED_SUBJECTS, UNSEEN_SUBJECTS = "trained subjects", "unseen subjects"
"""The in-domain questions of subjects that were trained on, and of subjects that were left out of training."""


@dataclass(frozen=True)
class Arm:
    """The answers of one system of a study, for one seed."""

    name: str
    runs: Sequence[Rows]
    """The rows of each run. Several runs, such as on several worker subsets, count as repeats of the same questions."""
    compared_with: Mapping[str, str] = field(default_factory=dict)
    """Heading of a column (`minus as it is`) → the name of the arm that this arm is compared with in that column."""
    extra_columns: Mapping[str, float | str] = field(default_factory=dict)
    """Heading → value of further columns."""
    unseen_keys: frozenset[str] = frozenset()
    """The keys of in-domain questions whose subject this seed left out of training (`curation.unseen_subjects`)."""

    @cached_property
    def rows(self) -> pl.LazyFrame:
        """The rows of all runs."""
        return concatenate_rows(self.runs)

    @cached_property
    def questions(self) -> pl.DataFrame:
        """One line for each scored question (`average_by_question`)."""
        return average_by_question(self.rows)

    @cached_property
    def statistics(self) -> Mapping[str, float]:
        """Statistics of the arm's rows.

        These are the shares of all rows that are `valid` and `right_if_valid`, their mean `steps`, the number of
        `unscorable` rows, the mean `calls` of scored rows, and the `entropy` of the patterns in bits.
        """
        import polars as pl

        scored = ~pl.col("unscorable")
        [found] = collect_in_parts(
            self.rows.select(
                valid=pl.col("format_ok").mean(),
                right_if_valid=pl.col("correct").filter("format_ok").mean(),
                steps=pl.col("steps").mean(),
                unscorable=(~scored).cast(pl.Int64).sum(),
                calls=pl.col("workers").list.len().filter(scored).mean(),
            )
        ).to_dicts()
        patterns = chain.from_iterable(
            counts.elements() for counts in count_values_by_benchmark(self.rows, "pattern").values()
        )
        numbers = {name: float("nan") if value is None else value for name, value in found.items()}
        return numbers | {"entropy": measure_diversity(patterns).entropy}

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks with a scored question."""
        return sorted(self.questions["benchmark"].unique())

    def groups(self, benchmarks: Sequence[str]) -> dict[str, list[str]]:
        """Return group of questions → its benchmarks, for the groups with at least one of these benchmarks."""
        named = group_benchmarks(benchmarks)
        if self.unseen_keys:
            named = dict.fromkeys((TRAINED_SUBJECTS, UNSEEN_SUBJECTS), named["in-domain"]) | {"OOD": named["OOD"]}
        return {name: own for name, own in named.items() if own}

    def questions_of_group(self, group: str) -> pl.DataFrame:
        """Return the lines of the questions of a group; for a group of whole benchmarks, those of all questions."""
        import polars as pl

        if group not in (TRAINED_SUBJECTS, UNSEEN_SUBJECTS):
            return self.questions
        is_unseen = pl.concat_str(QUESTION_KEY, separator="/").is_in(list(self.unseen_keys))
        return self.questions.filter(is_unseen if group == UNSEEN_SUBJECTS else ~is_unseen)

    def mean_usd(self, benchmarks: Sequence[str]) -> float:
        """Return the mean cost in USD of a scored answer to these benchmarks."""
        return mean_per_answer(self.questions.filter(self.questions["benchmark"].is_in(benchmarks)), "cost_usd")


class Findings(NamedTuple):
    """The results of a study: tables, a note and a picture."""

    summary: TableData
    details: TableData
    """A longer table, which may be empty."""
    note: str
    """A note on the data behind the tables."""
    picture: bytes
    """A picture as a PNG file."""
    families: TableData = TableData([], [])
    """A table by family of questions, which may be empty."""
    claims: TableData = TableData([], [])
    """A table of some arms beside every opponent, pooled over the seeds; it may be empty."""


ArmsBySeed = Mapping[int, Sequence[Arm]]


def format_arm_name(policy: str, change: str, temperature: float = 0.0) -> str:
    """Return the name of a policy's arm, with the change of its recipe ("" for none) and the temperature (if it is not
    0)."""
    drawn = f", temperature {temperature:g}" if temperature else ""
    return f"{change}: {policy}{drawn}" if change else f"{policy}{drawn}"


def summarize_arms(
    by_seed: ArmsBySeed, families: Mapping[str, str] | None = None, claimed_names: Sequence[str] = ()
) -> Findings:
    """Summarise the arms of every seed as the findings of a study.

    With several seeds, the details are the table of each seed. With `families` (problem key → family), the findings
    have a table of the first two arms by family. With `claimed_names` they have the table `claims` of the arms with
    these names in place of the details, and the picture shows prices.
    """
    arms = [arm for own in by_seed.values() for arm in own]
    unscorable = sum(int(arm.statistics["unscorable"]) for arm in arms)
    note = f"{unscorable} rows of unreachable workers are left out." if unscorable else ""
    none, first = TableData([], []), next(iter(by_seed.values()))
    details = make_seed_table(by_seed) if len(by_seed) > 1 and not claimed_names else none
    shares = make_family_table(arms, families, [arm.name for arm in first[:2]]) if families else none
    drawn = draw_price_plane(by_seed) if claimed_names else draw_differences(first)
    pairs = make_claims_table(by_seed, claimed_names) if claimed_names else none
    return Findings(make_arm_table(by_seed), details, note, drawn, shares, pairs)


def make_arm_table(by_seed: ArmsBySeed) -> TableData:
    """Return a table with one row per arm: accuracies in per cent, and paired differences in percentage points.

    Standard errors are over questions for one seed, and over seeds for several. A 95 % interval replaces a standard
    error over questions that would mislead (`format_accuracy`), and one over seeds that is 0. An arm with a single seed
    is compared with the arms of every seed. Columns without any value are left out.
    """
    names = list(dict.fromkeys(arm.name for arms in by_seed.values() for arm in arms))
    known = [{arm.name: arm for arm in arms} for arms in by_seed.values()]
    every = {name: next(arms[name] for arms in known if name in arms) for name in names}
    besides = list(dict.fromkeys(head for arm in every.values() for head in arm.compared_with))
    lines = {name: _make_cells([every | arms for arms in known], name, besides) for name in names}
    heads = list(dict.fromkeys(head for line in lines.values() for head in line))
    heads = [head for head in heads if any(line.get(head) for line in lines.values())]
    rows: list[TableRow] = [[name, *(line.get(head, "") for head in heads)] for name, line in lines.items()]
    return TableData(["system", *heads], rows)


def _make_cells(seeds: Sequence[Mapping[str, Arm]], name: str, besides: Sequence[str]) -> dict[str, str]:
    """Return heading → cell of one arm; `seeds` has all arms of each seed, `besides` the headings of differences."""
    own = [arms[name] for arms in seeds]
    cells: dict[str, str] = {}
    for group, benchmarks in own[0].groups(own[0].benchmarks).items():
        cells[f"{group}, %"] = _format_over_seeds(
            [mean_accuracy(arm.questions_of_group(group), benchmarks) for arm in own]
        )
        for head in besides:
            others = [arms[own[0].compared_with[head]] for arms in seeds if head in own[0].compared_with]
            pairs = zip(own, others, strict=False)
            points = [
                PairedQuestions(arm.questions_of_group(group), other.questions).difference(benchmarks)
                for arm, other in pairs
            ]
            cells[f"{group} {head}, points"] = _format_over_seeds(points, -1.0) if points else ""
    if own[0].questions.is_empty():
        return cells

    def mean(figure: str) -> float:
        return fmean(arm.statistics[figure] for arm in own)

    cells["valid, %"] = f"{100 * mean('valid'):.1f}"
    cells["right if valid, %"] = f"{100 * mean('right_if_valid'):.1f}"
    cells["entropy, bits"] = f"{mean('entropy'):.2f}"
    cells["steps"] = f"{mean('steps'):.2f}"
    cells["calls a question"] = f"{mean('calls'):.2f}"
    cells["USD a question"] = f"{fmean(arm.mean_usd(arm.benchmarks) for arm in own):.6f}"
    if in_domain := group_benchmarks(own[0].benchmarks)["in-domain"]:
        cells["USD in-domain"] = f"{fmean(arm.mean_usd(in_domain) for arm in own):.6f}"
    return cells | {
        head: _format_extra_column([arm.extra_columns[head] for arm in own]) for head in own[0].extra_columns
    }


def _format_over_seeds(estimates: Sequence[MeanEstimate], least: float = 0.0) -> str:
    found = average_over_seeds(estimates, least)
    if len(estimates) > 1 and found.standard_error > 0:  # the standard error over the seeds
        found = MeanEstimate(*found[:3])
    return format_accuracy(found)


def _format_extra_column(values: Sequence[float | str]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    return f"{fmean(numbers):.4g}" if len(numbers) == len(values) else str(values[0])


def make_claims_table(by_seed: ArmsBySeed, claimed_names: Sequence[str]) -> TableData:
    """Return a table of the accuracy of each claimed arm minus that of every opponent, in points, pooled over seeds.

    An opponent is an arm that is compared with the Conductor (`MINUS_CONDUCTOR`) on every seed. A question counts if
    both arms scored it on every seed. The p-values are adjusted by Holm's method over the whole table. Raises
    `KeyError` if a seed has no such arm.
    """
    seeds = [{arm.name: arm for arm in arms} for arms in by_seed.values()]
    prices = {name: fmean(arm.mean_usd(arm.benchmarks) for arm in own) for name, own in _group_by_name(by_seed)}
    groups = {name: own for name, own in group_benchmarks(_benchmarks_of_first_arm(by_seed)).items() if own}
    opponents = {arm.name for arms in by_seed.values() for arm in arms if MINUS_CONDUCTOR in arm.compared_with}
    others = [name for name in prices if name in opponents and all(name in seed for seed in seeds)]
    pairs = [(own, other) for own in claimed_names for other in others]
    made = [[_pool_differences(seeds, *pair, benchmarks) for benchmarks in groups.values()] for pair in pairs]
    adjusted = adjust_holm([each.p_value for line in made for each in line]).reshape(len(pairs), len(groups)).tolist()
    heads = [
        head for group in groups for head in (f"{group}, points", f"p, {group}", f"detected from, {group}, points")
    ]
    rows: list[TableRow] = [
        [own, other, f"{prices[other] / prices[own]:.2f}", *chain.from_iterable(map(_format_claim, line, p_values))]
        for (own, other), line, p_values in zip(pairs, made, adjusted, strict=True)
    ]
    return TableData(["ours", "minus", "its price ÷ ours", *heads], rows)


def _group_by_name(by_seed: ArmsBySeed) -> Iterable[tuple[str, list[Arm]]]:
    """Return pairs of a name and the arms with this name."""
    made: dict[str, list[Arm]] = defaultdict(list)
    for arms in by_seed.values():
        for arm in arms:
            made[arm.name].append(arm)
    return made.items()


def _pool_differences(
    seeds: Sequence[Mapping[str, Arm]], ours: str, other: str, benchmarks: Sequence[str]
) -> PooledEstimate:
    pairs = [PairedQuestions(arms[ours].questions, arms[other].questions) for arms in seeds]
    return estimate_pooled(gains_over_seeds(pairs, benchmarks))


def _benchmarks_of_first_arm(by_seed: ArmsBySeed) -> list[str]:
    """Return the benchmarks of the first arm."""
    return list_benchmarks(next(iter(by_seed.values()))[0].rows)


def _format_claim(found: PooledEstimate, adjusted: float) -> tuple[str, str, str]:
    p_value = f"{adjusted:.3f}" if adjusted >= 0.001 else "< 0.001"
    return f"{100 * found.mean:.1f} ± {100 * found.standard_error:.1f}", p_value, f"{100 * found.detectable:.1f}"


def draw_price_plane(by_seed: ArmsBySeed) -> bytes:
    """Draw each arm by its price and accuracy, in-domain and out of distribution, over all seeds; return a PNG.

    A line joins the arms that no cheaper arm matches out of distribution (in-domain if there are no such benchmarks).
    """
    points, line = list[Point](), list[int]()
    for group, benchmarks in group_benchmarks(_benchmarks_of_first_arm(by_seed)).items():
        begun, offers = len(points), list[PricedAccuracy]()
        for name, own in _group_by_name(by_seed) if benchmarks else ():
            estimate = average_over_seeds([mean_accuracy(arm.questions, benchmarks) for arm in own])
            offers.append(PricedAccuracy(fmean(arm.mean_usd(benchmarks) for arm in own), estimate.mean))
            kind = "Conductor" if name.endswith("Conductor") else "others"
            points.append(Point(name, offers[-1].price, error_bar_of(estimate), f"{kind}, {group}"))
        line = [begun + place for place in find_frontier(offers)] or line
    # docs/images has this picture, which is read on telephones too.
    return render_png(ScatterPlot("", "USD a question (logarithmic)", "right, in %", points, line), width=NARROW_IN)


def make_seed_table(by_seed: ArmsBySeed) -> TableData:
    """Return a table of the arms with one row per seed and arm."""
    tables = {seed: make_arm_table({seed: arms}) for seed, arms in by_seed.items()}
    heads = list(dict.fromkeys(head for each in tables.values() for head in each.head))
    rows = [
        [seed, *(dict(zip(each.head, row, strict=True)).get(head, "") for head in heads)]
        for seed, each in tables.items()
        for row in each.rows
    ]
    return TableData(["seed", *heads], rows)


def make_family_table(arms: Sequence[Arm], families: Mapping[str, str], names: Sequence[str]) -> TableData:
    """Return a table by family of questions.

    Its columns are the accuracy of each named arm, and the mean steps and the most frequent workers of the first of
    them.
    """
    import polars as pl

    of_question = pl.concat_str(QUESTION_KEY, separator="/").replace_strict(families, return_dtype=pl.String)
    chosen = ("correct", "steps", "place", pl.col("workers").list.join(", "))
    named = [arm.rows.with_columns(family=of_question, arm=pl.lit(arm.name)) for arm in arms]
    rows = pl.concat(named).with_row_index("place").select("family", "arm", *chosen)
    order = collect_in_parts(rows.group_by("family").agg(pl.col("place").min())).sort("place")["family"]
    means = collect_in_parts(
        rows.group_by("family", "arm").agg(pl.col("correct", "steps").mean(), pl.len().alias("rows"))
    )
    found = {(family, arm): own for family, arm, *own in means.iter_rows()}
    uses = rows.filter(pl.col("arm") == names[0]).group_by("family", "workers").agg(pl.len(), pl.col("place").min())
    most = collect_in_parts(uses).sort(["len", "place"], descending=[False, True])
    commonest = {family: (workers, times) for family, workers, times, _ in most.iter_rows()}
    lines: list[TableRow] = []
    for family in order:
        shares = [f"{100 * found[family, name][0]:.0f}" if (family, name) in found else "nan" for name in names]
        _, steps, count = found[family, names[0]]
        workers, times = commonest[family]
        lines.append([family, *shares, f"{steps:.1f}", f"{workers or 'no workflow'} ({times / count:.0%})"])
    return TableData(["family", *(f"{name}, %" for name in names), "steps", "its commonest workers, in order"], lines)


def draw_differences(arms: Sequence[Arm]) -> bytes:
    """Draw the first difference of each arm, in-domain and out of distribution; return a PNG.

    If no arm is compared with another, the accuracies are drawn.
    """
    by_name = {arm.name: arm for arm in arms}
    compared = {arm.name: next(iter(arm.compared_with.values())) for arm in arms if arm.compared_with}
    estimates = {
        arm.name: {
            group: PairedQuestions(arm.questions_of_group(group), by_name[compared[arm.name]].questions).difference(
                benchmarks
            )
            if compared
            else mean_accuracy(arm.questions_of_group(group), benchmarks)
            for group, benchmarks in arm.groups(list_benchmarks(arm.rows)).items()
        }
        for arm in arms
        if not compared or arm.name in compared
    }
    return draw_estimates(
        estimates, "difference to the arm that it is compared with, in points" if compared else "right, in %"
    )


def draw_estimates(estimates: Mapping[str, Mapping[str, MeanEstimate]], unit: str) -> bytes:
    """Draw each estimate with its 95 % interval, in per cent or points; return a PNG.

    `estimates` is label → group → estimate from -1 to 1; every label has the same groups.
    """
    groups = list(dict.fromkeys(group for each in estimates.values() for group in each))
    series = {group: [error_bar_of(each[group]) for each in estimates.values()] for group in groups}
    return render_png(DotPlot("", unit, "", list(estimates), series, shows_zero_line=True))


def group_benchmarks(benchmarks: Sequence[str]) -> dict[str, list[str]]:
    """Return the given benchmarks in two groups: in-domain and out of distribution (OOD)."""
    return {
        "in-domain": [name for name in training_benchmarks() if name in benchmarks],
        "OOD": [name for name in ood_benchmarks() if name in benchmarks],
    }
