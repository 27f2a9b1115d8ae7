"""TRL's GRPO trainer with two rounds per step: first rounds, and then rounds that continue from their answers.

First rounds are generated and executed before the recursive rounds are generated. TRL generates both, with transformers
or vLLM. Every rank generates equally many of each. A rank's recursive rounds continue its own first rounds, even if
other ranks have a part of the group.

The prompts of a group then differ. `duplicates.py` compares whole rows including prompts, so it stays correct.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import torch

from ops.training.stages.rounds import RoundRewards, mark_recursive_rollouts
from ops.training.step.questions import Row
from ops.workflow.control_tokens import escape_messages


class RoundsMixin:
    """Makes half of a question's rollouts continue from the answers of the other half; combined with `TimedTrainer`."""

    def __init__(self, *arguments: Any, rounds: RoundRewards, **named: Any) -> None:
        super().__init__(*arguments, reward_funcs=rounds.workflow_reward, **named)  # type: ignore[call-arg]
        self._round_rewards = rounds
        self._rank_rows: Sequence[Row] = ()
        """The rows of this rank's rollouts, grouped by question."""
        self.rollout_func = self._write_rounds

    def step_rows(self: Any, inputs: list[Row]) -> list[Row]:
        """Return the rows of this rank's rollouts, and keep them for the recursive rounds."""
        rows: list[Row] = super().step_rows(inputs)  # type: ignore[misc]
        self._rank_rows = rows
        return rows

    def _write_rounds(self: Any, prompts: Sequence[Any], _: Any) -> dict[str, Any]:
        """Generate both rounds, and return what TRL expects of a rollout function, row by row with each row's own
        prompt."""
        questions = [row["problem"] for row in self._rank_rows]
        rows, second = len(prompts), mark_recursive_rollouts(questions)
        first = [place for place in range(rows) if not second[place]]
        ids = self.tokenize_prompts(list(prompts))
        # On every rank, `alike` consecutive rows have the same prompt, which is sent to vLLM's server only once.
        alike = math.gcd(self.num_generations // 2, rows // 2)
        written, said = self.generate_turn([ids[place] for place in first], None, {}, alike)
        texts = self.processing_class.batch_decode(written, skip_special_tokens=True)
        chats = asyncio.run_coroutine_threadsafe(
            self._round_rewards.execute_first_rounds(
                questions,
                dict(zip(first, texts, strict=True)),
                dict(zip(first, written, strict=True)),
                self._rank_rows[0]["epoch"],
            ),
            self.async_loop,
        ).result()
        # With this barrier, the time-out of collectives applies to each of the two waits for workers, not to their sum.
        self.accelerator.wait_for_everyone()
        others = [place for place in range(rows) if second[place]]
        going = [place for place in others if place in chats]
        if going:
            shown = [escape_messages(self.processing_class, chats[place]) for place in going]
            for place, tokens in zip(going, self.tokenize_prompts(shown), strict=True):
                ids[place] = tokens
        again, said_again = self.generate_turn([ids[place] for place in others], None, {}, 1)
        places = [*first, *others]
        completions = dict(zip(places, [*written, *again], strict=True))
        logps = None if said is None else dict(zip(places, [*said, *said_again], strict=True))
        return {
            "prompt_ids": list(ids),
            "completion_ids": [completions[place] for place in range(rows)],
            "logprobs": None if logps is None else [logps[place] for place in range(rows)],
        }

    def score_tokens(
        self: Any, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        """Score the rows that share their prompt apart from the others.

        If they were packed together, each row with a prompt of its own would be padded to the length of a whole group.
        """
        score = super().score_tokens  # type: ignore[misc]
        parts = _split_by_shared_prompt(input_ids, attention_mask, logits_to_keep) if self.can_pack else []
        if len(parts) < 2:
            return score(model, input_ids, attention_mask, logits_to_keep, **others)
        scored = []
        for rows in parts:
            begin = int(attention_mask[rows].any(0).int().argmax())
            scored.append(score(model, input_ids[rows, begin:], attention_mask[rows, begin:], logits_to_keep, **others))
        order = torch.cat(parts).argsort()
        logps, entropies, aux = zip(*scored, strict=True)
        return *(None if part[0] is None else torch.cat(part)[order] for part in (logps, entropies)), aux[0]


def _split_by_shared_prompt(
    input_ids: torch.Tensor, attention_mask: torch.Tensor, completion: int
) -> list[torch.Tensor]:
    """Return the indices of the rows that share their prompt with other rows, and those of the others.

    A part without rows is left out.
    """
    wide = input_ids.shape[1] - completion
    prompts = torch.cat([(input_ids * attention_mask)[:, :wide], attention_mask[:, :wide]], dim=1)
    _, group, sizes = torch.unique(prompts, dim=0, return_inverse=True, return_counts=True)
    shared = sizes[group] > 1
    return [rows for rows in (shared.nonzero()[:, 0], (~shared).nonzero()[:, 0]) if len(rows)]
