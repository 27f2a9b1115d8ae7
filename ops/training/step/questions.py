"""Let `WeightedRoundRobin` choose the questions of each step, and report the rewards to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import variance
from typing import Any

from transformers import TrainerCallback

from ops.core.problem import Problem
from ops.training.step.problem_sampling import WeightedRoundRobin
from ops.training.step.trl_private import ExportableState

Row = dict[str, Any]
"""A question as a row of the data set: prompt, problem's key, epoch and, in the adaptive stage, the offered workers."""


@dataclass(eq=False)
class StepQuestions(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Chooses the questions of a run. Its state is saved in each checkpoint's trainer_state.json and restored from
    it."""

    order: WeightedRoundRobin
    """The object that chooses the problems."""
    build_row: Callable[[Problem, int], Row]
    """A function that returns the question of a problem in an epoch."""

    def choose_questions(self, slots: Sequence[Row]) -> list[Row]:
        """Return the questions of a step in place of the rows `slots` that the data set proposes."""
        return [self.build_row(problem, slots[0]["epoch"]) for problem in self.order.choose_problems(len(slots))]

    def record_rewards(self, asked: Sequence[Row], rewards: Sequence[Sequence[float]]) -> None:
        """Record the rewards of each question's rollouts, where NaN stands for a rollout without a reward."""
        groups = zip(asked, ([reward for reward in group if not isnan(reward)] for group in rewards), strict=True)
        self.order.record_variances((row["problem"], variance(scored)) for row, scored in groups if len(scored) > 1)

    def state(self) -> dict[str, Any]:
        """Return the state that transformers saves in each checkpoint's trainer_state.json."""
        return {"args": {}, "attributes": self.order.state}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.order.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
