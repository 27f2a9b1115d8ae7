"""Pack a GRPO group into one sequence: its prompt once, followed by all completions.

Each completion attends only to the prompt and to itself. An update would otherwise process the common prompt once per
rollout. The log-probabilities are those of separate rows (compare Prefix Grouper, arXiv:2506.05433).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import torch

MAX_PACKED_TOKENS = 4096
"""The maximum tokens of a packed sequence. There is a limit because the attention mask grows with the square of the
length."""
_IGNORED_LABEL = -100


class PackedBatch(NamedTuple):
    """The model's inputs of packed groups, and where the completion of each row is in them."""

    inputs: dict[str, torch.Tensor]
    """The model's inputs, whose shape is (groups, tokens) except for the attention mask."""
    group: torch.Tensor
    """The index of each row's group, of shape (rows)."""
    columns: torch.Tensor
    """The columns of the packed sequence that hold each completion, of shape (rows, completion tokens). Padding has
    column 1."""
    is_scored: torch.Tensor
    """True for tokens of a completion and False for padding, of shape (rows, completion tokens)."""


def pack_groups(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion_tokens: int) -> PackedBatch | None:
    """Pack rows with equal prompts into one sequence each, or return None if one is longer than `MAX_PACKED_TOKENS`.

    A row has a prompt, which is padded on the left, and `completion_tokens` tokens, which are padded on the right.
    """
    mask = attention_mask.bool()
    wide = input_ids.shape[1] - completion_tokens
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, (ids, kept) in enumerate(zip(input_ids[:, :wide], mask[:, :wide], strict=True)):
        groups[tuple(ids[kept].tolist())].append(row)
    lengths = mask[:, wide:].sum(1).tolist()
    # Each completion follows its own copy of the prompt's last token, whose state predicts the first new token.
    width = max(len(prompt) - 1 + sum(1 + lengths[row] for row in rows) for prompt, rows in groups.items())
    if width > MAX_PACKED_TOKENS:
        return None
    shape = (len(groups), width)
    ids, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, _IGNORED_LABEL)
    positions, segments = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    group = torch.zeros(len(input_ids), dtype=torch.long)
    columns = torch.ones((len(input_ids), completion_tokens), dtype=torch.long)
    for index, (prompt, rows) in enumerate(groups.items()):
        shared = len(prompt) - 1
        ids[index, :shared] = torch.tensor(prompt[:-1])
        positions[index, :shared] = torch.arange(shared)
        segments[index, :shared] = 0
        at = shared
        for number, row in enumerate(rows, 1):
            end = at + 1 + lengths[row]
            said = input_ids[row, wide : wide + lengths[row]]
            ids[index, at], ids[index, at + 1 : end] = prompt[-1], said
            labels[index, at + 1 : end] = said
            positions[index, at:end] = torch.arange(shared, shared + end - at)
            segments[index, at:end] = number
            group[row] = index
            columns[row, : lengths[row]] = torch.arange(at + 1, end)
            at = end
    earlier = torch.ones(width, width, dtype=torch.bool).tril()
    key = segments[:, None, :]
    visible = earlier & ((key == 0) | (key == segments[:, :, None]))
    inputs = {
        "input_ids": ids, "attention_mask": visible[:, None], "position_ids": positions, "labels": labels,
    }  # fmt: skip
    return PackedBatch(inputs, group, columns, mask[:, wide:])


def unpack_values(values: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Return values of packed sequences by row and completion token, with 0 for padding.

    `values` has the shape (groups, tokens - 1), because TRL gives values from the second token on. The result has the
    shape (rows, completion tokens).
    """
    rows: torch.Tensor = values[packed.group[:, None], packed.columns - 1]
    return rows.masked_fill(~packed.is_scored, 0.0)


def score_packed(model: Any, packed: PackedBatch) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the log-probability and the entropy (nats) of every token of every completion, by TRL's scoring head.

    The entropy is None if the head gives none, as for a reference model.
    """
    outputs = model(**packed.inputs, fused_lm_head=True)
    entropy = None if outputs.entropy is None else unpack_values(outputs.entropy, packed)
    return unpack_values(outputs.log_probs, packed), entropy
