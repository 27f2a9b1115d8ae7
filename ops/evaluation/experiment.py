"""What an experiment is: one decorated function a file in `experiments`, and the registry of them.

An `Intervention` changes the workflows that a trained policy wrote before they are carried out, an `Observation` reads
what a training left. Neither trains anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from ops.core.registry import Registry
from ops.evaluation.report import Columns
from ops.workflow.grammar import Workflow

Change = Callable[[Workflow, Random], Workflow]
"""A workflow that the policy wrote, and the question's own dice → the one that is carried out instead."""


class Arm(NamedTuple):
    """One way in which workflows are changed: a row of the experiment's table."""

    name: str
    change: Change


@dataclass(frozen=True)
class Habits:
    """What a policy writes on all its evaluation questions, and for whom: what an intervention may look at."""

    names: Sequence[str]
    """The workers on offer, by ordinal."""
    best: int
    """The ordinal of the best single worker by the training mix."""
    workers: Counter[int]
    """Ordinal → steps given to it."""
    subtasks: Counter[str]
    """Wording → steps that have it."""

    @classmethod
    def of(cls, workflows: Iterable[Workflow], names: Sequence[str], best: int) -> Habits:
        """Of these workflows."""
        steps = [step for workflow in workflows for step in workflow.steps]
        return cls(names, best, Counter(step.worker for step in steps), Counter(step.subtask for step in steps))


class Compliance(NamedTuple):
    """How many completions were workflows, and why the others were none."""

    problems: int
    failures: Mapping[str, int]
    """Way to fail (`ops.workflow.grammar.FormatFailure`) → completions."""

    @property
    def valid(self) -> int:
        return self.problems - sum(self.failures.values())


@dataclass(frozen=True)
class Training:
    """What a training left, and what can be asked of its policy without a worker."""

    curve: Sequence[Mapping[str, Any]]
    """The lines of GRPO's curve, a step each; none of a cold start."""
    temperature: float
    """At which GRPO draws."""
    compliance: Callable[[float], Compliance]
    """Temperature → what the policy writes for problems that were not taught; 0 is greedy."""


class Findings(NamedTuple):
    """What an observation saw."""

    summary: Columns
    """A table for the docs."""
    details: Columns
    """A longer one."""
    said: str
    """What the tables were made of, in a sentence."""
    picture: bytes
    """PNG."""


@dataclass(frozen=True)
class Experiment:
    """Something that is measured of a policy beside its scores."""

    name: str
    title: str
    place: int
    """Its order in the docs; by name where it is equal."""
    changes: str
    """What is changed or looked at, in a sentence."""
    version: int
    """Raised when the experiment changes, so that what is stored is no longer taken for its own."""


@dataclass(frozen=True)
class Intervention(Experiment):
    """Changes the workflows of a trained policy; paired with the policy as it is, on the same completions."""

    arms: Callable[[Habits], Sequence[Arm]]


@dataclass(frozen=True)
class Observation(Experiment):
    """Looks at the records of a training."""

    observe: Callable[[Training], Findings]
    of: Literal["base_policy", "conductor"]
    """The asset whose policy is looked at."""


def intervention(
    title: str, place: int = 1000, *, changes: str, version: int = 1
) -> Callable[[Callable[[Habits], Sequence[Arm]]], Intervention]:
    """Make a function that gives arms an intervention of its own name, which is its file's."""

    def register(arms: Callable[[Habits], Sequence[Arm]]) -> Intervention:
        return Intervention(arms.__name__, title, place, changes, version, arms)

    return register


def observation(
    title: str, place: int = 1000, *, changes: str, of: Literal["base_policy", "conductor"], version: int = 1
) -> Callable[[Callable[[Training], Findings]], Observation]:
    """Make a function that gives findings an observation of its own name, which is its file's."""

    def register(observe: Callable[[Training], Findings]) -> Observation:
        return Observation(observe.__name__, title, place, changes, version, observe, of)

    return register


EXPERIMENTS = Registry("ops.evaluation.experiments", Experiment, lambda entry: entry.place)
