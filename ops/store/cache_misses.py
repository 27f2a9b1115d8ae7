"""Explain a cache miss by the fields in which the key of a call differs from that of the most similar stored entry.

The store is not scanned. Its index yields the entries with the same messages and those whose prompts begin in a similar
way, and the most similar of these is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ops.core.messages import Message, Sample
from ops.store.entries import cache_material, extract_indexed_parts
from ops.store.responses import ResponseCache

MAX_NEIGHBOURS = 1000
"""The maximum number of entries to compare from each index query: same messages, next in order, previous in order."""
_AROUND = 40
"""Characters that are shown before and after the first difference."""
ABSENT = "(not set)"
"""Stands for the value of a field that one of the two keys does not have."""


class KeyDifference(NamedTuple):
    """A field in which two keys differ: its path, the requested value and the stored value."""

    field: str
    wanted: str
    stored: str
    at: int | None = None
    """The position of the first character that differs, if both values are texts."""


class CacheLookup(NamedTuple):
    """Whether a call is stored, and otherwise how it differs from the most similar entry."""

    stored: bool
    differences: tuple[KeyDifference, ...]
    nearest: str | None
    """The most similar entry's request as canonical JSON; None if no related entry is stored."""


def explain_miss(
    cache: ResponseCache, identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample = 0
) -> CacheLookup:
    """Compare a call, given by the arguments of `cache_key`, with the stored entries.

    The most similar entry is the same question to the same model. If there is none, it is the same worker's entry with
    the longest common prefix of the prompt, and otherwise another model's entry for the same question. A prompt whose
    first characters are different has no related entry.
    """
    material = cache_material(identity, messages, sample)
    call = json.loads(material)
    nearest: tuple[tuple[int, int, int], str, tuple[KeyDifference, ...]] | None = None
    for candidate in dict.fromkeys(cache.backend.find_similar(extract_indexed_parts(material), MAX_NEIGHBOURS)):
        if candidate == material:
            return CacheLookup(True, (), candidate)
        try:
            stored = json.loads(candidate)
        except json.JSONDecodeError:  # the row is damaged, which `verify` reports
            continue
        differences = tuple(_differences(call, stored))
        rank = _distance(call, stored, differences)
        if nearest is None or rank < nearest[0]:
            nearest = rank, candidate, differences
    return CacheLookup(False, nearest[2], nearest[1]) if nearest else CacheLookup(False, (), None)


def _distance(call: Any, stored: Any, differences: Sequence[KeyDifference]) -> tuple[int, int, int]:
    same_messages = call["messages"] == stored["messages"]
    if same_messages and call["worker"].get("model") == stored["worker"].get("model"):
        tier = 0
    elif call["worker"] == stored["worker"]:
        tier = 1
    else:
        tier = 2 if same_messages else 3
    return tier, len(differences), -sum(difference.at or 0 for difference in differences)


def _differences(call: Any, stored: Any) -> list[KeyDifference]:
    requested_leaves, stored_leaves = _flatten(call), _flatten(stored)
    return [
        _difference(field, requested_leaves.get(field, ABSENT), stored_leaves.get(field, ABSENT))
        for field in dict.fromkeys((*requested_leaves, *stored_leaves))
        if requested_leaves.get(field, ABSENT) != stored_leaves.get(field, ABSENT)
    ]


def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaf values of nested JSON by their paths: ``worker.temperature``, ``messages[1].content``,
    ``sample``.

    A list without lists or objects in it is one leaf.
    """
    if isinstance(value, dict):
        parts = [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        parts = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for part, item in parts for name, leaf in _flatten(item, part).items()}


def _difference(field: str, wanted: Any, stored: Any) -> KeyDifference:
    if not (field.endswith("content") and isinstance(wanted, str) and isinstance(stored, str)):
        return KeyDifference(field, _shorten(wanted), _shorten(stored))
    pairs = zip(wanted, stored, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(wanted), len(stored)))
    return KeyDifference(field, _excerpt_around(wanted, at), _excerpt_around(stored, at), at)


def _shorten(value: Any) -> str:
    return value if value is ABSENT else json.dumps(value, ensure_ascii=False)


def _excerpt_around(text: str, at: int) -> str:
    start, end = max(at - _AROUND, 0), at + _AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
