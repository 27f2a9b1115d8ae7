"""The gate on a thousand simulated challengers of each kind, and the gain that it can detect, written into
docs/reference: `make gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.workspace import Workspace
from ops.release.promotion import confidence_of_analysis
from ops.results.statistics import Stratum, detectable_difference
from tests.bench.row import sized
from tests.unit.test_interim_analyses import BENCHMARKS, DISCORDANT, GATE, NIGHTS, QUESTIONS, a_champion, promoted

MARK = "<!-- made by `make gate` -->"
CHALLENGERS, CHAMPIONS = sized(1000, 20), sized(300, 3)
SERIES = f"series of {NIGHTS} challengers"


class Row(NamedTuple):
    """A kind of challenger: the numbers of promoted and of all challengers, and the claim about them."""

    what: str
    passed: int
    tried: int
    of: str
    stated: str


def at_analysis(difference: float, analysis: int, seed: int) -> tuple[int, int]:
    """Simulate challengers with this true difference from their
    champion, each judged once, at that interim analysis.
    """
    rng = np.random.default_rng(seed)
    champions = (a_champion(rng) for _ in range(CHALLENGERS))
    return sum(promoted(each, difference, rng, analysis=analysis, gate=GATE) for each in champions), CHALLENGERS


def over_nights(difference: float, planned: int | None, seed: int, counted: bool = True) -> tuple[int, int]:
    """Simulate champions that such a challenger replaces within thirty nights."""
    rng, gate = np.random.default_rng(seed), GATE.model_copy(update={"planned_analyses": planned})
    lost = 0
    for _ in range(CHAMPIONS):
        champion = a_champion(rng)
        nights = range(1, NIGHTS + 1) if counted else [1] * NIGHTS
        lost += any(promoted(champion, difference, rng, analysis=night, gate=gate) for night in nights)
    return lost, CHAMPIONS


def rows() -> Sequence[Row]:
    """Return the rows of the table."""
    margin, chance = GATE.max_loss_against_champion, (1 - GATE.confidence) / 2
    made = []

    def add(what: str, of: str, stated: str, trial: Callable[[], tuple[int, int]]) -> None:
        passed, tried = trial()
        made.append(Row(what, passed, tried, of, stated))

    worse = f"worse by {100 * margin:.0f} points"
    first = (1 - confidence_of_analysis(GATE, 1)) / 2
    add(f"{worse}, first challenger", "challengers", f"at most {first:.2%}", lambda: at_analysis(-margin, 1, 11))
    add("worse by 5 points, first challenger", "challengers", f"at most {first:.2%}", lambda: at_analysis(-0.05, 1, 12))
    for planned in (None, NIGHTS):
        name = f"{worse}, one challenger a night for {NIGHTS} nights"
        name += f", with `planned_analyses: {planned}`" if planned else ""
        add(name, SERIES, f"at most {chance:.1%}", lambda n=planned: over_nights(-margin, n, 13))
    name = f"{worse}, one challenger a night for {NIGHTS} nights, if the gate allowed {chance:.1%} to each of them"
    add(name, SERIES, "not limited", lambda: over_nights(-margin, 1, 14, counted=False))
    for analysis in (1, NIGHTS):
        level = 1 - confidence_of_analysis(GATE, analysis)
        found = detectable_difference([Stratum(QUESTIONS, DISCORDANT)] * len(BENCHMARKS), alpha=level, power=0.8)
        better = found - margin
        what = f"better by {100 * better:.1f} points, {'first' if analysis == 1 else f'{analysis}th'} challenger"
        add(what, "challengers", "80%", lambda b=better, k=analysis: at_analysis(b, k, 15))
    add("better by 15 points, first challenger", "challengers", "more than 80%", lambda: at_analysis(0.15, 1, 16))
    return made


def table(made: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    head = "| challengers that are truly … | passed | share (95 % interval) | stated |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(
        f"| {row.what} | {row.passed} of {row.tried:,} {row.of} | {row.passed / row.tried:.1%} "
        f"({_interval(row)}) | {row.stated} |"
        for row in made
    )


def detectable_table() -> str:
    """Return by how many points a challenger must be better than the champion to pass with a probability of 80 %.

    It assumes seven benchmarks. A row is a number of questions and the share of them that both answer differently.
    """
    margin = GATE.max_loss_against_champion
    planned = GATE.model_copy(update={"planned_analyses": NIGHTS})
    names = ("first challenger", "2nd", "7th", "30th", "100th", f"each of {NIGHTS} planned")
    confidences = [confidence_of_analysis(GATE, number) for number in (1, 2, 7, 30, 100)]
    confidences.append(confidence_of_analysis(planned, 1))
    made = [
        (questions, f"{share:.0%}", *(
            f"{100 * (detectable_difference([Stratum(questions, share)] * 7, alpha=1 - each, power=0.8) - margin):.1f}"
            for each in confidences
        ))
        for questions in (100, 500)
        for share in (0.1, 0.2)
    ]  # fmt: skip
    return format_markdown_table(("questions of each benchmark", "answered differently", *names), made)


def _interval(row: Row) -> str:
    low, high = binomtest(row.passed, row.tried).proportion_ci()  # exact
    return f"{100 * low:.1f}–{100 * high:.1f} %"


def main() -> None:
    """Simulate, and write the table."""
    file = Workspace.find().root / MEASUREMENTS
    text = f"{table(rows())}\n\n{detectable_table()}"
    replace_marked_text(file, MARK, text)
    print(text)


if __name__ == "__main__":
    main()
