"""Choose a step's questions by `Order`, and replace zero-variance groups (dynamic sampling).

A group whose rewards are all equal has no advantage. Groups of other problems replace it, within a budget (Section 3.2
of arXiv:2503.14476). All ranks see all groups, and each takes its own part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, isnan
from statistics import variance
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from ops.core.problem import Problem
from ops.training.step.order import Order
from ops.training.step.trl_private import ExportableState, HookedTrainer

Row = dict[str, Any]
"""A question as a row of the data set: prompt, problem's key, epoch, and in the adaptive stage the offered workers."""
DEAD, DEAD_LEFT, REFILLS = "frac_reward_zero_std", "frac_reward_zero_std/left", "refills"
"""TRL's log keys: the share of zero-variance groups before and after replacement, and the number of added groups."""


class TrlCompletion(NamedTuple):
    """One completion in TRL's form."""

    prompt_ids: list[int]
    ids: list[int]
    message: Any
    probabilities: Any
    """vLLM's log-probabilities, one per token; None if the policy itself generated them."""


class RolloutGroup(NamedTuple):
    """The rollouts of one question."""

    row: Row
    rollouts: list[TrlCompletion]
    rewards: torch.Tensor
    """(rollouts, 1); NaN: no reward."""

    @property
    def scored(self) -> list[float]:
        return [reward for reward in self.rewards[:, 0].tolist() if not isnan(reward)]

    @property
    def dead(self) -> bool:
        return len(set(self.scored)) < 2


@dataclass(eq=False)
class StepQuestions(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Chooses the questions of a run. Its state is saved in and restored from each checkpoint's trainer_state.json."""

    order: Order
    chosen: bool
    """Whether `order` chooses a step's questions; otherwise the data set chooses, and `order` only adds questions."""
    refills: int
    """Maximum number of groups that may be added to a step."""
    row: Callable[[Problem, int], Row]
    """A function that returns the question of a problem in an epoch."""

    def first(self, slots: Sequence[Row]) -> list[Row]:
        """Return the questions of a step, for which the data set proposes the rows `slots`."""
        if self.chosen:
            return self._rows(self.order.ask(len(slots)), slots)
        self.order.count(slot["problem"] for slot in slots)
        return list(slots)

    def more(self, count: int, asked: Sequence[Row]) -> list[Row]:
        """Return up to `count` questions besides those that were chosen in the step."""
        return self._rows(self.order.others(count, {row["problem"] for row in asked}), asked)

    def _rows(self, problems: Sequence[Problem], like: Sequence[Row]) -> list[Row]:
        return [self.row(problem, like[0]["epoch"]) for problem in problems]

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.order.state}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.order.restore(state.stateful_callbacks[type(self).__name__]["attributes"])


class RefillTrainer(HookedTrainer):
    """GRPO that generates a step in rounds if `asking` is set; else TRL's own."""

    asking: StepQuestions | None = None
    _chosen: list[tuple[Row, TrlCompletion]] | None = None
    """This rank's rollouts of the step, once they are chosen."""
    _rewards: torch.Tensor | None = None
    """The rewards of the rollouts of all ranks."""

    def score_rollouts(self, inputs: list[Row]) -> dict[str, Any]:
        """Return the scores of the questions that `asking` chooses."""
        if self.asking is None:
            return super().score_rollouts(inputs)
        asked, groups, every = self._rounds(self.asking, gather_object(inputs)[:: self.num_generations])
        self._chosen = self._own([(group.row, rollout) for group in groups for rollout in group.rollouts])
        self._rewards = torch.cat([group.rewards for group in groups])
        output = super().score_rollouts([row for row, _ in self._chosen])
        self._chosen = self._rewards = None
        if self.asking.refills:
            metrics = self.step_metrics
            metrics["reward"][-1] = torch.cat([group.rewards for group in every]).nanmean().item()
            metrics[DEAD][-1] = _share(asked)
            metrics[DEAD_LEFT].append(_share(groups))
            metrics[REFILLS].append(len(every) - len(asked))
        return output

    @property
    def _together(self) -> int:
        """Return the number of a question's rollouts that are generated at one time, equal on all ranks."""
        return int(self.num_generations)

    def _rounds(
        self, asking: StepQuestions, slots: Sequence[Row]
    ) -> tuple[list[RolloutGroup], list[RolloutGroup], list[RolloutGroup]]:
        """Return the groups of the step's own questions, the groups to update on, and all generated groups."""
        every = asked = self._round(asking.first(slots))
        groups, left = list(asked), asking.refills
        unit = self.accelerator.num_processes // gcd(self._together, self.accelerator.num_processes)
        while dead := [place for place, group in enumerate(groups) if group.dead]:
            rows = asking.more(min(-(-len(dead) // unit), left // unit) * unit, [group.row for group in every])
            rows = rows[: len(rows) // unit * unit]
            if not rows:
                break
            added = self._round(rows)
            left, every = left - len(rows), every + added
            for place, group in zip(dead, [group for group in added if not group.dead], strict=False):
                groups[place] = group
        asking.order.learn((group.row["problem"], variance(group.scored)) for group in every if len(group.scored) > 1)
        return asked, groups, every

    def _round(self, rows: Sequence[Row]) -> list[RolloutGroup]:
        """Generate the rollouts of these questions on all ranks, with their rewards."""
        mine = self._own([row for row in rows for _ in range(self.num_generations)])
        prompts = [row["prompt"] for row in mine]
        prompt_ids, ids, _, messages, probabilities, *_ = super().generate_rollouts(prompts)
        rewards = self.rewards_of(mine, prompts, messages, ids).split(self.num_generations)
        written = zip(prompt_ids, ids, messages, probabilities or [None] * len(ids), strict=True)
        rollouts = gather_object([TrlCompletion(*parts) for parts in written])
        starts = range(0, len(rollouts), self.num_generations)
        return [
            RolloutGroup(row, rollouts[start : start + self.num_generations], reward)
            for row, start, reward in zip(rows, starts, rewards, strict=True)
        ]

    def _own(self, everyones: list[Any]) -> list[Any]:
        """Return this rank's part."""
        size = len(everyones) // self.accelerator.num_processes
        return everyones[size * self.accelerator.process_index :][:size]

    def generate_rollouts(self, prompts: list[Any]) -> Any:
        """Return the rollouts that were chosen already, if `asking` is set."""
        if self._chosen is None:
            return super().generate_rollouts(prompts)
        rollouts = [rollout for _, rollout in self._chosen]
        prompt_ids, ids, messages, probabilities = map(list, zip(*rollouts, strict=True))
        return prompt_ids, ids, None, messages, None if None in probabilities else probabilities, {}, None, []

    def rewards_of(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Return the rewards of the rollouts that were chosen already."""
        if self._rewards is not None:
            return self._rewards
        return super().rewards_of(inputs, prompts, completions, completion_ids_list)


def _share(groups: Sequence[RolloutGroup]) -> float:
    return sum(group.dead for group in groups) / len(groups)
