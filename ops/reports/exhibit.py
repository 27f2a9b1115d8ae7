"""What an exhibit is: a function from evidence to tables and charts, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.registry import Registry
from ops.reports.charts import Chart
from ops.reports.evidence import Evidence

Cell = str | int | float


class Table(NamedTuple):
    """Rows of text and numbers under heads that differ."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[int] = ()
    """Rows that are ours, or what to look at first."""
    note: str = ""
    """What a reader must know to read it."""


class Shown(NamedTuple):
    """An exhibit on one evidence."""

    parts: Sequence[Table | Chart]
    n: str
    """How much it is made of."""
    said: str = ""
    """What it comes to, in a sentence or two."""


class Need(NamedTuple):
    """Evidence that an exhibit cannot do without."""

    there: Callable[[Evidence], bool]
    command: str
    """What brings it; `{run}` is the recipe and seed."""


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
    """Its order; by name where it is equal."""
    shows: str
    """What it shows, in a sentence."""
    paper: str
    """Where arXiv:2512.04388 has its like, by content; empty: nowhere."""
    needs: tuple[str, ...]
    """Of `NEEDS`."""
    show: Show

    def missing(self, evidence: Evidence) -> str:
        """`not run: COMMAND` where the evidence lacks something; empty: it can be shown."""
        commands = [NEEDS[need].command for need in self.needs if not NEEDS[need].there(evidence)]
        named = dict.fromkeys(command.format(run=evidence.about.argument) for command in commands)
        return f"not run: {'; '.join(named)}" if named else ""


def exhibit(
    title: str, place: int = 1000, *, shows: str, paper: str = "", needs: tuple[str, ...] = ()
) -> Callable[[Show], Exhibit]:
    """Make a function an exhibit of its own name, which is its file's. Raises `ValueError` on an unknown need."""
    if unknown := sorted(set(needs) - set(NEEDS)):
        raise ValueError(f"unknown need {', '.join(unknown)}; known: {', '.join(NEEDS)}")

    def register(show: Show) -> Exhibit:
        return Exhibit(show.__name__, title, place, shows, paper, needs, show)

    return register


EXHIBITS = Registry("ops.reports.exhibits", Exhibit, lambda entry: entry.place)
