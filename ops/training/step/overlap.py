"""GRPO that overlaps worker calls with generation and updates.

With a staleness of k, the policy of step n generates the rollouts of step n + k and calls their workers immediately.
The workers answer while the policy is updated in step n and the following ones. When a rollout is used, it is therefore
k updates old, and a ratio of the two policies' probabilities corrects for this. Without vLLM it is GRPO's own clipped
ratio. With vLLM it is TRL's ratio of the updated policy's probabilities to those that vLLM reported.

In the first step, and in the first step after a restart, the policy generates the rollouts of this step and of the next
k steps, and waits for those of this step.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from ops.training.rewards.reward import StepStatistics
from ops.training.step.timed_trainer import FinishedRollouts, TimedTrainer
from ops.training.step.trl_private import pad

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class PendingRollouts:
    """The rollouts of one step that were generated and do not have all rewards yet."""

    rows: Rows
    """The rows of the data set from which the rollouts were generated."""
    generated: Any
    """The completions in the form that TRL uses."""
    logps: torch.Tensor | None
    """The log-probability of each token under the policy that generated it. None means that vLLM reports it."""
    rewards: Future[list[float | None]]
    """The future result of the reward function."""
    statistics: list[StepStatistics]
    """A list that receives the statistics of the rollouts when all of them have finished."""
    metrics: dict[str, list[float]]
    """The figures that TRL logs about the completions, such as their lengths."""


class OverlappedTrainer(TimedTrainer):
    """A GRPO trainer that prepares the rollouts of the next `staleness` steps while the policy is updated."""

    def __init__(self, *args: Any, staleness: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._staleness = staleness
        trainer: Any = self
        [self._reward_function] = trainer.reward_funcs
        trainer.reward_funcs = [self._await_rewards]
        self._prefetched: deque[Any] = deque()
        """The parts of the data set that are already read, for the following steps."""
        self._next_rows: list[Rows] = []
        """The rows of the next steps. At the end of training there are fewer than `staleness` of them."""
        self._pending: deque[PendingRollouts] = deque()
        self._current: PendingRollouts | None = None

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Return the batches of this step, after reading those of the next `staleness` steps."""
        while len(self._prefetched) <= self._staleness:
            self._prefetched.append(super().get_batch_samples(epoch_iterator, num_batches, device))
        batches = self._prefetched.popleft()
        left = self.args.max_steps - self.state.global_step - 1
        self._next_rows = [rows[0] for rows, *_ in islice(self._prefetched, left) if rows]
        return batches

    def train(self, *args: Any, **settings: Any) -> Any:
        """Train as TRL does, and cancel all worker calls that are waiting if the training ends or fails."""
        try:
            return super().train(*args, **settings)
        finally:
            for flight in self._pending:
                flight.rewards.cancel()

    def score_rollouts(self, inputs: Rows) -> dict[str, Any]:
        """Return the tensors for an update with the rollouts of this step, which were generated `staleness` steps ago.

        The rollouts of later steps that are not generated yet are started first.
        """
        flight = self._pending.popleft() if self._pending else self._start_rollouts(inputs)
        assert flight.rows == inputs, "rollouts land in the order in which they started"
        for rows in self._next_rows[len(self._pending) :]:
            self._pending.append(self._start_rollouts(rows))
        self._current = flight
        self.add_metrics(flight.metrics)
        scored = super().score_rollouts(inputs)
        self._current = None
        if flight.logps is not None:
            scored["old_per_token_logps"] = flight.logps
        return scored

    def generate_rollouts(self, prompts: list[Any]) -> Any:
        """Return the rollouts that were generated for this step at an earlier step."""
        return super().generate_rollouts(prompts) if self._current is None else self._current.generated

    def _start_rollouts(self, rows: Rows) -> PendingRollouts:
        """Generate rollouts with the present policy and call their workers, without waiting for the workers."""
        logged = self.take_metrics()
        generated = super().generate_rollouts([row["prompt"] for row in rows])
        figures = self.take_metrics()
        self.add_metrics(logged)
        prompts, written, _, completions, *_ = generated
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        statistics: list[StepStatistics] = []
        asked = self._reward_function(
            completions=completions, completion_ids=written, trainer_state=self.state, seen=statistics.append, **columns
        )
        rewards = asyncio.run_coroutine_threadsafe(asked, self.async_loop)
        logps = None if self.use_vllm else self._logps(prompts, written)
        return PendingRollouts(rows, generated, logps, rewards, statistics, figures)

    @torch.no_grad()
    def _logps(self, prompts: list[list[int]], written: list[list[int]]) -> torch.Tensor:
        """Return the log-probabilities of the completions' tokens under the present policy, padded as TRL pads them."""
        fill, columns = self.pad_token_id, [(prompts, "left"), (written, "right")]
        ids = [self._pad_rows(rows, fill, side) for rows, side in columns]
        shown = [self._pad_rows([[1] * len(row) for row in rows], 0, side) for rows, side in columns]
        logps: torch.Tensor = self.score_tokens(
            self.model, torch.cat(ids, dim=1), torch.cat(shown, dim=1), ids[1].size(1),
            batch_size=self.args.per_device_train_batch_size,
        )[0]  # fmt: skip
        return logps

    def _pad_rows(self, rows: list[list[int]], fill: int, side: str) -> torch.Tensor:
        padded: torch.Tensor = pad([torch.tensor(row) for row in rows], padding_value=fill, padding_side=side)
        return padded.to(self.accelerator.device)

    async def _await_rewards(self, **_: Any) -> list[float | None]:
        """Return the rewards of this step's rollouts when all of them are known. TRL calls this as its reward
        function."""
        flight, began = self._current, time.perf_counter()
        assert flight is not None
        rewards = await asyncio.wrap_future(flight.rewards)
        self.finished_rollouts = FinishedRollouts(flight.statistics[0], time.perf_counter() - began)
        return rewards
