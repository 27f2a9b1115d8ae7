"""What a baseline is: one decorated function a file in `baselines`, and the registry of them.

Some follow from what the workers answered alone (`Computed`), others ask (`WorkflowBaseline`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.registry import Registry
from ops.core.rows import ResponseRow
from ops.evaluation.method import Known, Method
from ops.evaluation.runner import Summary


class Answers(NamedTuple):
    """What the workers answered alone: to the evaluation questions, and before those to the training problems."""

    evaluation: Sequence[ResponseRow]
    training: Sequence[ResponseRow]


class Standing(NamedTuple):
    """What a baseline scores: benchmark → summary; `detail` is what it chose, for the column's head."""

    summaries: Mapping[str, Summary]
    detail: str = ""

    def head(self, title: str) -> str:
        """The head of its column."""
        return f"{title} ({self.detail})" if self.detail else title


@dataclass(frozen=True)
class Baseline:
    """A system that the Conductor is measured against."""

    name: str
    title: str
    """The head of its column."""
    place: int
    """Its order in the table; by name where it is equal."""
    usual: bool
    """Whether it stands in the table of a recipe that names none."""


Compute = Callable[[Answers], Standing | Sequence[Standing]]
Prepare = Callable[[Known], Method]
PerQuestion = Callable[[int], float]
"""Number of workers → responses, at most."""


@dataclass(frozen=True)
class Computed(Baseline):
    """Computed from the workers' own answers."""

    compute: Compute
    """One standing, or several of different `detail`: a column each."""
    every_worker: bool = True
    """Whether it needs the answers of every worker; False: those of the best single worker."""


@dataclass(frozen=True)
class WorkflowBaseline(Baseline):
    """Asks workers, in workflows of its own; `prepare` makes (or learns) the method before the test is seen."""

    prepare: Prepare
    calls: PerQuestion
    """To one question."""
    learning: PerQuestion
    """To training problems, all together, that `prepare` asks for beyond what was precached."""
    version: int
    """Raised when the method changes, so that stored scores are no longer taken for its own."""
    source: str
    """Where the method is described."""
    differs: str
    """In which way it is not the authors' own; shown wherever its figures are."""


def baseline(
    title: str, place: int = 1000, *, usual: bool = True, every_worker: bool = True
) -> Callable[[Compute], Computed]:
    """Make a function a computed baseline of its own name, which is its file's."""

    def register(compute: Compute) -> Computed:
        return Computed(compute.__name__, title, place, usual, compute, every_worker)

    return register


def asking(
    title: str,
    place: int = 1000,
    *,
    calls: PerQuestion,
    learning: PerQuestion = lambda workers: 0,
    version: int = 1,
    source: str,
    differs: str,
) -> Callable[[Prepare], WorkflowBaseline]:
    """Make a function that gives a `Method` a baseline of its own name, which is its file's."""

    def register(prepare: Prepare) -> WorkflowBaseline:
        return WorkflowBaseline(
            prepare.__name__, title, place, False, prepare, calls, learning, version, source, differs
        )

    return register


BASELINES = Registry("ops.evaluation.baselines", Baseline, lambda entry: entry.place)


def chosen(names: Iterable[str] | None) -> list[Baseline]:
    """The baselines of these `names`, in their order; None: the usual ones, which cost nothing."""
    if names is None:
        return [entry for entry in BASELINES.values() if entry.usual]
    return [BASELINES[name] for name in names]


def needs_every_worker(names: Iterable[str] | None) -> bool:
    """Whether one of these baselines is computed from every worker's own answers; None: the usual ones."""
    return any(isinstance(entry, Computed) and entry.every_worker for entry in chosen(names))


def standings(
    answers: Answers, names: Iterable[str] | None = None, kept: Callable[[WorkflowBaseline], Standing] | None = None
) -> dict[str, Mapping[str, Summary]]:
    """Column's head → benchmark → summary, for the baselines of these `names`; None: of the usual ones.

    `kept` finds the stored scores of one that asks. Raises `ValueError` for one that asks without it.
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
