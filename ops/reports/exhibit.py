"""Exhibits: functions from evidence to tables and charts, the decorator that registers them, and formats of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ops.core.charts import Chart
from ops.core.registry import Registry
from ops.core.workspace import Workspace
from ops.reports.evidence import About, Evidence
from ops.results.leaderboard import interval, percent
from ops.results.statistics import MeanEstimate

Cell = str | int | float
_NUMBER = re.compile(r"[<+\-−–$\s\d.,±…%×()]*")


class Table(NamedTuple):
    """Rows of text and numbers under distinct column heads."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[int] = ()
    """Indices of highlighted rows: the Conductor's, or the most important ones."""
    note: str = ""
    """Explanation that a reader needs."""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column contains numbers only."""
        return [all(_NUMBER.fullmatch(str(row[place])) for row in self.rows) for place in range(len(self.head))]


class Shown(NamedTuple):
    """The content of an exhibit for one `Evidence`."""

    parts: Sequence[Table | Chart]
    n: str
    """Description of the sample size."""
    said: str = ""
    """The result in one or two sentences."""


class Need(NamedTuple):
    """Evidence that an exhibit requires."""

    there: Callable[[Evidence], bool]
    command: str
    """Command that produces the evidence; `{run}` stands for the recipe and seed."""


NEEDS = {
    "conductor": Need(lambda evidence: evidence.ours is not None, "podium evaluate {run}"),
    "opponents": Need(lambda evidence: bool(evidence.opponents), "podium evaluate {run}"),
    "curve": Need(lambda evidence: any(evidence.curves.values()), "podium train {run}"),
    "workers": Need(lambda evidence: bool(evidence.answers), "podium evaluate {run}"),
}
Show = Callable[[Evidence], Shown]


@dataclass(frozen=True)
class Exhibit:
    """A part of the report."""

    name: str
    title: str
    place: int
    """Sort key in the report; ties are sorted by name."""
    shows: str
    """One sentence on what the exhibit shows."""
    paper: str
    """The corresponding table or figure of arXiv:2512.04388, by content; empty: none."""
    needs: tuple[str, ...]
    """Keys of `NEEDS`."""
    show: Show

    def missing(self, evidence: Evidence) -> str:
        """`not run: COMMAND` if required evidence is missing, else an empty text."""
        commands = [NEEDS[need].command for need in self.needs if not NEEDS[need].there(evidence)]
        named = dict.fromkeys(command.format(run=evidence.about.argument) for command in commands)
        return f"not run: {'; '.join(named)}" if named else ""


def exhibit(
    title: str, place: int = 1000, *, shows: str, paper: str = "", needs: tuple[str, ...] = ()
) -> Callable[[Show], Exhibit]:
    """Register a function as an exhibit under its name, which is also its file's name.

    Raises `ValueError` for an unknown need.
    """
    if unknown := sorted(set(needs) - set(NEEDS)):
        raise ValueError(f"unknown need {', '.join(unknown)}; known: {', '.join(NEEDS)}")

    def register(show: Show) -> Exhibit:
        return Exhibit(show.__name__, title, place, shows, paper, needs, show)

    return register


EXHIBITS = Registry("ops.reports.exhibits", Exhibit, lambda entry: entry.place)


class Made(NamedTuple):
    """An exhibit and its content, or the reason why it has none (`not run: COMMAND`)."""

    exhibit: Exhibit
    shown: Shown | str


def label(about: About) -> str:
    """Label of every exhibit on embedded problems; empty for other runs."""
    return "synthetic" if about.synthetic else ""


def make_one(exhibit: Exhibit, evidence: Evidence) -> Made:
    """Make the exhibit, or state the missing evidence."""
    missing = exhibit.missing(evidence)
    return Made(exhibit, missing or exhibit.show(evidence))


def make(evidence: Evidence) -> list[Made]:
    """Make all exhibits in report order."""
    return [make_one(exhibit, evidence) for exhibit in EXHIBITS.values()]


def report_file(workspace: Workspace, about: About) -> Path:
    """`reports/POLICY.html`, or `reports/POLICY-RECIPE.html` if the recipe evaluates another recipe's policy."""
    policy = about.policy or about.recipe
    own = policy.startswith(about.recipe)
    return workspace.reports / f"{policy if own else f'{policy}-{about.recipe}'}.html"


NO_BREAK = "\N{NO-BREAK SPACE}"


def accuracy(estimate: MeanEstimate) -> str:
    """Format an accuracy in % as `71.0 ± 4.5` or `0.0 (0.0 … 13.8)`, without line breaks."""
    return percent(estimate).replace(" ", NO_BREAK)


def bounds(estimate: MeanEstimate) -> str:
    """Format the 95 % interval of an accuracy in %, without line breaks."""
    return interval(estimate).replace(" ", NO_BREAK)


def number(value: float, digits: int = 0) -> str:
    """Format a number with `digits` decimals; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def points(share: float) -> str:
    """Format a difference of shares in percentage points with its sign; a dash for NaN."""
    return "–" if math.isnan(share) else f"{100 * share:+.1f}".replace("-", "−")


def probability(p: float) -> str:
    """Format a p-value with three digits, the resolution of the underlying draws."""
    return "<" + NO_BREAK + "0.001" if p < 0.001 else f"{p:.3f}"
