"""Let `WeightedRoundRobin` choose the questions of each step, and report the rewards to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import variance
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from ops.core.problem import Problem
from ops.training.step.problem_sampling import WeightedRoundRobin
from ops.training.step.trl_private import ExportableState, HookedTrainer

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


class QuestionTrainer(HookedTrainer):
    """A GRPO trainer whose questions `step_questions` chooses. If it is None, they are those of the data set."""

    step_questions: StepQuestions | None = None
    """The object that chooses the questions of each step. None stands for the order of the data set."""
    _step_rows: Sequence[Row] = ()
    """The questions of the present step on all ranks."""
    _step_rewards: torch.Tensor | None = None
    """The rewards of the present step's rollouts on all ranks."""

    def step_rows(self, inputs: list[Row]) -> list[Row]:
        """Return the rows of this rank's rollouts, grouped by question, in place of those of the data set."""
        if self.step_questions is None:
            return inputs
        self._step_rows = self.step_questions.choose_questions(gather_object(inputs)[:: self.num_generations])
        everyones = [row for row in self._step_rows for _ in range(self.num_generations)]
        first = len(inputs) * self.accelerator.process_index
        return everyones[first : first + len(inputs)]

    def score_rollouts(self, inputs: list[Row]) -> dict[str, Any]:
        """Return the tensors for an update on the step's questions, and report the rewards to `step_questions`."""
        scored = super().score_rollouts(self.step_rows(inputs))
        if self.step_questions is not None and self._step_rewards is not None:
            self.step_questions.record_rewards(
                self._step_rows, self._step_rewards[:, 0].view(len(self._step_rows), -1).tolist()
            )
        return scored

    def step_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Return the rewards and keep them for `step_questions`."""
        self._step_rewards = super().step_rewards(inputs, prompts, completions, completion_ids_list)
        return self._step_rewards
