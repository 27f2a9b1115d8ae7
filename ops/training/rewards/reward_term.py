"""Reward terms: one decorated function per file in `terms`, their registry, and their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.core.registry import Registry
from ops.workflow.trace import WorkflowTrace

if TYPE_CHECKING:
    from ops.conductor.rollout import Rollout

MeasureTrace = Callable[[WorkflowTrace], float]


@dataclass(frozen=True)
class RewardTerm:
    """One number of an executed workflow in the term's own `unit`; a cost, so never negative."""

    name: str
    unit: str
    measure: MeasureTrace


def reward_term(unit: str) -> Callable[[MeasureTrace], RewardTerm]:
    """Make a function a reward term of its own name, which is its file's."""

    def register(measure: MeasureTrace) -> RewardTerm:
        return RewardTerm(measure.__name__, unit, measure)

    return register


TERMS = Registry("ops.training.rewards.terms", RewardTerm)


def weigh_terms(rollout: Rollout, weights: Mapping[str, float]) -> dict[str, float]:
    """Return term → weight × value, to be added to the rollout's reward; 0 if no workflow was executed.

    Empty for an unscorable rollout, which has no reward.
    """
    if rollout.reward is None:
        return {}
    trace = rollout.trace
    return {name: 0.0 if trace is None else weight * TERMS[name].measure(trace) for name, weight in weights.items()}
