"""The part of a recipe that says how the Conductor's tokens are drawn."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class Generation(Settings):
    """How the Conductor's tokens are drawn, beside the temperature: in training, evaluation and serving alike.

    What a model's own `generation_config.json` says counts nowhere (Qwen2.5-7B-Instruct's: top-p 0.8, top-k 20,
    repetition penalty 1.05), but for the tokens that end a text.
    """

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability that is drawn from, likeliest tokens first; 1: all of it."""
    top_k: int = Field(default=0, ge=0)
    """How many tokens are drawn from, likeliest first; 0: all of them."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Tokens below this share of the likeliest one's probability are not drawn; None: all may be."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Above 1, tokens that stand in the prompt or the text become less likely, in greedy texts too; 1: they do not."""
