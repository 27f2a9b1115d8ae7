"""Generate all completions of a group together, so that the group's prompt is processed only once.

The model receives a group as one sequence, as in an update (`packing.py`). Each pass writes one token of every
completion, and each new token attends to the prompt and to its own completion. The samples have the same distribution
as those of separate rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache


def sample_tokens(probabilities: torch.Tensor) -> torch.Tensor:
    """Draw an index from each distribution (..., tokens) with torch's global generator.

    The result is what `torch.multinomial` would draw. On CPUs it takes a third of the time, because `torch.multinomial`
    computes one logarithm after another there. Raises the `RuntimeError` of `torch.multinomial` for invalid
    probabilities.
    """
    if not probabilities.sum().isfinite():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    waits = (
        torch.empty(probabilities.shape, dtype=torch.float64, device=probabilities.device)
        .uniform_()
        .neg_()
        .log1p_()
        .neg_()
    )
    return (probabilities / waits.to(probabilities.dtype)).argmax(-1)


@torch.no_grad()
def generate_groups(
    model: Any,
    prompts: Sequence[Sequence[int]],
    rollouts_per_prompt: int,
    max_tokens: int,
    end_tokens: Sequence[int],
    temperature: float,
) -> list[list[int]]:
    """Return `rollouts_per_prompt` completions of each prompt as token ids, prompt by prompt.

    A completion has at most `max_tokens` tokens and ends with the first token that is in `end_tokens`. Tokens are
    sampled with torch's global generator.
    """
    width, device = max(map(len, prompts)), model.device
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    shown = torch.arange(width, device=device) >= width - lengths[:, None]
    itself = torch.eye(rollouts_per_prompt, dtype=torch.bool, device=device)
    cache = DynamicCache(config=model.config)
    inputs = {"attention_mask": shown.long(), "position_ids": (shown.cumsum(1) - 1).clamp(min=0)}
    logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=1, **inputs).logits.expand(
        -1, rollouts_per_prompt, -1
    )
    said = torch.empty((len(prompts), rollouts_per_prompt, max_tokens), dtype=torch.long, device=device)
    counts = torch.full((len(prompts), rollouts_per_prompt), max_tokens, device=device)
    stops, open_groups = torch.tensor(list(end_tokens), device=device), torch.arange(len(prompts), device=device)
    for at in range(max_tokens):
        drawn = sample_tokens((logits / temperature).softmax(-1))
        said[open_groups, :, at] = drawn
        ended = torch.isin(drawn, stops) & (counts[open_groups] == max_tokens)
        counts[open_groups] = counts[open_groups].where(~ended, at + 1)
        going = (counts[open_groups] == max_tokens).any(1)
        if at + 1 == max_tokens or not going.any():
            break
        if not going.all():
            open_groups, drawn = open_groups[going], drawn[going]
            cache.batch_select_indices(going.nonzero()[:, 0])
        before = shown[open_groups, None].expand(-1, rollouts_per_prompt, -1)
        own = itself.repeat(1, at + 1).expand(len(open_groups), -1, -1)
        inputs = {
            "attention_mask": torch.cat([before, own], -1)[:, None],
            "position_ids": (lengths[open_groups, None] + at).expand(-1, rollouts_per_prompt),
        }
        logits = model(input_ids=drawn, past_key_values=cache, **inputs).logits
    ends_at = counts.flatten().tolist()
    return [tokens[:count] for tokens, count in zip(said.flatten(0, 1).tolist(), ends_at, strict=True)]
