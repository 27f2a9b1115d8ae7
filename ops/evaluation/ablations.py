"""What one change to a recipe did once it was trained, beside the recipe as it is: a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from ops.evaluation.experiment import Findings
from ops.evaluation.experiment_report import bars, benchmark_groups
from ops.evaluation.reading import entropy, right_if_valid, score
from ops.evaluation.report import Columns, percent
from ops.evaluation.rows import ScoreRow
from ops.evaluation.subsets import difference

AS_IT_IS = "nothing: the recipe as it is"
HEAD = ["change", "cold start, %", "Conductor, %", "GRPO adds, points", "minus as it is, points", "unseen, %",
        "unseen minus as it is, points", "right if valid, %", "entropy, bits", "USD a question",
        "s of GRPO"]  # fmt: skip


class Outcome(NamedTuple):
    """One training with one seed: what its policies did on every question."""

    cold_start: Sequence[ScoreRow]
    conductor: Sequence[ScoreRow]
    seconds: float
    """Of GRPO."""


def table(outcomes: Mapping[str, Sequence[Outcome]]) -> Columns:
    """A row a change, from `AS_IT_IS`, which is among them; a change's outcomes are of the same seeds, in their order.

    Means over benchmarks; differences are paired by question, seeds are repeats of one.
    """
    as_it_is = [outcome.conductor for outcome in outcomes[AS_IT_IS]]
    lines: list[list[str | int | float]] = []
    for name, made in outcomes.items():
        conductors, cold = [each.conductor for each in made], [each.cold_start for each in made]
        scores, before = [score(rows) for rows in conductors], [score(rows) for rows in cold]
        lines.append([
            name,
            f"{100 * fmean(each.seen for each in before):.1f}",
            f"{100 * fmean(each.seen for each in scores):.1f}",
            _paired(conductors, cold, "in-domain"),
            "" if name == AS_IT_IS else _paired(conductors, as_it_is, "in-domain"),
            f"{100 * fmean(each.unseen for each in scores):.1f}",
            "" if name == AS_IT_IS else _paired(conductors, as_it_is, "unseen"),
            f"{100 * fmean(right_if_valid(rows) for rows in conductors):.1f} %",
            f"{fmean(entropy(rows) for rows in conductors):.2f}",
            f"{fmean(each.usd for each in scores):.6f}",
            f"{fmean(each.seconds for each in made):.0f}",
        ])  # fmt: skip
    return Columns(HEAD, lines)


def _paired(ours: Sequence[Sequence[ScoreRow]], theirs: Sequence[Sequence[ScoreRow]], group: str) -> str:
    """Points ± the standard error; the order of the seeds is the same."""
    return percent(difference(ours, theirs, benchmark_groups(ours[0])[group]))


def findings(as_it_is: Outcome, other: Outcome, name: str) -> Findings:
    """Of one change with one seed."""
    pairs = {
        "cold start": (other.cold_start, as_it_is.cold_start),
        "Conductor": (other.conductor, as_it_is.conductor),
    }
    differences = {
        policy: {group: difference([ours], [theirs], names) for group, names in benchmark_groups(ours).items() if names}
        for policy, (ours, theirs) in pairs.items()
    }
    unscorable = sum(row.unscorable for rows in (other.cold_start, other.conductor) for row in rows)
    said = f"{unscorable} rows of unreachable workers are left out." if unscorable else ""
    picture = bars(differences, "minus the same policy of the recipe as it is, in points")
    return Findings(table({AS_IT_IS: [as_it_is], name: [other]}), Columns([], []), said, picture)
