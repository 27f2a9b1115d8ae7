"""Baselines: one decorated function per file in `baselines`, and their registry.

A `Computed` baseline is calculated from the workers' stored answers; a `WorkflowBaseline` calls workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.registry import Registry
from ops.core.response_rows import ResponseRow
from ops.evaluation.method import Known, Method
from ops.results.summary import Summary


class Answers(NamedTuple):
    """The responses of single workers to the evaluation questions and to the training problems."""

    evaluation: Sequence[ResponseRow]
    training: Sequence[ResponseRow]


class Standing(NamedTuple):
    """The scores of a baseline: benchmark → summary; `detail` is what it chose, for the heading of its column."""

    summaries: Mapping[str, Summary]
    detail: str = ""

    def head(self, title: str) -> str:
        """Return the heading of the baseline's column."""
        return f"{title} ({self.detail})" if self.detail else title


@dataclass(frozen=True)
class Baseline:
    """A system that the Conductor is compared with."""

    name: str
    title: str
    """The heading of the baseline's column."""
    place: int
    """The position in the table; equal positions are sorted by name."""
    usual: bool
    """Whether a recipe that lists no baselines includes this one."""


Compute = Callable[[Answers], Standing | Sequence[Standing]]
Prepare = Callable[[Known], Method]
PerQuestion = Callable[[int], float]
"""Number of workers → the largest possible number of responses."""


@dataclass(frozen=True)
class Computed(Baseline):
    """A baseline that is calculated from the workers' own answers, without further calls."""

    compute: Compute
    """Returns one standing, or several with different `detail`: one column each."""
    every_worker: bool = True
    """Whether the answers of every worker are needed; if false, those of the best single worker suffice."""


@dataclass(frozen=True)
class WorkflowBaseline(Baseline):
    """A baseline that runs workflows; `prepare` builds or learns its method without access to the test."""

    prepare: Prepare
    calls: PerQuestion
    """The responses that one question takes."""
    learning: PerQuestion
    """The responses to training problems that `prepare` requests in total, beyond the precached ones."""
    source: str
    """The paper or file that describes the method."""
    differs: str
    """How the method differs from that of its authors; shown beside its figures."""
    own_answers: bool = False
    """Whether its calls are workers' own answers to the questions, which cost nothing where every worker is asked."""


def baseline(
    title: str, place: int = 1000, *, usual: bool = True, every_worker: bool = True
) -> Callable[[Compute], Computed]:
    """Return a decorator: the function becomes a computed baseline with the name of the function and its file."""

    def register(compute: Compute) -> Computed:
        return Computed(compute.__name__, title, place, usual, compute, every_worker)

    return register


def asking(
    title: str,
    place: int = 1000,
    *,
    calls: PerQuestion,
    learning: PerQuestion = lambda workers: 0,
    source: str,
    differs: str,
    own_answers: bool = False,
) -> Callable[[Prepare], WorkflowBaseline]:
    """Return a decorator: the function, which returns a `Method`, becomes a baseline with the function's name."""

    def register(prepare: Prepare) -> WorkflowBaseline:
        return WorkflowBaseline(
            prepare.__name__, title, place, False, prepare, calls, learning, source, differs, own_answers
        )

    return register


BASELINES = Registry("ops.evaluation.baselines", Baseline, lambda entry: entry.place)


def chosen(names: Iterable[str] | None) -> list[Baseline]:
    """Return the baselines with these names, in this order; None selects the usual ones, which make no calls."""
    if names is None:
        return [entry for entry in BASELINES.values() if entry.usual]
    return [BASELINES[name] for name in names]


def needs_every_worker(names: Iterable[str] | None) -> bool:
    """Return whether one of these baselines needs every worker's own answers; None stands for the usual ones."""
    return any(isinstance(entry, Computed) and entry.every_worker for entry in chosen(names))


def standings(
    answers: Answers, names: Iterable[str] | None = None, kept: Callable[[WorkflowBaseline], Standing] | None = None
) -> dict[str, Mapping[str, Summary]]:
    """Return heading of the column → benchmark → summary for the named baselines; None stands for the usual ones.

    `kept` reads the stored scores of a `WorkflowBaseline`. Raises `ValueError` if such a baseline is named without it.
    """
    made: dict[str, Mapping[str, Summary]] = {}
    for entry in chosen(names):
        made |= {standing.head(entry.title): standing.summaries for standing in _standings(entry, answers, kept)}
    return made


def _standings(
    entry: Baseline, answers: Answers, kept: Callable[[WorkflowBaseline], Standing] | None
) -> Sequence[Standing]:
    if isinstance(entry, Computed):
        computed = entry.compute(answers)
        return [computed] if isinstance(computed, Standing) else computed
    if kept is None or not isinstance(entry, WorkflowBaseline):
        raise ValueError(f"baseline {entry.name!r} asks workers: its scores must be stored first")
    return [kept(entry)]
