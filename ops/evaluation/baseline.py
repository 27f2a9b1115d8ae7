"""What a baseline is: one decorated function a file in `baselines`, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.core.registry import Registry
from ops.core.rows import ResponseRow
from ops.evaluation.runner import Summary


class Answers(NamedTuple):
    """What the workers answered alone: to the evaluation questions, and before those to the training problems."""

    evaluation: Sequence[ResponseRow]
    training: Sequence[ResponseRow]


class Standing(NamedTuple):
    """What a baseline scores: benchmark → summary; `detail` is what it chose, for the column's head."""

    summaries: Mapping[str, Summary]
    detail: str = ""


Compute = Callable[[Answers], Standing]


@dataclass(frozen=True)
class Baseline:
    """A system that is computed from stored answers: no worker is asked for it."""

    name: str
    title: str
    """The head of its column."""
    place: int
    """Its order in the table; by name where it is equal."""
    compute: Compute


def baseline(title: str, place: int = 1000) -> Callable[[Compute], Baseline]:
    """Make a function a baseline of its own name, which is its file's."""

    def register(compute: Compute) -> Baseline:
        return Baseline(compute.__name__, title, place, compute)

    return register


BASELINES = Registry("ops.evaluation.baselines", Baseline, lambda entry: entry.place)


def standings(answers: Answers, names: Iterable[str] | None = None) -> dict[str, Mapping[str, Summary]]:
    """Column's head → benchmark → summary, for the baselines of these `names`; None: of all."""
    chosen = [BASELINES[name] for name in (BASELINES if names is None else names)]
    computed = [(entry.title, entry.compute(answers)) for entry in chosen]
    return {f"{title} ({made.detail})" if made.detail else title: made.summaries for title, made in computed}
