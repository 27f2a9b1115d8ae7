"""Plug-ins: packages whose workers, problems and workflows run in this process. `PLUGINS` alone names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from ops.core.problem import Problem, Split
from ops.core.response import Sample

PLUGINS = {"local": "ops.synthetic.plugin"}
"""Prefix of a model → the module of the plug-in that answers for it."""


class StaticStep(NamedTuple):
    """One step of a workflow that is the same whatever is asked."""

    worker: str
    subtask: str
    sees_all: bool


class Plugin(Protocol):
    """What the module of a plug-in has."""

    NAMES: tuple[str, ...]
    """Its workers: models are `PREFIX/NAME`."""

    def answer(
        self, messages: Sequence[Mapping[str, str]], *, model: str, sample: int | Sample = ..., **settings: Any
    ) -> Any:
        """The response of a worker, in the shape of OpenAI's chat completions."""
        ...

    def benchmarks(self) -> Collection[str]:
        """The benchmarks that it generates problems of."""
        ...

    def problems(self, benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
        """Distinct problems of a benchmark."""
        ...

    def workflows(self) -> Mapping[str, Sequence[StaticStep]]:
        """Name → workflow of its workers that needs no look at the question."""
        ...


@cache
def plugin_of(model: str) -> Plugin | None:
    """The plug-in that answers for a model; None: a provider does."""
    module = PLUGINS.get(model.partition("/")[0])
    return None if module is None else cast("Plugin", import_module(module))


def plugins() -> dict[str, Plugin]:
    """Prefix → plug-in."""
    return {prefix: cast("Plugin", import_module(module)) for prefix, module in PLUGINS.items()}
