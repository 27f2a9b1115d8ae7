"""Convert a model's price in LiteLLM's table, in USD per token, to a `Price`, in USD per million tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ops.config import Price, RatesOfTier
from ops.core.usage import TOKEN_PARTS

_KEYS = {"input": "input_cost_per_token", "output": "output_cost_per_token"} | {
    part.rate: part.litellm_key for part in TOKEN_PARTS
}
"""Maps each rate to its key in LiteLLM's table. The key of a tier has a suffix: `_above_200k_tokens`, `_priority`, or
both in this order."""
_TIER_KEY = re.compile(rf"({'|'.join(_KEYS.values())})(?:_above_(\d+)(k?)_tokens)?(?:_([a-z]+))?")
_BATCH_SUFFIX = "batches"
"""The suffix of prices for batch processing, which Podium does not use."""
_AT_THE_THRESHOLD = ("xai",)
"""Providers whose higher tier includes the threshold. For the others it begins above the threshold."""


def read_price(entry: Mapping[str, Any], provider: str) -> Price | None:
    """Return the price in the entry of a model; None if the entry has none.

    Discounts by the time of day and surcharges by region are ignored.
    """
    if entry.get("tiered_pricing"):
        first, *longer = [_read_rates(part, entry) for part in entry["tiered_pricing"]]
        limits = [int(part["range"][0]) for part in entry["tiered_pricing"][1:]]
        tiers = [RatesOfTier(above_prompt_tokens=limit, **rates) for limit, rates in zip(limits, longer, strict=True)]
        return Price(**first, tiers=tuple(tiers))
    if entry.get(_KEYS["input"]) is None or entry.get(_KEYS["output"]) is None:
        return None
    matches = [match for name, value in entry.items() if value is not None and (match := _TIER_KEY.fullmatch(name))]
    services = dict.fromkeys(match[4] or "" for match in matches if match[4] != _BATCH_SUFFIX)
    lengths = sorted({(int(match[2]) * (1000 if match[3] else 1), f"_above_{match[2]}{match[3]}_tokens")
                      for match in matches if match[2]})  # fmt: skip
    tiers = []
    for service in services:
        rates = _read_tier(entry, {}, "", service)
        if service:
            tiers.append(RatesOfTier(service_tier=service, **rates))
        for threshold, suffix in lengths:
            rates = _read_tier(entry, rates, suffix, service)
            limit = threshold - 1 if provider in _AT_THE_THRESHOLD else threshold
            tiers.append(RatesOfTier(above_prompt_tokens=limit, service_tier=service or None, **rates))
    return Price(**_read_tier(entry, {}, "", ""), tiers=tuple(tiers))


def _read_tier(entry: Mapping[str, Any], shorter: Mapping[str, Any], length: str, service: str) -> dict[str, Any]:
    """Return the rates of one tier. `shorter` are the rates for shorter prompts at the same service tier.

    If the table does not state a rate for the tier, it is the higher one of the standard tier's rate for this length
    and the service tier's rate for a shorter prompt.
    """
    rates: dict[str, Any] = {}
    for name, key in _KEYS.items():
        stated = entry.get(f"{key}{length}_{service}" if service else f"{key}{length}")
        if stated is not None:
            rates[name] = float(stated) * 1e6
            continue
        standard = entry.get(f"{key}{length}")
        candidates = (None if standard is None else float(standard) * 1e6, shorter.get(name))
        rates[name] = max((rate for rate in candidates if rate is not None), default=None)
    own_output, own_reasoning = (entry.get(f"{_KEYS[name]}_{service}") for name in ("output", "reasoning"))
    if service and own_output is not None and own_reasoning is None:
        rates["reasoning"] = None  # a service tier with its own rate for output bills reasoning at that rate
    return _drop_unknown_rates(rates)


def _read_rates(part: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rates of one entry of `tiered_pricing`."""
    stated = {name: part.get(key) for name, key in _KEYS.items()}
    stated["output"] = entry.get(_KEYS["output"], 0.0) if stated["output"] is None else stated["output"]
    return _drop_unknown_rates({name: None if rate is None else float(rate) * 1e6 for name, rate in stated.items()})


def _drop_unknown_rates(rates: dict[str, Any]) -> dict[str, Any]:
    return rates | {part.rate: rates[part.rate] or None for part in TOKEN_PARTS if part.zero_means_unknown}
