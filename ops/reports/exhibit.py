"""Exhibits: functions that make tables and charts from evidence, the decorator that registers them, and the formats of
numbers."""

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
from ops.reports.evidence import Evidence, RunInfo
from ops.results import leaderboard
from ops.results.statistics import MeanEstimate

Cell = str | int | float
_NUMBER = re.compile(r"[<+\-−–$\s\d.,±…%×()]*(invalid)?")


class Table(NamedTuple):
    """Rows of text and numbers under column heads that all differ."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    highlighted: Sequence[int] = ()
    """The indices of the highlighted rows, which are the Conductor's or the most important ones."""
    note: str = ""
    """An explanation below the table."""
    is_folded: bool = False
    """Whether the page shows the table only when a reader opens it, because a chart or another table has the result."""

    @property
    def numeric_columns(self) -> list[bool]:
        """Return for each column whether it holds numbers only."""
        return [all(_NUMBER.fullmatch(str(row[place])) for row in self.rows) for place in range(len(self.head))]


class ExhibitContent(NamedTuple):
    """The content of an exhibit: what it shows of one policy's evidence."""

    parts: Sequence[Table | Chart]
    sample_description: str
    """A description of the sample."""
    summary: str = ""
    """The result in one or two sentences."""


class Requirement(NamedTuple):
    """A part of the evidence that an exhibit needs."""

    is_available: Callable[[Evidence], bool]
    command: str
    """The command that produces this evidence; `{run}` stands for recipe and seed."""


REQUIREMENTS = {
    "conductor": Requirement(lambda evidence: evidence.conductor is not None, "podium evaluate {run}"),
    "opponents": Requirement(lambda evidence: bool(evidence.opponents), "podium evaluate {run}"),
    "curve": Requirement(lambda evidence: any(evidence.curves.values()), "podium train {run}"),
    "workers": Requirement(lambda evidence: bool(evidence.worker_scores), "podium evaluate {run}"),
}
"""The parts of the evidence that an exhibit can need, by name."""
ExhibitFunction = Callable[[Evidence], ExhibitContent]


@dataclass(frozen=True)
class Exhibit:
    """A part of the report."""

    name: str
    title: str
    position: int
    """The position in the report. Exhibits with the same position are sorted by name."""
    description: str
    """One sentence that says what the exhibit shows."""
    paper: str
    """The table or figure of arXiv:2512.04388 with the same content; empty if there is none."""
    needs: tuple[str, ...]
    """Keys of `REQUIREMENTS`."""
    make_content: ExhibitFunction

    def explain_missing(self, evidence: Evidence) -> str:
        """Return `not run: COMMAND` if evidence that the exhibit needs is missing, otherwise an empty text."""
        commands = [REQUIREMENTS[need].command for need in self.needs if not REQUIREMENTS[need].is_available(evidence)]
        named = dict.fromkeys(command.format(run=evidence.run.command_arguments) for command in commands)
        return f"not run: {'; '.join(named)}" if named else ""


def exhibit(
    title: str, place: int = 1000, *, shows: str, paper: str = "", needs: tuple[str, ...] = ()
) -> Callable[[ExhibitFunction], Exhibit]:
    """Register a function as an exhibit under its own name, which is also the name of its file.

    Raises `ValueError` for an unknown need.
    """
    if unknown := sorted(set(needs) - set(REQUIREMENTS)):
        raise ValueError(f"unknown need {', '.join(unknown)}; known: {', '.join(REQUIREMENTS)}")

    def register(show: ExhibitFunction) -> Exhibit:
        return Exhibit(show.__name__, title, place, shows, paper, needs, show)

    return register


EXHIBITS = Registry("ops.reports.exhibits", Exhibit, lambda entry: entry.position)


class MadeExhibit(NamedTuple):
    """An exhibit with its content, or with the reason why it has none (`not run: COMMAND`)."""

    exhibit: Exhibit
    content: ExhibitContent | str


def synthetic_label(run: RunInfo) -> str:
    """Return the label of every exhibit on generated problems; empty for other runs."""
    return "synthetic" if run.is_synthetic else ""


def make_exhibit(exhibit: Exhibit, evidence: Evidence) -> MadeExhibit:
    """Make the exhibit, or say which evidence is missing."""
    missing = exhibit.explain_missing(evidence)
    return MadeExhibit(exhibit, missing or exhibit.make_content(evidence))


def make_exhibits(evidence: Evidence) -> list[MadeExhibit]:
    """Make all exhibits in the order of the report."""
    return [make_exhibit(exhibit, evidence) for exhibit in EXHIBITS.values()]


def report_file(workspace: Workspace, run: RunInfo) -> Path:
    """Return `reports/POLICY.html`, or `reports/POLICY-RECIPE.html` if the recipe evaluates the policy of another
    recipe."""
    policy = run.policy or run.recipe
    own = policy.startswith(run.recipe)
    return workspace.reports / f"{policy if own else f'{policy}-{run.recipe}'}.html"


NO_BREAK = "\N{NO-BREAK SPACE}"


def format_accuracy(estimate: MeanEstimate) -> str:
    """Format an accuracy in % as `71.0 ± 4.5` or `0.0 (0.0 … 13.8)`, without line breaks."""
    return leaderboard.format_accuracy(estimate).replace(" ", NO_BREAK)


def format_interval(estimate: MeanEstimate) -> str:
    """Format the 95 % interval of an accuracy in %, without line breaks."""
    return leaderboard.format_interval(estimate).replace(" ", NO_BREAK)


def format_number(value: float, digits: int = 0) -> str:
    """Format a number with `digits` decimals, and NaN as a dash."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def format_points(share: float) -> str:
    """Format a difference of shares in percentage points with its sign, and NaN as a dash."""
    return "–" if math.isnan(share) else f"{100 * share:+.1f}".replace("-", "−")


def format_p_value(p: float) -> str:
    """Format a p-value with three decimals, which is the resolution of the draws behind it."""
    return "<" + NO_BREAK + "0.001" if p < 0.001 else f"{p:.3f}"
