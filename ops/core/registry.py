"""Registries of what recipes and pools may name, one file each; among them the providers that LiteLLM does not know."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from ops.core.errors import find_similar_name
from ops.core.messages import Sample
from ops.core.problem import Problem, Split


class NamedEntry(Protocol):
    """An object of a registry; its name is that of its file."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedEntry)


def entry_names(package: str) -> tuple[str, ...]:
    """Return the modules of a package below `ops` by file name, sorted, without importing them.

    A name that begins with an underscore is not an entry: such a file may contain shared code.
    """
    folder = Path(__file__).parents[1].joinpath(*package.split(".")[1:])
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if module.name[0] != "_"))


def check_names(kind: str, package: str, given: Iterable[str]) -> None:
    """Raise `ValueError` if `given` has a name without a file in the package; the message says which name was probably
    meant, or lists the known ones."""
    known = entry_names(package)
    if unknown := sorted(set(given) - set(known)):
        similar = find_similar_name(unknown[0], known) if len(unknown) == 1 else None
        remedy = f". Did you mean {similar}?" if similar else f"; known: {', '.join(known)}"
        raise ValueError(f"unknown {kind} {', '.join(unknown)}{remedy}")


class Registry(Mapping[str, T]):
    """Name → the one object of type `entry_type` in the module of that name, imported at first use.

    Iterates by `sort_key`, and by name for equal ones. Raises `TypeError` for a file that does not contain exactly one
    object of its own name.
    """

    def __init__(self, package: str, entry_type: type[T], sort_key: Callable[[T], Any] = lambda entry: 0) -> None:
        self.package, self._holds, self._order = package, entry_type, sort_key

    @cached_property
    def entries(self) -> dict[str, T]:
        """Return all entries in order."""
        entries = [self._entry(name) for name in entry_names(self.package)]
        return {entry.name: entry for entry in sorted(entries, key=lambda entry: (self._order(entry), entry.name))}

    def __getitem__(self, name: str) -> T:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _entry(self, name: str) -> T:
        module = import_module(f"{self.package}.{name}")
        held = [value for value in vars(module).values() if isinstance(value, self._holds) and value.name == name]
        if len(held) != 1:
            kind = self._holds.__name__
            raise TypeError(f"{module.__file__} holds {len(held)} objects {kind} named {name!r}, not one")
        return held[0]


def hub_dataset(benchmark: str) -> str:
    """Return the id of a benchmark's dataset on the hub, from its file in `ops/benchmarks/catalogue`."""
    return str(import_module(f"ops.benchmarks.catalogue.{benchmark}").BENCHMARK.hub.id)


class StaticStep(NamedTuple):
    """One step of a fixed workflow."""

    worker: str
    subtask: str
    sees_all: bool


class Plugin(Protocol):
    """The contents of a plug-in's module."""

    NAMES: tuple[str, ...]
    """The prefix of the plug-in's worker models, `PREFIX/NAME`."""

    def answer(
        self, messages: Sequence[Mapping[str, str]], *, model: str, sample: int | Sample = ..., **settings: Any
    ) -> Any:
        """Return the response of a worker, in the shape of OpenAI's chat completions."""
        ...

    def benchmarks(self) -> Collection[str]:
        """The benchmarks for which it generates problems."""
        ...

    def problems(self, benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
        """Return distinct problems of a benchmark."""
        ...

    def workflows(self) -> Mapping[str, Sequence[StaticStep]]:
        """Return name → workflow of the plug-in's workers that does not depend on the question."""
        ...


@dataclass(frozen=True)
class Provider:
    """A provider that LiteLLM does not know; its models are named `NAME/…`. It has either a plug-in or a handler."""

    name: str
    plugin: str = ""
    """The module of the plug-in whose workers run in this process (`Plugin`)."""
    handler: Callable[[], Any] | None = None
    """Returns LiteLLM's custom provider (docs.litellm.ai/docs/providers/custom_llm_server), for example its class."""


PROVIDERS = Registry("ops.providers", Provider)


def is_plugin(model: str) -> bool:
    """Return whether a plug-in answers for the model, rather than a provider over the network."""
    provider = PROVIDERS.get(model.partition("/")[0])
    return provider is not None and bool(provider.plugin)


@cache
def find_plugin(model: str) -> Plugin | None:
    """Return the plug-in for a model; None: a provider serves it."""
    return _load_plugin(PROVIDERS[model.partition("/")[0]]) if is_plugin(model) else None


def load_plugins() -> dict[str, Plugin]:
    """Return prefix → plug-in."""
    return {name: _load_plugin(provider) for name, provider in PROVIDERS.items() if provider.plugin}


def _load_plugin(provider: Provider) -> Plugin:
    return cast("Plugin", import_module(provider.plugin))
