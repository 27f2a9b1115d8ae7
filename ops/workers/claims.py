"""The usage that a provider claims in its reply, in one way of counting.

Providers count in several ways. Some list reasoning inside the completion and others beside it, and the same holds for
the parts of a prompt that are read from a cache or written to it. The total that most of them state tells which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple, TypeGuard

from ops.config import tier_named

_STATED_COSTS = {"cost": 1.0, "estimated_cost": 1.0, "cost_in_usd_ticks": 1e-10}
"""Fields with a cost that the provider states (OpenRouter, Perplexity; DeepInfra; xAI), each with its unit in USD."""
_PAYS_AS = {"fast": "priority"}
"""Service tiers that a provider bills under the name of another."""


class ClaimedUsage(NamedTuple):
    """What the provider says it will bill. `prompt` and `completion` are unchecked: any type, None if not stated."""

    prompt: object
    completion: object
    cached: int = 0
    """Tokens of the prompt that were read from the provider's cache."""
    written: int = 0
    """Tokens of the prompt that were written to the provider's cache."""
    reasoning: int = 0
    """Tokens of the completion that are reasoning."""
    reasoning_beside: int = 0
    """The part of the completion that, as the stated total confirms, the provider counts beside the text."""
    stated_usd: float | None = None


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def read_claim(usage: Any, most_prompt: int, most_completion: int) -> ClaimedUsage:
    """Return the usage of a reply, with every part of the prompt and of the completion inside it.

    If the total that the provider states is the sum of its parts, it decides which parts lie beside prompt and
    completion. Otherwise a part lies inside if it fits, and what the total has beyond all parts counts as completion.
    What would make the prompt longer than `most_prompt`, or the completion longer than `most_completion`, is not
    believed in the second case: cached tokens are then billed as input.
    """
    prompt, completion = _field(usage, "prompt_tokens"), _field(usage, "completion_tokens")
    inputs, outputs = _field(usage, "prompt_tokens_details"), _field(usage, "completion_tokens_details")
    cached = _count(_field(inputs, "cached_tokens"), _field(usage, "cache_read_input_tokens"))
    written = _count(
        _field(inputs, "cache_write_tokens"),
        _field(inputs, "cache_creation_tokens"),
        _field(usage, "cache_creation_input_tokens"),
    )
    reasoning = _count(_field(outputs, "reasoning_tokens"), _field(usage, "reasoning_tokens"))
    stated = _stated_usd(usage)
    if not is_count(prompt) or not is_count(completion) or prompt < 0 or completion < 0:
        return ClaimedUsage(prompt, completion, cached, written, reasoning, stated_usd=stated)
    total = _count(_field(usage, "total_tokens"))
    beside = _beside(prompt, completion, (cached, written, reasoning), total)
    confirmed = beside is not None
    if beside is None:
        if cached + written > prompt and prompt + cached + written > most_prompt:
            cached = written = 0
        reads = cached > prompt
        beside = reads, written > prompt - (0 if reads else cached), reasoning > completion
    apart = reasoning if beside[2] else 0
    inputs_together, outputs_together = prompt + cached * beside[0] + written * beside[1], completion + apart
    unlisted = total - inputs_together - outputs_together
    if 0 < unlisted <= most_completion - outputs_together and prompt > 0:
        outputs_together += unlisted
    return ClaimedUsage(
        inputs_together, outputs_together, cached, written, reasoning,
        reasoning_beside=apart if confirmed else 0, stated_usd=stated,
    )  # fmt: skip


def _beside(prompt: int, completion: int, parts: tuple[int, int, int], total: int) -> tuple[bool, bool, bool] | None:
    """Return which of (cached, written, reasoning) lie beside prompt and completion so that all add up to `total`.

    None if nothing does. Of several ways the one with the longest completion is returned, because it costs most.
    """
    for reasons, writes, reads in product((True, False), repeat=3):
        cached, written, reasoning = parts
        outside = (reads and cached > 0, writes and written > 0, reasons and reasoning > 0)
        inside = (0 if outside[0] else cached) + (0 if outside[1] else written)
        fits = inside <= prompt and (outside[2] or reasoning <= completion)
        if fits and prompt + completion + sum(n for n, out in zip(parts, outside, strict=True) if out) == total:
            return outside
    return None


def tier_of(usage: Any, body: object) -> str | None:
    """Return the service tier that the reply names, "" for the standard one; None if it names none."""
    for place in (body, _field(body, "usage"), usage):
        if isinstance(name := _field(place, "service_tier"), str) and name:
            tier = tier_named(name)
            return _PAYS_AS.get(tier, tier)
    return None


def _stated_usd(usage: Any) -> float | None:
    for name, unit in _STATED_COSTS.items():
        value = _field(usage, name)
        if isinstance(value, Mapping) or hasattr(value, "total_cost"):
            value = _field(value, "total_cost")
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value) * unit
    return None


def _field(holder: object, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _count(*values: object) -> int:
    """Return the first positive count; 0 without one."""
    return next((value for value in values if is_count(value) and value > 0), 0)
