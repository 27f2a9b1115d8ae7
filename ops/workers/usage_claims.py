"""The usage that a provider claims in its reply, in one way of counting.

Providers count in several ways. Some list reasoning inside the completion and others beside it, and the same holds for
the parts of a prompt that are read from a cache or written to it. The total that most of them state tells which it is.
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
"""Part of the tokens → the fields of a reply's usage in which providers state it, the most reliable first."""
_STATED_COSTS = {"cost": 1.0, "estimated_cost": 1.0, "cost_in_usd_ticks": 1e-10}
"""Fields with a cost that the provider states (OpenRouter, Perplexity; DeepInfra; xAI), each with its unit in USD."""
_TIER_ALIASES = {"fast": "priority"}
"""Service tiers that a provider bills under the name of another."""


class ClaimedUsage(NamedTuple):
    """What the provider says it will bill. `prompt` and `completion` are unchecked: any type, None if not stated."""

    prompt: object
    completion: object
    parts: Mapping[str, int]
    """The tokens of each part of the prompt or of the completion (`TOKEN_PARTS`), by its name in `Usage`."""
    separate_completion_tokens: int = 0
    """The part of the completion that, as the stated total confirms, the provider counts beside the text."""
    stated_usd: float | None = None


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def read_claimed_usage(usage: Any, most_prompt: int, most_completion: int) -> ClaimedUsage:
    """Return the usage of a reply, with every part of the prompt and of the completion inside it.

    If the total that the provider states is the sum of its parts, it decides which parts lie beside prompt and
    completion. Otherwise a part lies inside if it fits, and what the total has beyond all parts counts as completion.
    What would make the prompt longer than `most_prompt`, or the completion longer than `most_completion`, is not
    believed in the second case: cached tokens are then billed as input.
    """
    prompt, completion = _read_field(usage, "prompt_tokens"), _read_field(usage, "completion_tokens")
    parts = {
        part.name: _first_count(*(_read_field(usage, place) for place in _USAGE_FIELDS[part.name]))
        for part in TOKEN_PARTS
    }
    stated = _read_stated_usd(usage)
    if not is_count(prompt) or not is_count(completion) or prompt < 0 or completion < 0:
        return ClaimedUsage(prompt, completion, parts, stated_usd=stated)
    wholes, total = (
        {"prompt_tokens": prompt, "completion_tokens": completion},
        _first_count(_read_field(usage, "total_tokens")),
    )
    beside = _find_separate_parts(wholes, parts, total)
    confirmed = beside is not None
    if beside is None:
        of_prompt = [part.name for part in TOKEN_PARTS if part.whole == "prompt_tokens"]
        if prompt < (counted := sum(parts[name] for name in of_prompt)) and prompt + counted > most_prompt:
            parts |= dict.fromkeys(of_prompt, 0)
        beside, room = set(), dict(wholes)
        for part in TOKEN_PARTS:
            if parts[part.name] > room[part.whole]:
                beside.add(part.name)
            else:
                room[part.whole] -= parts[part.name]
    for part in TOKEN_PARTS:
        wholes[part.whole] += parts[part.name] if part.name in beside else 0
    apart = wholes["completion_tokens"] - completion
    unlisted = total - sum(wholes.values())
    if 0 < unlisted <= most_completion - wholes["completion_tokens"] and prompt > 0:
        wholes["completion_tokens"] += unlisted
    return ClaimedUsage(
        wholes["prompt_tokens"], wholes["completion_tokens"], parts,
        separate_completion_tokens=apart if confirmed else 0, stated_usd=stated,
    )  # fmt: skip


def _find_separate_parts(wholes: Mapping[str, int], parts: Mapping[str, int], total: int) -> set[str] | None:
    """Return the names of the parts that lie beside prompt and completion so that all add up to `total`.

    None if nothing does. Of several ways the one with the longest completion is returned, because it costs most.
    """
    names = [part.name for part in reversed(TOKEN_PARTS) if parts[part.name]]
    for choice in product((True, False), repeat=len(names)):
        beside = {name for name, is_beside in zip(names, choice, strict=True) if is_beside}
        inside = dict.fromkeys(wholes, 0)
        for part in TOKEN_PARTS:
            inside[part.whole] += 0 if part.name in beside else parts[part.name]
        has_room = all(inside[whole] <= tokens for whole, tokens in wholes.items())
        if has_room and sum(wholes.values()) + sum(parts[name] for name in beside) == total:
            return beside
    return None


def read_service_tier(usage: Any, body: object) -> str | None:
    """Return the service tier that the reply names, "" for the standard one; None if it names none."""
    for place in (body, _read_field(body, "usage"), usage):
        if isinstance(name := _read_field(place, "service_tier"), str) and name:
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


def _read_field(holder: object, place: str) -> Any:
    """Return the field at a place such as `prompt_tokens_details.cached_tokens`; None where there is none."""
    for name in place.split("."):
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def _first_count(*values: object) -> int:
    """Return the first positive count; 0 without one."""
    return next((value for value in values if is_count(value) and value > 0), 0)
