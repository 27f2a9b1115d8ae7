"""Generate the completions of a group together: the prompt is processed once, and each pass writes a token of each.

A group is one sequence to the model, as in an update (`packing.py`): each new token attends to the prompt and to its
own completion. The samples have the distribution of separate rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache


def sample_tokens(probabilities: torch.Tensor) -> torch.Tensor:
    """Draw an index from each distribution (..., tokens) with torch's global generator.

    Returns what `torch.multinomial` would draw, in a third of its time on CPUs, where it computes one logarithm after
    another. Raises its `RuntimeError` for what is no distribution.
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
    """Return `rollouts_per_prompt` completions of each prompt, prompt by prompt, with at most `max_tokens` tokens; a
    token of `end_tokens` is the last.

    Samples with torch's global generator.
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
