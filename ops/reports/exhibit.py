"""Exhibits: functions from evidence to tables and charts, and the decorator that registers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.charts import Chart
from ops.core.registry import Registry
from ops.reports.evidence import Evidence

Cell = str | int | float


class Table(NamedTuple):
    """Rows of text and numbers under distinct column heads."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[int] = ()
    """Indices of highlighted rows: the Conductor's, or the most important ones."""
    note: str = ""
    """Explanation that a reader needs."""


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
