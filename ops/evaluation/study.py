"""Studies of a trained policy: one decorated function per file in `studies`, and their registry.

An `Intervention` changes the workflows that a policy wrote before they are executed, an `Observation` reads the records
of a training. Neither trains anything; studies that train are in `config/studies.yaml`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from ops.core.registry import Registry
from ops.evaluation.arms import Findings
from ops.workflow.grammar import Workflow

Rewriting = Callable[[Workflow, Random], Workflow]
"""A workflow that the policy wrote, and random numbers of the question → the workflow that is executed instead."""


class WorkflowChange(NamedTuple):
    """One way to change workflows: an arm of the study."""

    name: str
    change: Rewriting


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


@dataclass(frozen=True)
class PolicyStudy:
    """Something that is measured of a trained policy beside its scores."""

    name: str
    title: str
    place: int
    """Its order in the docs; by name where it is equal."""
    about: str
    """What is changed or looked at, in a sentence."""
    version: int
    """Raised when the study changes: what was stored of the version before is then not read."""
    after: str
    """The asset whose policy is studied."""


@dataclass(frozen=True)
class Intervention(PolicyStudy):
    """Changes the workflows of a trained policy; paired with the policy as it is, on the same completions."""

    arms: Callable[[Habits], Sequence[WorkflowChange]]


@dataclass(frozen=True)
class Observation(PolicyStudy):
    """Looks at the records of a training."""

    observe: Callable[[Training], Findings]


def intervention(
    title: str, place: int = 1000, *, about: str, version: int = 1
) -> Callable[[Callable[[Habits], Sequence[WorkflowChange]]], Intervention]:
    """Make a function that gives arms an intervention of its own name, which is its file's."""

    def register(arms: Callable[[Habits], Sequence[WorkflowChange]]) -> Intervention:
        return Intervention(arms.__name__, title, place, about, version, "benchmark_scores", arms)

    return register


def observation(
    title: str, place: int = 1000, *, about: str, after: Literal["base_policy", "conductor"], version: int = 1
) -> Callable[[Callable[[Training], Findings]], Observation]:
    """Make a function that gives findings an observation of its own name, which is its file's."""

    def register(observe: Callable[[Training], Findings]) -> Observation:
        return Observation(observe.__name__, title, place, about, version, after, observe)

    return register


STUDIES = Registry("ops.evaluation.studies", PolicyStudy, lambda entry: entry.place)
