"""GRPO that overlaps worker calls with generation and updates.

At step n the policy of step n generates the rollouts of step n + 1 and calls their workers at once; the workers answer
during the update on the rollouts of step n. A rollout is therefore exactly one update old when it is used, and a ratio
of the two policies corrects for this: GRPO's own, which is clipped, or with vLLM TRL's, of the updated policy's
probabilities to vLLM's. The first step, and the first after a restart, generate their own rollouts and wait.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from ops.training.rewards.reward import StepStatistics
from ops.training.step.timed_trainer import Landed, TimedTrainer
from ops.training.step.trl_private import pad

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Flight:
    """One step's rollouts between generation and reward."""

    rows: Rows
    generated: Any
    """The completions in TRL's form."""
    logps: torch.Tensor | None
    """Each token's log-probability by the generating policy; None: vLLM reports it."""
    rewards: Future[list[float | None]]
    statistics: list[StepStatistics]
    """Statistics of the rollouts once they have finished."""


class OverlappedTrainer(TimedTrainer):
    """GRPO that prepares the next step's rollouts during an update."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        trainer: Any = self
        [self._ask] = trainer.reward_funcs
        trainer.reward_funcs = [self._landed]
        self._following: Any = None
        """The prefetched part of the data set, for the following step."""
        self._ahead: Rows | None = None
        """The rows of the next step; None if there is no next step."""
        self._coming: Flight | None = None
        self._landing: Flight | None = None

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Return this step's batches, while the next step's are prepared."""
        if self._following is None:
            self._following = super().get_batch_samples(epoch_iterator, num_batches, device)
        batches, self._following = self._following, super().get_batch_samples(epoch_iterator, num_batches, device)
        rows, last = self._following[0], self.state.global_step + 1 >= self.args.max_steps
        self._ahead = rows[0] if rows and not last else None
        return batches

    def train(self, *args: Any, **settings: Any) -> Any:
        """Train as TRL does. No worker is called once training has failed."""
        try:
            return super().train(*args, **settings)
        finally:
            if self._coming is not None:
                self._coming.rewards.cancel()

    def score_rollouts(self, inputs: Rows) -> dict[str, Any]:
        """Return the scores of the rollouts that were generated one step ago."""
        flight, self._coming = self._coming or self._start(inputs), None
        assert flight.rows == inputs, "rollouts land in the order in which they started"
        if self._ahead is not None:
            self._coming = self._start(self._ahead)
        self._landing = flight
        scored = super().score_rollouts(inputs)
        self._landing = None
        if flight.logps is not None:
            scored["old_per_token_logps"] = flight.logps
        return scored

    def generate_rollouts(self, prompts: list[Any]) -> Any:
        """Return the rollouts that were generated one step ago."""
        return super().generate_rollouts(prompts) if self._landing is None else self._landing.generated

    def _start(self, rows: Rows) -> Flight:
        """Generate with the present policy, and call the workers without waiting for them."""
        generated = super().generate_rollouts([row["prompt"] for row in rows])
        prompts, written, _, completions, *_ = generated
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        statistics: list[StepStatistics] = []
        asked = self._ask(
            completions=completions, completion_ids=written, trainer_state=self.state, seen=statistics.append, **columns
        )
        rewards = asyncio.run_coroutine_threadsafe(asked, self.async_loop)
        logps = None if self.use_vllm else self._logps(prompts, written)
        return Flight(rows, generated, logps, rewards, statistics)

    @torch.no_grad()
    def _logps(self, prompts: list[list[int]], written: list[list[int]]) -> torch.Tensor:
        """Return log-probabilities of the completions' tokens by the present policy, padded as TRL pads them."""
        fill, columns = self.pad_token_id, [(prompts, "left"), (written, "right")]
        ids = [self._padded(rows, fill, side) for rows, side in columns]
        shown = [self._padded([[1] * len(row) for row in rows], 0, side) for rows, side in columns]
        logps: torch.Tensor = self.score_tokens(
            self.model, torch.cat(ids, dim=1), torch.cat(shown, dim=1), ids[1].size(1),
            batch_size=self.args.per_device_train_batch_size,
        )[0]  # fmt: skip
        return logps

    def _padded(self, rows: list[list[int]], fill: int, side: str) -> torch.Tensor:
        padded: torch.Tensor = pad([torch.tensor(row) for row in rows], padding_value=fill, padding_side=side)
        return padded.to(self.accelerator.device)

    async def _landed(self, **_: Any) -> list[float | None]:
        """Return the rewards of the rollouts whose workers were called
        one step earlier; TRL calls this as its reward function.
        """
        flight, began = self._landing, time.perf_counter()
        assert flight is not None
        rewards = await asyncio.wrap_future(flight.rewards)
        self.landed = Landed(flight.statistics[0], time.perf_counter() - began)
        return rewards
