"""The private names of TRL and of transformers' trainer that Podium overrides or reads, under public names.

TRL has no public hooks between the generation of a rollout and its loss. `HookedTrainer` provides such hooks, and
Podium's trainers override them. After an update of TRL, only this module has to be checked: `WRITTEN_AGAINST` names the
versions with which it was compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.trainer_callback import ExportableState as ExportableState
from trl import GRPOTrainer
from trl.trainer.utils import pad as pad

WRITTEN_AGAINST = {"trl": "1.16.0", "transformers": "5.17.0"}
"""The versions of the libraries with which the private names were compared."""


class HookedTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO trainer, whose private steps call public methods that a subclass may override."""

    def step_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Return the loss of one forward pass."""
        return super()._compute_loss(model, inputs)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        return self.step_loss(model, inputs)

    def save_rng_state(self, output_dir: str) -> None:
        """Write this rank's random state to a checkpoint. The first rank writes trainer_state.json afterwards."""
        super()._save_rng_state(output_dir)

    def _save_rng_state(self, output_dir: str) -> None:
        self.save_rng_state(output_dir)

    def score_tokens(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        """Return the log-probabilities, the entropies and the auxiliary loss of the last `logits_to_keep` tokens of
        each row."""
        return super()._get_per_token_logps_and_entropies(model, input_ids, attention_mask, logits_to_keep, **others)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        return self.score_tokens(model, input_ids, attention_mask, logits_to_keep, **others)

    def generate_turn(
        self, prompt_ids: Sequence[list[int]], images: Any, fields: Any, num_generations: int, **others: Any
    ) -> Any:
        """Return the tokens of the completions and vLLM's log-probabilities. Each prompt occurs `num_generations`
        times."""
        return super()._generate_single_turn(prompt_ids, images, fields, num_generations, **others)

    def _generate_single_turn(
        self, prompt_ids: Sequence[list[int]], images: Any, fields: Any, num_generations: int, **others: Any
    ) -> Any:
        return self.generate_turn(prompt_ids, images, fields, num_generations, **others)

    def generate_rollouts(self, prompts: list[Any]) -> Any:
        """Generate one completion per prompt, and return its tokens, messages, log-probabilities and further fields."""
        return super()._generate(prompts)

    def _generate(self, prompts: list[Any]) -> Any:
        return self.generate_rollouts(prompts)

    def take_metrics(self) -> dict[str, list[float]]:
        """Remove the figures that TRL has collected for its next log line, and return them."""
        figures = dict(self._metrics["train"])
        self._metrics["train"].clear()
        return figures

    def add_metrics(self, figures: dict[str, list[float]]) -> None:
        """Add figures to TRL's next log line, which will have the mean of each."""
        for name, values in figures.items():
            self._metrics["train"][name] += values

    def score_rollouts(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Generate, execute and reward the rollouts of a step, and return the tensors for its update, including
        advantages."""
        scored: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return scored

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        return self.score_rollouts(inputs)

    def step_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Return the rewards in the shape (rollouts of all ranks, reward functions), with NaN for a rollout without a
        reward."""
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        return self.step_rewards(inputs, prompts, completions, completion_ids_list)

    def tokenize_prompts(self, prompts: list[Any]) -> list[list[int]]:
        """Return the token ids of each prompt."""
        tokens: list[list[int]] = self._tokenize_prompts(prompts)[0]
        return tokens

    @property
    def pad_token_id(self) -> int:
        """Return the id of the token with which TRL pads rows."""
        return int(self._tokenizer.pad_token_id)

    @property
    def has_entropy_bonus(self) -> bool:
        """Return True if the loss includes a bonus for entropy."""
        return bool(self._entropy_bonus_enabled)

    @property
    def attention(self) -> str:
        """Return the name of the implementation of the model's attention, such as "sdpa"."""
        return str(self.model.config._attn_implementation)
