"""Reward terms: the decorator that makes a function a term, the registry of all terms, and their weighted values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.core.registry import Registry
from ops.workflow.trace import WorkflowTrace

if TYPE_CHECKING:
    from ops.conductor.rollout import Rollout

MeasureTrace = Callable[[WorkflowTrace], float]
"""A function that returns one number about an executed workflow."""


@dataclass(frozen=True)
class RewardTerm:
    """A function that measures one cost of an executed workflow, in a unit of its own; the value is never negative."""

    name: str
    """The name by which a recipe gives the term a weight."""
    unit: str
    """The unit of the value."""
    measure: MeasureTrace
    """The function that returns the value for an executed workflow."""


def reward_term(unit: str) -> Callable[[MeasureTrace], RewardTerm]:
    """Return a decorator that makes a function a reward term. The term has the function's name, which is also its
    file's name."""

    def register(measure: MeasureTrace) -> RewardTerm:
        return RewardTerm(measure.__name__, unit, measure)

    return register


TERMS = Registry("ops.training.rewards.terms", RewardTerm)
"""All reward terms by name, from the files of the package `ops.training.rewards.terms`."""


def weigh_terms(rollout: Rollout, weights: Mapping[str, float]) -> dict[str, float]:
    """Return what each reward term adds to a rollout's reward: the term's weight times its value.

    The values are 0 if no workflow was executed. The mapping is empty for a rollout without a reward.
    """
    if rollout.reward is None:
        return {}
    trace = rollout.trace
    return {name: 0.0 if trace is None else weight * TERMS[name].measure(trace) for name, weight in weights.items()}
