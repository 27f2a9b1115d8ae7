"""Tables and a picture of the arms of a study: accuracies, paired differences, properties of workflows, and costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.core.charts import Dots, Plane, Point, png
from ops.evaluation.reading import entropy, right_if_valid, share, valid
from ops.evaluation.report import Columns, percent, spread
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import (
    MeanEstimate,
    Offer,
    Pooled,
    frontier,
    holm,
    mean_over_seeds,
    pooled,
    question_means,
)
from ops.evaluation.subsets import accuracy, difference

OPPONENT = "minus Conductor"
"""The heading of the column in which an opponent is compared with the Conductor."""
Cells = list[str | int | float]
TRAINED, UNSEEN = "trained subjects", "unseen subjects"
"""The in-domain questions of subjects that were trained on, and of those that were not."""


@dataclass(frozen=True)
class Arm:
    """The answers of one system of a study, for one seed."""

    name: str
    runs: Sequence[Sequence[OutcomeRow]]
    """Several runs, such as on several worker subsets, count as repeats of the same questions."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Heading of a column (`minus as it is`) → the arm that this arm is compared with in that column."""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """Heading → value of further columns."""
    unseen: frozenset[str] = frozenset()
    """Keys of in-domain questions of subjects that this seed did not train on (`curation.unseen_subjects`)."""

    @property
    def rows(self) -> list[OutcomeRow]:
        """The rows of all runs."""
        return [row for run in self.runs for row in run]

    def groups(self, rows: Sequence[OutcomeRow]) -> dict[str, list[str]]:
        """Return group of questions → its benchmarks, for the groups that have any in these rows of the arm."""
        named = benchmark_groups(rows)
        if self.unseen:
            named = dict.fromkeys((TRAINED, UNSEEN), named["in-domain"]) | {"OOD": named["OOD"]}
        return {name: own for name, own in named.items() if own}

    def part(self, group: str) -> Sequence[Sequence[OutcomeRow]]:
        """Return the runs on a group's questions, or on all for a group of whole benchmarks."""
        if group not in (TRAINED, UNSEEN):
            return self.runs
        return [[row for row in run if (row.problem_key in self.unseen) == (group == UNSEEN)] for run in self.runs]


class Findings(NamedTuple):
    """The results of a study."""

    summary: Columns
    details: Columns
    """A longer table; may be empty."""
    said: str
    """A note on the data behind the tables."""
    picture: bytes
    """A PNG."""
    families: Columns = Columns([], [])
    """A table by family of questions; may be empty."""
    claims: Columns = Columns([], [])
    """Some arms beside every opponent, pooled over the seeds; may be empty."""


BySeed = Mapping[int, Sequence[Arm]]


def arm_name(policy: str, change: str, temperature: float = 0.0) -> str:
    """Return the name of a policy's arm: after a change of its recipe ("" is none), at a temperature."""
    drawn = f", temperature {temperature:g}" if temperature else ""
    return f"{change}: {policy}{drawn}" if change else f"{policy}{drawn}"


def findings(
    by_seed: BySeed, families: Mapping[str, str] | None = None, said: str = "", claimed: Sequence[str] = ()
) -> Findings:
    """Summarize the arms of every seed.

    With several seeds, the details are the table of each seed. With `families` (problem key → family), the result also
    has a table of the first two arms by family. With `claimed` it has the table `claims` of the arms with these names
    in place of the details, and the picture shows prices.
    """
    arms = [arm for own in by_seed.values() for arm in own]
    unscorable = sum(row.unscorable for arm in arms for row in arm.rows)
    notes = [said, f"{unscorable} rows of unreachable workers are left out." if unscorable else ""]
    none, first = Columns([], []), next(iter(by_seed.values()))
    details = per_seed(by_seed) if len(by_seed) > 1 and not claimed else none
    shares = by_family(arms, families, [arm.name for arm in first[:2]]) if families else none
    drawn = plane(by_seed) if claimed else picture(first)
    pairs = claims(by_seed, claimed) if claimed else none
    return Findings(table(by_seed), details, " ".join(filter(None, notes)), drawn, shares, pairs)


def table(by_seed: BySeed) -> Columns:
    """Make a table with one row per arm: accuracies in per cent and paired differences in points.

    Standard errors are over questions for one seed, and over seeds for several. A 95 % interval stands in place of a
    standard error over questions that misleads (`percent`), or of one over seeds that is 0. An arm with a single seed
    is compared with the arms of every seed. Columns without any value are left out.
    """
    names = list(dict.fromkeys(arm.name for arms in by_seed.values() for arm in arms))
    known = [{arm.name: arm for arm in arms} for arms in by_seed.values()]
    every = {name: next(arms[name] for arms in known if name in arms) for name in names}
    besides = list(dict.fromkeys(head for arm in every.values() for head in arm.beside))
    lines = {name: _line([every | arms for arms in known], name, besides) for name in names}
    heads = list(dict.fromkeys(head for line in lines.values() for head in line))
    heads = [head for head in heads if any(line.get(head) for line in lines.values())]
    rows: list[Cells] = [[name, *(line.get(head, "") for head in heads)] for name, line in lines.items()]
    return Columns(["system", *heads], rows)


def _line(seeds: Sequence[Mapping[str, Arm]], name: str, besides: Sequence[str]) -> dict[str, str]:
    """Return heading → cell of one arm; `seeds` has all arms per seed, `besides` the headings of differences."""
    own = [arms[name] for arms in seeds]
    rows = [row for row in own[0].rows if not row.unscorable]
    cells: dict[str, str] = {}
    for group, benchmarks in own[0].groups(rows).items():
        cells[f"{group}, %"] = _over([accuracy(arm.part(group), benchmarks) for arm in own])
        for head in besides:
            others = [arms[own[0].beside[head]] for arms in seeds if head in own[0].beside]
            pairs = zip(own, others, strict=False)
            points = [difference(arm.part(group), other.runs, benchmarks) for arm, other in pairs]
            cells[f"{group} {head}, points"] = _over(points, -1.0) if points else ""
    if not rows:
        return cells
    cells["valid, %"] = f"{100 * _mean(valid(arm.rows) for arm in own):.1f}"
    cells["right if valid, %"] = f"{100 * _mean(right_if_valid(arm.rows) for arm in own):.1f}"
    cells["entropy, bits"] = f"{_mean(entropy(arm.rows) for arm in own):.2f}"
    cells["steps"] = f"{_mean(fmean(row.steps for row in arm.rows) for arm in own):.2f}"
    cells["calls a question"] = f"{_mean(fmean(len(row.workers) for row in _scored(arm)) for arm in own):.2f}"
    cells["USD a question"] = f"{_mean(fmean(row.cost_usd for row in _scored(arm)) for arm in own):.6f}"
    if in_domain := benchmark_groups(rows)["in-domain"]:
        usd = (fmean(row.cost_usd for row in _scored(arm) if row.benchmark in in_domain) for arm in own)
        cells["USD in-domain"] = f"{_mean(usd):.6f}"
    return cells | {head: _fact([arm.facts[head] for arm in own]) for head in own[0].facts}


def _scored(arm: Arm) -> list[OutcomeRow]:
    return [row for row in arm.rows if not row.unscorable]


def _over(estimates: Sequence[MeanEstimate], least: float = 0.0) -> str:
    found = mean_over_seeds(estimates, least)
    if len(estimates) > 1 and found.standard_error > 0:  # the standard error over the seeds
        found = MeanEstimate(*found[:3])
    return percent(found)


def _mean(values: Iterable[float]) -> float:
    return fmean(values)


def _fact(values: Sequence[float | str]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    return f"{fmean(numbers):.4g}" if len(numbers) == len(values) else str(values[0])


def claims(by_seed: BySeed, ours: Sequence[str]) -> Columns:
    """Make a table of the accuracy of each of our arms minus that of every opponent, in points, pooled over seeds.

    An opponent is an arm that is compared with the Conductor (`OPPONENT`) on every seed. A question counts if both arms
    scored it on every seed. The p-values are adjusted after Holm over the whole table. Raises `KeyError` if a seed has
    no such arm.
    """
    means = [{arm.name: question_means(arm.rows) for arm in arms} for arms in by_seed.values()]
    prices = {name: fmean(fmean(row.cost_usd for row in _scored(arm)) for arm in own) for name, own in _named(by_seed)}
    groups = {name: own for name, own in benchmark_groups(next(iter(by_seed.values()))[0].rows).items() if own}
    opponents = {arm.name for arms in by_seed.values() for arm in arms if OPPONENT in arm.beside}
    others = [name for name in prices if name in opponents and all(name in seed for seed in means)]
    pairs = [(own, other) for own in ours for other in others]
    made = [[_pooled(means, *pair, benchmarks) for benchmarks in groups.values()] for pair in pairs]
    adjusted = holm([each.p_value for line in made for each in line]).reshape(len(pairs), len(groups)).tolist()
    heads = [
        head for group in groups for head in (f"{group}, points", f"p, {group}", f"detected from, {group}, points")
    ]
    rows: list[Cells] = [
        [own, other, f"{prices[other] / prices[own]:.2f}", *chain.from_iterable(map(_claim, line, p_values))]
        for (own, other), line, p_values in zip(pairs, made, adjusted, strict=True)
    ]
    return Columns(["ours", "minus", "its price ÷ ours", *heads], rows)


def _named(by_seed: BySeed) -> Iterable[tuple[str, list[Arm]]]:
    """Return the name of each arm, and the arms with this name."""
    made: dict[str, list[Arm]] = defaultdict(list)
    for arms in by_seed.values():
        for arm in arms:
            made[arm.name].append(arm)
    return made.items()


def _pooled(
    seeds: Sequence[Mapping[str, Mapping[str, Mapping[str, float]]]], ours: str, other: str, benchmarks: Sequence[str]
) -> Pooled:
    strata = []
    for benchmark in benchmarks:
        pairs = [(seed[ours].get(benchmark, {}), seed[other].get(benchmark, {})) for seed in seeds]
        shared = sorted(set.intersection(*(set(mine) & set(theirs) for mine, theirs in pairs)))
        if shared:
            strata.append([[mine[key] - theirs[key] for key in shared] for mine, theirs in pairs])
    return pooled(strata)


def _claim(found: Pooled, adjusted: float) -> tuple[str, str, str]:
    p_value = f"{adjusted:.3f}" if adjusted >= 0.001 else "< 0.001"
    return f"{100 * found.mean:.1f} ± {100 * found.standard_error:.1f}", p_value, f"{100 * found.detectable:.1f}"


def plane(by_seed: BySeed) -> bytes:
    """Draw each arm by its price and accuracy, in-domain and OOD, over all seeds; return a PNG.

    The line joins the arms that no cheaper one matches, OOD (in-domain without OOD benchmarks).
    """
    points, line = list[Point](), list[int]()
    for group, benchmarks in benchmark_groups(next(iter(by_seed.values()))[0].rows).items():
        begun, offers = len(points), list[Offer]()
        for name, own in _named(by_seed) if benchmarks else ():
            asked = [[row for row in _scored(arm) if row.benchmark in benchmarks] for arm in own]
            estimates = [accuracy([rows], benchmarks) for rows in asked]
            estimate = mean_over_seeds(estimates)
            offers.append(Offer(fmean(fmean(row.cost_usd for row in rows) for rows in asked), estimate.mean))
            kind = "Conductor" if name.endswith("Conductor") else "others"
            points.append(Point(name, offers[-1].price, spread(estimate), f"{kind}, {group}"))
        line = [begun + place for place in frontier(offers)] or line
    return png(Plane("", "USD a question (logarithmic)", "right, in %", points, line))


def per_seed(by_seed: BySeed) -> Columns:
    """Make one table of the arms with one row per seed and arm."""
    tables = {seed: table({seed: arms}) for seed, arms in by_seed.items()}
    heads = list(dict.fromkeys(head for each in tables.values() for head in each.head))
    rows = [
        [seed, *(dict(zip(each.head, row, strict=True)).get(head, "") for head in heads)]
        for seed, each in tables.items()
        for row in each.rows
    ]
    return Columns(["seed", *heads], rows)


def by_family(arms: Sequence[Arm], families: Mapping[str, str], names: Sequence[str]) -> Columns:
    """Make a table by family of questions.

    Its columns are the accuracy of each named arm, and the mean steps and most frequent workers of the first of them.
    """
    rows: dict[str, dict[str, list[OutcomeRow]]] = defaultdict(lambda: defaultdict(list))
    for arm in arms:
        for row in arm.rows:
            rows[families[row.problem_key]][arm.name].append(row)
    lines: list[Cells] = []
    for family, own in rows.items():
        first = own[names[0]]
        workers, times = Counter(", ".join(row.workers) for row in first).most_common(1)[0]
        shares = [f"{100 * share(row.correct for row in own[name]):.0f}" for name in names]
        steps = f"{fmean(row.steps for row in first):.1f}"
        lines.append([family, *shares, steps, f"{workers or 'no workflow'} ({times / len(first):.0%})"])
    return Columns(["family", *(f"{name}, %" for name in names), "steps", "its commonest workers, in order"], lines)


def picture(arms: Sequence[Arm]) -> bytes:
    """Draw the first difference of each arm, in-domain and OOD, or accuracies if no arm has one; return a PNG."""
    by_name = {arm.name: arm for arm in arms}
    compared = {arm.name: next(iter(arm.beside.values())) for arm in arms if arm.beside}
    estimates = {
        arm.name: {
            group: difference(arm.part(group), by_name[compared[arm.name]].runs, benchmarks)
            if compared
            else accuracy(arm.part(group), benchmarks)
            for group, benchmarks in arm.groups(arm.rows).items()
        }
        for arm in arms
        if not compared or arm.name in compared
    }
    return dots(estimates, "difference to the arm that it is compared with, in points" if compared else "right, in %")


def dots(estimates: Mapping[str, Mapping[str, MeanEstimate]], unit: str) -> bytes:
    """Draw each estimate with its 95 % interval, in per cent or points; return a PNG.

    `estimates` is label → group → estimate in [-1, 1]; every label has the same groups.
    """
    groups = list(dict.fromkeys(group for each in estimates.values() for group in each))
    series = {
        group: [spread(each[group]) for each in estimates.values()] for group in groups
    }
    return png(Dots("", unit, "", list(estimates), series, zero=True))


def benchmark_groups(rows: Sequence[OutcomeRow]) -> dict[str, list[str]]:
    """Return the benchmarks of the rows in two groups: in-domain and out-of-distribution (OOD)."""
    asked = {row.benchmark for row in rows}
    return {
        "in-domain": [name for name in training_benchmarks() if name in asked],
        "OOD": [name for name in unseen_benchmarks() if name in asked],
    }
