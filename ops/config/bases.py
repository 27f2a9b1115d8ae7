"""A recipe's file over the file that it is based on: what differs is said, and the rest is taken from there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ops.config.base import NAME
from ops.core.errors import ConfigError

BASE = "base"
"""The field that names the other recipe."""


class Layer(NamedTuple):
    """What one file says."""

    file: Path
    values: dict[str, Any]


def base_of(layer: Layer, above: list[Layer]) -> Path | None:
    """The file that `layer` is based on, taken out of its values; None where it is based on none.

    `above`: the layers that lead here. Raises `ConfigError` for a base that is no recipe, or leads in a circle.
    """
    name = layer.values.pop(BASE, None)
    if name is None:
        return None
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or not layer.file.with_name(f"{name}.yaml").exists():
        known = ", ".join(sorted(path.stem for path in layer.file.parent.glob("*.yaml")))
        raise ConfigError(layer.file, BASE, f"names no recipe ({name!r:.60})", f"Recipes there: {known}")
    file = layer.file.with_name(f"{name}.yaml")
    chain = [*(each.file for each in above), layer.file]
    if file in chain:
        circle = " → ".join(path.stem for path in (*chain[chain.index(file) :], file))
        raise ConfigError(layer.file, BASE, f"leads in a circle: {circle}", "Base one of them on another, or on none")
    return file


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` with what `above` says instead: mappings are merged, all else is replaced, and null takes away.

    A mapping of another `kind` has other fields, so it replaces the one below.
    """
    values = dict(below)
    for name, value in above.items():
        under = below.get(name)
        if value is None:
            values.pop(name, None)
        elif isinstance(value, dict) and isinstance(under, dict) and _alike(under, value):
            values[name] = merged(under, value)
        else:
            values[name] = value
    return values


def _alike(below: dict[str, Any], above: dict[str, Any]) -> bool:
    return "kind" not in above or above["kind"] == below.get("kind")


def said_in(layers: list[Layer], place: tuple[str | int, ...]) -> Path:
    """The file of `layers`, topmost first, that says what is at `place`, or else the most of the way there."""
    return max(layers, key=lambda layer: _depth(layer.values, place)).file


def _depth(values: Any, place: tuple[str | int, ...]) -> int:
    for depth, name in enumerate(place):
        if not isinstance(values, dict) or name not in values:
            return depth
        values = values[name]
    return len(place)
