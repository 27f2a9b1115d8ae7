"""Studies of a trained policy: one decorated function per file in `studies`, and their registry.

An `Intervention` changes a policy's workflows before they are executed; an `Observation` reads the records of a
training. Neither trains a policy; studies with training are in `config/studies.yaml`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from ops.config.studies import RecipeStudy, load_studies
from ops.core.problem import Problem
from ops.core.registry import Registry
from ops.evaluation.arms import Findings
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

RewriteWorkflow = Callable[[Workflow, Random], Workflow]
"""A function from a workflow that the policy wrote, and the question's random numbers, to the workflow that is executed
instead."""


class WorkflowChange(NamedTuple):
    """One way to change workflows, which becomes an arm of the study."""

    name: str
    rewrite: RewriteWorkflow


@dataclass(frozen=True)
class WorkflowStatistics:
    """Statistics of a policy's workflows on all evaluation questions, for use by interventions."""

    names: Sequence[str]
    """The names of the workers on offer, by ordinal."""
    best_worker: int
    """The ordinal of the best single worker by the training mix."""
    workers: Counter[int]
    """Ordinal → number of steps that the worker receives."""
    subtasks: Counter[str]
    """Wording of a subtask → number of steps with it."""

    @classmethod
    def from_workflows(cls, workflows: Iterable[Workflow], names: Sequence[str], best: int) -> WorkflowStatistics:
        """Count the workers and subtasks of these workflows."""
        steps = [step for workflow in workflows for step in workflow.steps]
        return cls(names, best, Counter(step.worker for step in steps), Counter(step.subtask for step in steps))


class WrittenCompletion(NamedTuple):
    """One completion of the policy, with its problem and repeat."""

    problem: Problem
    repeat: int
    text: str


class ChangedCompletions(NamedTuple):
    """The completions of an arm, in the order of the policy's completions."""

    completions: list[WrittenCompletion]
    changed_share: float
    """The share of the policy's workflows that the arm changed, in [0, 1]."""


def parse_workflows(completions: Sequence[WrittenCompletion], team: Team) -> list[Workflow]:
    """Return the well-formed workflows of these completions."""
    read = (team.parse(each.text).workflow for each in completions)
    return [workflow for workflow in read if workflow is not None]


def apply_change(
    completions: Sequence[WrittenCompletion], change: WorkflowChange, team: Team, seed: int
) -> ChangedCompletions:
    """Apply a change to these completions; invalid completions stay unchanged as format failures.

    Each question has its own random numbers, so that its draws do not depend on other questions. Raises `ValueError` if
    the change turns a workflow into an invalid one.
    """
    made, others, valid = [], 0, 0
    for each in completions:
        workflow = team.parse(each.text).workflow
        if workflow is None:
            made.append(each)
            continue
        dice = Random(f"{seed} {change.name} {each.problem.key} {each.repeat}")
        other = change.rewrite(workflow, dice)
        text = other.render()
        if (failure := team.parse(text).failure) is not None:
            raise ValueError(f"arm {change.name!r} turned {workflow.render()!r} into an invalid workflow ({failure})")
        valid, others = valid + 1, others + (other != workflow)
        made.append(each._replace(text=text))
    return ChangedCompletions(made, others / valid if valid else 0.0)


class FormatCompliance(NamedTuple):
    """The number of completions, and the number of format failures by reason."""

    completions: int
    failures: Mapping[str, int]
    """Reason (`ops.workflow.grammar.FormatFailure`) → number of completions."""

    @property
    def valid_completions(self) -> int:
        """The number of completions that are valid workflows."""
        return self.completions - sum(self.failures.values())


@dataclass(frozen=True)
class TrainingRecord:
    """The records of a training, and measurements of its policy that need no worker."""

    curve: Sequence[Mapping[str, Any]]
    """The lines of GRPO's training curve, one per step; empty for a cold start."""
    temperature: float
    """The sampling temperature of GRPO."""
    measure_compliance: Callable[[float], FormatCompliance]
    """Temperature (0 is greedy) → the policy's format compliance on problems that it was not trained on."""


@dataclass(frozen=True)
class PolicyStudy:
    """A study of a trained policy, in addition to its scores."""

    name: str
    title: str
    position: int
    """The position in the docs; equal positions are sorted by name."""
    about: str
    """One sentence on what is changed or observed."""
    after: str
    """The asset whose policy is studied."""


@dataclass(frozen=True)
class Intervention(PolicyStudy):
    """A study that changes the workflows of a trained policy and compares them with the unchanged ones, paired."""

    list_changes: Callable[[WorkflowStatistics], Sequence[WorkflowChange]]


@dataclass(frozen=True)
class Observation(PolicyStudy):
    """A study that reads the records of a training."""

    observe: Callable[[TrainingRecord], Findings]


def intervention(
    title: str, position: int = 1000, *, about: str
) -> Callable[[Callable[[WorkflowStatistics], Sequence[WorkflowChange]]], Intervention]:
    """Return a decorator: the function, which returns arms, becomes an intervention with the function's name."""

    def register(arms: Callable[[WorkflowStatistics], Sequence[WorkflowChange]]) -> Intervention:
        return Intervention(arms.__name__, title, position, about, "benchmark_scores", arms)

    return register


def observation(
    title: str, position: int = 1000, *, about: str, after: Literal["base_policy", "conductor"]
) -> Callable[[Callable[[TrainingRecord], Findings]], Observation]:
    """Return a decorator: the function, which returns findings, becomes an observation with its name."""

    def register(observe: Callable[[TrainingRecord], Findings]) -> Observation:
        return Observation(observe.__name__, title, position, about, after, observe)

    return register


STUDIES = Registry("ops.evaluation.studies", PolicyStudy, lambda entry: entry.position)


def load_all_studies(config: Path) -> dict[str, RecipeStudy | PolicyStudy]:
    """Return name → study: those in code, then those of `studies.yaml` in the folder `config`. Raises `ConfigError`."""
    return {**STUDIES, **load_studies(config).studies}
