"""The usage that a provider claims in its reply, converted to a common way of counting.

Some providers include reasoning tokens in the completion and others list them separately. The same holds for the parts
of a prompt that are read from a cache or written to it. The total that most providers state tells which way is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple, TypeGuard

from ops.config import normalize_tier
from ops.core.usage import TOKEN_PARTS

_USAGE_FIELDS = {
    "cached_prompt_tokens": ("prompt_tokens_details.cached_tokens", "cache_read_input_tokens"),
    "cache_write_tokens": (
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
    ),
    "reasoning_tokens": ("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
}
"""Maps each category of tokens to the fields of a reply's usage in which providers state it, the most reliable
first."""
_STATED_COSTS = {"cost": 1.0, "estimated_cost": 1.0, "cost_in_usd_ticks": 1e-10}
"""Fields with a cost that the provider states (OpenRouter and Perplexity; DeepInfra; xAI), each with its unit in
USD."""
_TIER_ALIASES = {"fast": "priority"}
"""Service tiers that a provider bills under the name of another one."""


class ClaimedUsage(NamedTuple):
    """The usage that the provider says it will bill. `prompt` and `completion` are not checked: they may have any type,
    and are None if not stated."""

    prompt: object
    completion: object
    parts: Mapping[str, int]
    """The number of tokens of each category (`TOKEN_PARTS`), by its name in `Usage`."""
    separate_completion_tokens: int = 0
    """The completion tokens that the provider counts separately from the text, as the stated total confirms."""
    stated_usd: float | None = None


def is_count(value: object) -> TypeGuard[int]:
    """Return whether the value is an integer, and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_claimed_usage(usage: Any, most_prompt: int, most_completion: int) -> ClaimedUsage:
    """Return the usage of a reply, in which prompt and completion include all of their parts.

    If the total that the provider states is the sum of its parts, the total decides which parts are separate from
    prompt and completion. Otherwise a part is taken to be included if it fits, and what the total exceeds the sum of
    all parts by counts as completion. In this case, claims that would make the prompt longer than `most_prompt` tokens,
    or the completion longer than `most_completion` tokens, are not accepted; cached tokens are then billed as ordinary
    input.
    """
    prompt, completion = _read_field(usage, "prompt_tokens"), _read_field(usage, "completion_tokens")
    parts = {
        part.name: _first_count(*(_read_field(usage, path) for path in _USAGE_FIELDS[part.name]))
        for part in TOKEN_PARTS
    }
    stated = _read_stated_usd(usage)
    if not is_count(prompt) or not is_count(completion) or prompt < 0 or completion < 0:
        return ClaimedUsage(prompt, completion, parts, stated_usd=stated)
    wholes, total = (
        {"prompt_tokens": prompt, "completion_tokens": completion},
        _first_count(_read_field(usage, "total_tokens")),
    )
    separate = _find_separate_parts(wholes, parts, total)
    is_confirmed = separate is not None
    if separate is None:
        prompt_parts = [part.name for part in TOKEN_PARTS if part.whole == "prompt_tokens"]
        if prompt < (listed := sum(parts[name] for name in prompt_parts)) and prompt + listed > most_prompt:
            parts |= dict.fromkeys(prompt_parts, 0)
        separate, remaining = set(), dict(wholes)
        for part in TOKEN_PARTS:
            if parts[part.name] > remaining[part.whole]:
                separate.add(part.name)
            else:
                remaining[part.whole] -= parts[part.name]
    for part in TOKEN_PARTS:
        wholes[part.whole] += parts[part.name] if part.name in separate else 0
    separate_completion = wholes["completion_tokens"] - completion
    unlisted = total - sum(wholes.values())
    if 0 < unlisted <= most_completion - wholes["completion_tokens"] and prompt > 0:
        wholes["completion_tokens"] += unlisted
    return ClaimedUsage(
        wholes["prompt_tokens"], wholes["completion_tokens"], parts,
        separate_completion_tokens=separate_completion if is_confirmed else 0, stated_usd=stated,
    )  # fmt: skip


def _find_separate_parts(wholes: Mapping[str, int], parts: Mapping[str, int], total: int) -> set[str] | None:
    """Return the names of the parts that are separate from prompt and completion, so that all of them add up to
    `total`.

    Returns None if there is no such set. Of several, the one with the longest completion is returned, because it costs
    most.
    """
    names = [part.name for part in reversed(TOKEN_PARTS) if parts[part.name]]
    for choice in product((True, False), repeat=len(names)):
        separate = {name for name, is_separate in zip(names, choice, strict=True) if is_separate}
        included = dict.fromkeys(wholes, 0)
        for part in TOKEN_PARTS:
            included[part.whole] += 0 if part.name in separate else parts[part.name]
        fits = all(included[whole] <= tokens for whole, tokens in wholes.items())
        if fits and sum(wholes.values()) + sum(parts[name] for name in separate) == total:
            return separate
    return None


def read_service_tier(usage: Any, body: object) -> str | None:
    """Return the service tier that the reply names, "" for the standard one; None if it names none."""
    for source in (body, _read_field(body, "usage"), usage):
        if isinstance(name := _read_field(source, "service_tier"), str) and name:
            tier = normalize_tier(name)
            return _TIER_ALIASES.get(tier, tier)
    return None


def _read_stated_usd(usage: Any) -> float | None:
    for name, unit in _STATED_COSTS.items():
        value = _read_field(usage, name)
        if isinstance(value, Mapping) or hasattr(value, "total_cost"):
            value = _read_field(value, "total_cost")
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value) * unit
    return None


def _read_field(holder: object, path: str) -> Any:
    """Return the value at a path such as `prompt_tokens_details.cached_tokens`; None if there is none."""
    for name in path.split("."):
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def _first_count(*values: object) -> int:
    """Return the first positive count; 0 if there is none."""
    return next((value for value in values if is_count(value) and value > 0), 0)
