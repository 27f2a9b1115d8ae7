"""Values that are safe in the synthetic environment alone: a recipe for real workers has to state them itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ops.config.bases import Layer
from ops.core.errors import ConfigError

SYNTHETIC = "local/"
"""What the model name of an embedded worker begins with."""


class Unsafe(NamedTuple):
    """A value that a recipe takes from its base, and what to write instead."""

    field: str
    value: str
    remedy: str


def check_inherited(layers: Sequence[Layer], values: dict[str, Any], synthetic: Callable[[str], bool]) -> None:
    """Raise `ConfigError` for the first value of `values` that is safe in the synthetic environment alone and that a
    recipe with real workers takes from a synthetic base.

    `layers`: the recipe's file first, then its bases; `values`: all of them merged. `synthetic` says whether every
    worker of a pool is embedded. A value that a layer with real workers states may be inherited from there.
    """
    for unsafe, place in _unsafe(values):
        stated = _stating(layers, place)
        if stated and not synthetic(_pool(layers)) and synthetic(_pool(layers[stated:])):
            problem = (
                f"is {unsafe.value}, taken from {layers[stated].file.name}: that is safe with embedded workers and "
                f"generated problems alone, and pool {_pool(layers)!r} has other workers"
            )
            raise ConfigError(layers[0].file, unsafe.field, problem, unsafe.remedy)


def _unsafe(values: dict[str, Any]) -> Iterator[tuple[Unsafe, tuple[str, ...]]]:
    keep = "to keep it, state it in this recipe"
    for name, source in _mapping(values, "benchmarks").items():
        if isinstance(source, dict) and source.get("source", "embedded") == "embedded":
            remedy = f"Name real rows there (source: hub, or file), leave the benchmark out (null), or, {keep}"
            yield Unsafe(f"benchmarks.{name}.source", "embedded", remedy), ("benchmarks", name, "source")
    if _mapping(values, "curation").get("near_duplicate_jaccard") == 1:
        remedy = f"Write 0.8, which removes near duplicates of evaluation questions; or, {keep}"
        yield Unsafe("curation.near_duplicate_jaccard", "1.0", remedy), ("curation", "near_duplicate_jaccard")
    if _mapping(values, "grading").get("isolation") == "resource_limits":
        remedy = f"Write bubblewrap, which keeps programs of language models away from this machine; or, {keep}"
        yield Unsafe("grading.isolation", "resource_limits", remedy), ("grading", "isolation")


def _mapping(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _stating(layers: Sequence[Layer], place: tuple[str, ...]) -> int:
    """The topmost layer that states what is at `place`; of a default, the lowest layer that has the field around it."""
    if found := [number for number, layer in enumerate(layers) if _states(layer.values, place)]:
        return found[0]
    return max((number for number, layer in enumerate(layers) if _states(layer.values, place[:-1])), default=0)


def _states(values: Any, place: tuple[str, ...]) -> bool:
    for name in place:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _pool(layers: Sequence[Layer]) -> str:
    return next((str(layer.values["pool"]) for layer in layers if "pool" in layer.values), "")
