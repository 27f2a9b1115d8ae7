"""Merge identical rollouts, because a GRPO batch without repetitions can have the same gradient.

A policy of low entropy generates few distinct workflows, and a group with equal rewards has no gradient. If the policy
is still the one that generated the rollouts (every ratio is 1, nothing is clipped), the gradient is linear in the
advantages. One row with the sum of its copies' advantages then replaces all of them.
"""

from __future__ import annotations

from typing import Any

import torch

ROW_COLUMNS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
"""The columns of TRL's inputs that have one row per rollout and are reduced."""
AVERAGED_LOSSES = ("grpo", "dr_grpo")
"""The losses that are means over rows."""
_ZERO_ADVANTAGE = 1e-6


def merge_duplicates(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return TRL's inputs of one forward pass with one row for equal rows, and without rows that have no gradient.

    The inputs have the shape (rows, tokens). Advantages are scaled so that a mean over the remaining rows has the
    gradient of the mean over all rows. Columns that hold only padding are cut off. A batch without any gradient keeps
    one row.
    """
    prompts, completions = inputs["prompt_ids"] * inputs["prompt_mask"], inputs["completion_ids"]
    completions = completions * inputs["completion_mask"]
    every = torch.cat([prompts, inputs["prompt_mask"], completions, inputs["completion_mask"]], dim=1)
    distinct, copy_of = torch.unique(every, dim=0, return_inverse=True)
    advantages = inputs["advantages"].new_zeros(len(distinct)).index_add_(0, copy_of, inputs["advantages"])
    first = torch.full((len(distinct),), len(every), device=copy_of.device)
    first = first.scatter_reduce_(0, copy_of, torch.arange(len(every), device=copy_of.device), "amin")
    pulls = advantages.abs() > _ZERO_ADVANTAGE
    if not pulls.any():
        pulls[0] = True
    kept, advantages = first[pulls], advantages[pulls]
    left = {name: inputs[name][kept] for name in ROW_COLUMNS[:-1]}
    begin = int(left["prompt_mask"].any(0).int().argmax())
    end = int(left["completion_mask"].any(0).sum())
    return {
        **inputs,
        "prompt_ids": left["prompt_ids"][:, begin:],
        "prompt_mask": left["prompt_mask"][:, begin:],
        "completion_ids": left["completion_ids"][:, :end],
        "completion_mask": left["completion_mask"][:, :end],
        "advantages": advantages * len(kept) / len(every),
    }
