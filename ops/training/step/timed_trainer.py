"""TRL's GRPO trainer with changes for speed and correctness on CPUs, and with timing of its steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ops.training.rewards.reward import StepStatistics
from ops.training.step.divergence import DivergenceGuard
from ops.training.step.duplicates import AVERAGED, without_duplicates
from ops.training.step.generation import write
from ops.training.step.packing import pack, score
from ops.training.step.questions import AskingTrainer

FULL = {"full_attention"}


class Landed(NamedTuple):
    """Statistics of a step's rollouts, and the seconds that this process waited for them."""

    statistics: StepStatistics
    waiting_seconds: float


class TimedTrainer(AskingTrainer):
    """GRPO that logs the time of generation (seconds, this process), and updates once per distinct rollout."""

    generation_seconds = 0.0
    landed: Landed | None = None
    """This step's rollouts, if they were started earlier."""
    guard: DivergenceGuard

    def loss_of(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Compute the loss with one row for equal rollouts if the gradient stays the same; checked for finite
        values."""
        if self.merges and "old_per_token_logps" not in inputs:
            inputs = without_duplicates(inputs)
        return self.guard.loss(super().loss_of(model, inputs), self.state.global_step + 1)

    def save_rng_state(self, output_dir: str) -> None:
        """Save the state and wait for all ranks' files."""
        super().save_rng_state(output_dir)
        # The first rank writes trainer_state.json next, which marks the checkpoint of all ranks as complete.
        self.accelerator.wait_for_everyone()

    def score_tokens(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        """Score by groups in one sequence if `packs`."""
        given = {name for name, value in others.items() if value is not None and value is not False}
        if self.packs and given <= {"batch_size", "compute_entropy"}:
            packed = pack(input_ids, attention_mask, logits_to_keep)
            if packed is not None:
                return *score(model, packed), None
        return super().score_tokens(model, input_ids, attention_mask, logits_to_keep, **others)

    @property
    def packs(self) -> bool:
        """Return whether a group is processed as one sequence.

        This is so on CPUs, in one process (not tried on GPUs), with a model
        whose attention takes a custom mask and is full in every layer.
        """
        config = self.model.config
        full = set(getattr(config, "layer_types", None) or FULL) == FULL and self.attention == "sdpa"
        return full and self.accelerator.num_processes == 1 and self.accelerator.device.type == "cpu"

    @property
    def samples_plainly(self) -> bool:
        """Return whether transformers draws completions from the unmodified distribution at the temperature."""
        drawn = self.args
        others = drawn.generation_kwargs or drawn.cache_implementation or drawn.gradient_checkpointing
        whole = drawn.top_p == 1.0 and not drawn.top_k and not drawn.min_p and drawn.repetition_penalty == 1.0
        return whole and not (others or self.use_vllm or self.use_transformers_continuous_batching)

    @property
    def merges(self) -> bool:
        """Return whether the gradient is linear in the advantages and this process has all the rows."""
        plain = self.beta == 0 and not self.rewards_entropy and not self.use_vllm
        return plain and self.loss_type in AVERAGED and self.accelerator.num_processes == 1

    def generate_turn(
        self, prompt_ids: Sequence[list[int]], images: Any, fields: Any, num_generations: int, **others: Any
    ) -> Any:
        """Generate by groups if `packs`; timed."""
        started = time.perf_counter()
        with self.guard.drawing(self.state.global_step + 1):
            if self.packs and self.samples_plainly and images is None and not fields:
                prompts = prompt_ids[::num_generations]
                result = self._write(prompts, num_generations), None
            else:
                result = super().generate_turn(prompt_ids, images, fields, num_generations, **others)
        self.generation_seconds += time.perf_counter() - started
        return result

    def _write(self, prompts: Sequence[list[int]], rollouts: int) -> list[list[int]]:
        # Around the whole generation, so that the weights' bfloat16 copies are kept from token to token.
        with self.accelerator.autocast():
            return write(
                self.accelerator.unwrap_model(self.model_wrapped),
                prompts, rollouts, self.max_completion_length, self.eos_token_ids, self.temperature,
            )  # fmt: skip
