"""Registries of the parts that recipes and pools refer to by name. Each part is one module of a package.

The last section holds the providers that LiteLLM does not know.
"""

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
    """An entry of a registry. Its name is that of its module."""

    @property
    def name(self) -> str:
        """The entry's name."""
        ...


T = TypeVar("T", bound=NamedEntry)


def entry_names(package: str) -> tuple[str, ...]:
    """Return the sorted names of the modules in a package of `ops`, without importing them.

    A module whose name begins with an underscore holds shared code and is not an entry.
    """
    folder = Path(__file__).parents[1].joinpath(*package.split(".")[1:])
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if module.name[0] != "_"))


def check_names(kind: str, package: str, given: Iterable[str]) -> None:
    """Raise `ValueError` if `given` contains names that are not modules of the package. The message lists these, and
    says which known name was probably meant or lists the known names."""
    known = entry_names(package)
    if unknown := sorted(set(given) - set(known)):
        similar = find_similar_name(unknown[0], known) if len(unknown) == 1 else None
        remedy = f". Did you mean {similar}?" if similar else f"; known: {', '.join(known)}"
        raise ValueError(f"unknown {kind} {', '.join(unknown)}{remedy}")


class Registry(Mapping[str, T]):
    """A mapping from names to the objects of type `entry_type` in the modules of a package, which are imported at first
    use.

    The entries are sorted by `sort_key` and then by name. Raises `TypeError` for a module that does not contain exactly
    one object with the module's own name.
    """

    def __init__(self, package: str, entry_type: type[T], sort_key: Callable[[T], Any] = lambda entry: 0) -> None:
        self.package, self._holds, self._order = package, entry_type, sort_key

    @cached_property
    def entries(self) -> dict[str, T]:
        """All entries in sorted order."""
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
        matching = [value for value in vars(module).values() if isinstance(value, self._holds) and value.name == name]
        if len(matching) != 1:
            kind = self._holds.__name__
            raise TypeError(f"{module.__file__} holds {len(matching)} objects {kind} named {name!r}, not one")
        return matching[0]


def hub_dataset(benchmark: str) -> str:
    """Return the Hugging Face id of a benchmark's dataset, as stated in `ops/benchmarks/catalogue`."""
    return str(import_module(f"ops.benchmarks.catalogue.{benchmark}").BENCHMARK.hub.id)


class StaticStep(NamedTuple):
    """One step of a fixed workflow: the worker's name, its subtask, and whether it sees the answers of all earlier
    steps."""

    worker: str
    subtask: str
    sees_all: bool


class Plugin(Protocol):
    """What a plug-in's module must define to provide workers, problems and workflows."""

    NAMES: tuple[str, ...]
    """Prefixes of the model names of the plug-in's workers, as in `PREFIX/NAME`."""

    def answer(
        self, messages: Sequence[Mapping[str, str]], *, model: str, sample: int | Sample = ..., **settings: Any
    ) -> Any:
        """Return a worker's response in the shape of OpenAI's chat completions."""
        ...

    def benchmarks(self) -> Collection[str]:
        """Return the names of the benchmarks for which the plug-in generates problems."""
        ...

    def problems(self, benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
        """Return `count` distinct problems of one split of a benchmark, generated from `seed`."""
        ...

    def workflows(self) -> Mapping[str, Sequence[StaticStep]]:
        """Return workflows of the plug-in's workers by name. They do not depend on the question."""
        ...


@dataclass(frozen=True)
class Provider:
    """A provider that LiteLLM does not know. Its models are named `NAME/…`. It has either a plug-in or a handler."""

    name: str
    plugin: str = ""
    """The name of the module of the plug-in (`Plugin`), whose workers run in this process."""
    handler: Callable[[], Any] | None = None
    """Returns LiteLLM's custom provider (docs.litellm.ai/docs/providers/custom_llm_server), for example its class."""


PROVIDERS = Registry("ops.providers", Provider)


def is_plugin(model: str) -> bool:
    """Return whether a plug-in answers for this model, rather than a provider over the network."""
    provider = PROVIDERS.get(model.partition("/")[0])
    return provider is not None and bool(provider.plugin)


@cache
def find_plugin(model: str) -> Plugin | None:
    """Return the plug-in that answers for this model, or None if a provider does."""
    return _load_plugin(PROVIDERS[model.partition("/")[0]]) if is_plugin(model) else None


def load_plugins() -> dict[str, Plugin]:
    """Import all plug-ins and return them by their providers' names."""
    return {name: _load_plugin(provider) for name, provider in PROVIDERS.items() if provider.plugin}


def _load_plugin(provider: Provider) -> Plugin:
    return cast("Plugin", import_module(provider.plugin))
