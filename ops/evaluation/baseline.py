"""Baselines, with which the Conductor is compared: one decorated function per file in `baselines`, and their registry.

A `ComputedBaseline` is calculated from the workers' stored answers; a `WorkflowBaseline` calls workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.registry import Registry
from ops.core.response_rows import ResponseRow
from ops.evaluation.method import Method, TrainingData
from ops.results.summary import Summary


class SoloResponses(NamedTuple):
    """The responses of single workers to the evaluation questions and to the training problems."""

    evaluation: Sequence[ResponseRow]
    training: Sequence[ResponseRow]


class BaselineScores(NamedTuple):
    """The scores of a baseline by benchmark; `detail` says what the baseline chose, for the heading of its column."""

    summaries: Mapping[str, Summary]
    detail: str = ""

    def column_heading(self, title: str) -> str:
        """Return the heading of the baseline's column."""
        return f"{title} ({self.detail})" if self.detail else title


@dataclass(frozen=True)
class Baseline:
    """A system that the Conductor is compared with."""

    name: str
    title: str
    """The heading of the baseline's column."""
    position: int
    """The position in the table; equal positions are sorted by name."""
    is_default: bool
    """True if a recipe that lists no baselines includes this one."""


Compute = Callable[[SoloResponses], BaselineScores | Sequence[BaselineScores]]
Prepare = Callable[[TrainingData], Method]
CountCalls = Callable[[int], float]
"""Number of workers → the largest possible number of responses."""


@dataclass(frozen=True)
class ComputedBaseline(Baseline):
    """A baseline that is calculated from the workers' own answers, without further calls."""

    compute: Compute
    """Returns the scores of one column, or of several columns with different `detail`."""
    needs_all_workers: bool = True
    """True if the answers of every worker are needed; otherwise those of the best single worker suffice."""


@dataclass(frozen=True)
class WorkflowBaseline(Baseline):
    """A baseline that runs workflows; `prepare` builds or learns its method without access to the test questions."""

    prepare: Prepare
    calls_per_question: CountCalls
    """The number of responses that one question takes."""
    learning_calls: CountCalls
    """The number of responses to training problems that `prepare` requests in total, beyond the precached ones."""
    source: str
    """The paper or file that describes the method."""
    differences: str
    """How the method differs from that of its authors; this is shown beside its scores."""
    uses_solo_responses: bool = False
    """True if its calls are workers' own answers to the questions, which cost nothing if every worker is asked anyway.
    """


def computed_baseline(
    title: str, position: int = 1000, *, is_default: bool = True, needs_all_workers: bool = True
) -> Callable[[Compute], ComputedBaseline]:
    """Return a decorator that makes a function a computed baseline with the name of the function and of its file."""

    def register(compute: Compute) -> ComputedBaseline:
        return ComputedBaseline(compute.__name__, title, position, is_default, compute, needs_all_workers)

    return register


def workflow_baseline(
    title: str,
    position: int = 1000,
    *,
    calls_per_question: CountCalls,
    learning_calls: CountCalls = lambda workers: 0,
    source: str,
    differences: str,
    uses_solo_responses: bool = False,
) -> Callable[[Prepare], WorkflowBaseline]:
    """Return a decorator that makes a function, which returns a `Method`, a baseline with the function's name."""

    def register(prepare: Prepare) -> WorkflowBaseline:
        return WorkflowBaseline(
            prepare.__name__,
            title,
            position,
            False,
            prepare,
            calls_per_question,
            learning_calls,
            source,
            differences,
            uses_solo_responses,
        )

    return register


BASELINES = Registry("ops.evaluation.baselines", Baseline, lambda entry: entry.position)


def select_baselines(names: Iterable[str] | None) -> list[Baseline]:
    """Return the baselines with these names, in this order; None selects the default ones, which make no calls."""
    if names is None:
        return [entry for entry in BASELINES.values() if entry.is_default]
    return [BASELINES[name] for name in names]


def needs_every_worker(names: Iterable[str] | None) -> bool:
    """Return whether one of these baselines needs every worker's own answers; None stands for the default baselines."""
    return any(isinstance(entry, ComputedBaseline) and entry.needs_all_workers for entry in select_baselines(names))


def collect_scores(
    responses: SoloResponses,
    names: Iterable[str] | None = None,
    read_stored: Callable[[WorkflowBaseline], BaselineScores] | None = None,
) -> dict[str, Mapping[str, Summary]]:
    """Return heading of the column → benchmark → summary for the named baselines; None stands for the default ones.

    `read_stored` reads the stored scores of a `WorkflowBaseline`. Raises `ValueError` if such a baseline is named
    without it.
    """
    made: dict[str, Mapping[str, Summary]] = {}
    for entry in select_baselines(names):
        made |= {
            standing.column_heading(entry.title): standing.summaries
            for standing in _collect_scores_of(entry, responses, read_stored)
        }
    return made


def _collect_scores_of(
    entry: Baseline, answers: SoloResponses, kept: Callable[[WorkflowBaseline], BaselineScores] | None
) -> Sequence[BaselineScores]:
    if isinstance(entry, ComputedBaseline):
        computed = entry.compute(answers)
        return [computed] if isinstance(computed, BaselineScores) else computed
    if kept is None or not isinstance(entry, WorkflowBaseline):
        raise ValueError(f"baseline {entry.name!r} asks workers: its scores must be stored first")
    return [kept(entry)]
