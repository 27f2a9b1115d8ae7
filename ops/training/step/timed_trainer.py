"""TRL's GRPO trainer with changes for speed and correctness on CPUs, which also measures the times of its steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object

from ops.training.rewards.reward import StepStatistics
from ops.training.step.divergence import DivergenceGuard
from ops.training.step.duplicates import AVERAGED_LOSSES, merge_duplicates
from ops.training.step.generation import generate_groups
from ops.training.step.packing import pack_groups, score_packed
from ops.training.step.questions import Row, StepQuestions
from ops.training.step.trl_private import HookedTrainer

FULL_ATTENTION = {"full_attention"}
"""The layer types of a model in which every layer has full attention."""


class FinishedRollouts(NamedTuple):
    """The statistics of a step's rollouts, and the seconds that this process waited for them."""

    statistics: StepStatistics
    """The statistics of the rollouts on this rank."""
    waiting_seconds: float
    """Seconds that this process waited for their rewards."""


class TimedTrainer(HookedTrainer):
    """A GRPO trainer that measures its time of generation and updates only once per distinct rollout.

    `step_questions` chooses its questions.
    """

    generation_seconds = 0.0
    """Seconds of generation in the present step, in this process."""
    finished_rollouts: FinishedRollouts | None = None
    """The present step's rollouts if they were started at an earlier step, and None otherwise."""
    guard: DivergenceGuard
    """The object that checks the loss for finite values."""
    step_questions: StepQuestions | None = None
    """The object that chooses the questions of each step. None stands for the order of the data set."""
    _step_rows: Sequence[Row] = ()
    """The questions of the present step on all ranks."""

    def step_rows(self, inputs: list[Row]) -> list[Row]:
        """Return the rows of this rank's rollouts, grouped by question, in place of those of the data set."""
        if self.step_questions is None:
            return inputs
        self._step_rows = self.step_questions.choose_questions(gather_object(inputs)[:: self.num_generations])
        everyones = [row for row in self._step_rows for _ in range(self.num_generations)]
        first = len(inputs) * self.accelerator.process_index
        return everyones[first : first + len(inputs)]

    def score_rollouts(self, inputs: list[Row]) -> dict[str, Any]:
        """Return the tensors for an update on the step's questions."""
        return super().score_rollouts(self.step_rows(inputs))

    def step_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Return the rewards, and report them to `step_questions`."""
        rewards = super().step_rewards(inputs, prompts, completions, completion_ids_list)
        if self.step_questions is not None:
            groups = rewards[:, 0].view(len(self._step_rows), -1)
            self.step_questions.record_rewards(self._step_rows, groups.tolist())
        return rewards

    def step_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Return the loss of one forward pass, after checking that it is finite.

        Equal rollouts are merged into one row if the gradient stays the same.
        """
        if self.can_merge and "old_per_token_logps" not in inputs:
            inputs = merge_duplicates(inputs)
        return self.guard.check_loss(super().step_loss(model, inputs), self.state.global_step + 1)

    def save_rng_state(self, output_dir: str) -> None:
        """Write the random state, and wait until all ranks have written their files."""
        super().save_rng_state(output_dir)
        # The first rank writes trainer_state.json next, which marks the checkpoint of all ranks as complete.
        self.accelerator.wait_for_everyone()

    def score_tokens(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        """Return the log-probabilities of tokens. Each group is processed as one sequence if `can_pack` is True."""
        given = {name for name, value in others.items() if value is not None and value is not False}
        if self.can_pack and given <= {"batch_size", "compute_entropy"}:
            packed = pack_groups(input_ids, attention_mask, logits_to_keep)
            if packed is not None:
                return *score_packed(model, packed), None
        return super().score_tokens(model, input_ids, attention_mask, logits_to_keep, **others)

    @property
    def can_pack(self) -> bool:
        """Return True if a group can be processed as one sequence.

        This is so on CPUs, in one process (not tried on GPUs), for a model whose attention accepts a custom mask and is
        full in every layer.
        """
        config = self.model.config
        full = (
            set(getattr(config, "layer_types", None) or FULL_ATTENTION) == FULL_ATTENTION and self.attention == "sdpa"
        )
        return full and self.accelerator.num_processes == 1 and self.accelerator.device.type == "cpu"

    @property
    def has_plain_sampling(self) -> bool:
        """Return True if transformers samples completions from the model's distribution at the temperature, without
        further settings."""
        drawn = self.args
        others = drawn.generation_kwargs or drawn.cache_implementation or drawn.gradient_checkpointing
        whole = drawn.top_p == 1.0 and not drawn.top_k and not drawn.min_p and drawn.repetition_penalty == 1.0
        return whole and not (others or self.use_vllm or self.use_transformers_continuous_batching)

    @property
    def can_merge(self) -> bool:
        """Return True if the gradient is linear in the advantages and this process has all rows."""
        plain = self.beta == 0 and not self.has_entropy_bonus and not self.use_vllm
        return plain and self.loss_type in AVERAGED_LOSSES and self.accelerator.num_processes == 1

    def generate_turn(
        self, prompt_ids: Sequence[list[int]], images: Any, fields: Any, num_generations: int, **others: Any
    ) -> Any:
        """Generate completions, by groups if `can_pack` is True, and measure the time."""
        started = time.perf_counter()
        with self.guard.explain_sampling_errors(self.state.global_step + 1):
            if self.can_pack and self.has_plain_sampling and images is None and not fields:
                prompts = prompt_ids[::num_generations]
                result = self._generate_groups(prompts, num_generations), None
            else:
                result = super().generate_turn(prompt_ids, images, fields, num_generations, **others)
        self.generation_seconds += time.perf_counter() - started
        return result

    def _generate_groups(self, prompts: Sequence[list[int]], rollouts: int) -> list[list[int]]:
        # autocast encloses the whole generation, so that its bfloat16 copies of the weights are made only once.
        with self.accelerator.autocast():
            return generate_groups(
                self.accelerator.unwrap_model(self.model_wrapped),
                prompts, rollouts, self.max_completion_length, self.eos_token_ids, self.temperature,
            )  # fmt: skip
