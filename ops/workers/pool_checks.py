"""Check a pool before the first call: keys, prices, and settings that LiteLLM would silently drop or replace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ops.config import Pool, Setup, Worker, pool_file
from ops.core.errors import ConfigError
from ops.workers.providers import find_price, import_litellm, is_remote, request_settings

_PARAMETER_NAMES = {
    "temperature": ("temperature",),
    "top_p": ("top", "p"),
    "top_k": ("top", "k"),
    "presence_penalty": ("presence", "penalty"),
    "max_tokens": ("max", "tokens"),
    "thinking_budget": ("budget",),
    "reasoning_effort": ("effort",),
}
"""Setting → part of the parameter names that carry it at any provider."""
_LEVEL = ("thinking", "level")
"""Gemini's name for effort."""


def check_pool(pool: Pool, file: Path | str) -> None:
    """Raise `ConfigError` for the first worker with unusable settings, before anything is spent."""
    for worker in pool.workers:
        request_settings(worker, file)
        find_price(worker, file)
        for error in find_unsent_settings(worker, file):
            raise error


def check_pools(setup: Setup) -> None:
    """Apply `check_pool` to the recipe's pool and to those of its evaluation. Raises `ConfigError`."""
    for name, pool in setup.all_pools.items():
        check_pool(pool, pool_file(setup.workspace.config, name))


def find_unsent_settings(worker: Worker, file: Path | str) -> list[ConfigError]:
    """Return one error for each setting of a remote worker that would be dropped or changed.

    Uses LiteLLM's own translation of the parameters, offline and without keys. A worker whose model names no provider
    has only that error.
    """
    if not is_remote(worker):
        return []
    try:
        settings = request_settings(worker.model_copy(update={"api_key_env": None}), file)
    except ConfigError as error:
        return [error]
    library = import_litellm()
    if any(worker.model.startswith(item["provider"] + "/") for item in library.custom_provider_map):
        return []  # a custom provider accepts every setting
    model, provider, *_ = library.get_llm_provider(worker.model)
    names = {"thinking_budget": "thinking"}
    wanted = {name: getattr(worker, name) for name in _PARAMETER_NAMES if names.get(name, name) in settings}
    arguments = {name: settings[names.get(name, name)] for name in wanted}

    def sent(chosen: Mapping[str, Any]) -> dict[str, Any]:
        keywords = {names.get(name, name): value for name, value in chosen.items()}
        translated: dict[str, Any] = library.get_optional_params(
            model=model, custom_llm_provider=provider, **keywords
        )
        return translated

    errors = []
    if worker.thinking_budget == 0 and "thinking" not in settings and _is_always_reasoning(worker.model, model):
        errors.append(_setting_error(worker, file, "thinking_budget", "0 is not sent, and this model always thinks"))
    try:
        whole = sent(arguments)
    except library.exceptions.BadRequestError as error:
        return [*errors, *_find_refused_settings(worker, file, arguments, sent, error)]
    for name, value in wanted.items():
        found = list(_find_parameters(whole, name))
        if value in found:
            continue
        if found:
            errors.append(_setting_error(worker, file, name, f"LiteLLM sends {found[0]!r} in place of {value!r}"))
        elif name == "thinking_budget" or whole == sent({k: v for k, v in arguments.items() if k != name}):
            errors.append(_setting_error(worker, file, name, f"LiteLLM silently drops {value!r} for this model"))
    return errors


def _find_refused_settings(
    worker: Worker, file: Path | str, arguments: Mapping[str, Any], sent: Any, refusal: Exception
) -> Iterator[ConfigError]:
    """Return the settings that LiteLLM refuses: those that it refuses individually, else all together."""
    kind, alone = type(refusal), []
    for name, value in arguments.items():
        try:
            sent({name: value})
        except kind:
            alone.append(name)
    for name in alone or list(arguments):
        yield _setting_error(worker, file, name, f"LiteLLM refuses {getattr(worker, name)!r} for this model")
        if not alone:
            return


def _setting_error(worker: Worker, file: Path | str, name: str, problem: str) -> ConfigError:
    remedy = "Remove it" if name != "temperature" else "Write `temperature: null`"
    return ConfigError(
        file, f"workers.{worker.name}.{name}", f"{problem} ({worker.model})",
        f"{remedy}, or write a value that the model takes",
    )  # fmt: skip


def _is_always_reasoning(*models: str) -> bool:
    table = import_litellm().model_cost
    return any(table.get(model, {}).get("thinking_always_on") for model in models)


def _find_parameters(sent: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Return the values of the parameters that carry a setting, at any depth."""
    for key, value in sent.items():
        if isinstance(value, Mapping):
            yield from _find_parameters(value, name)
            continue
        plain = key.lower()
        if all(part in plain for part in _PARAMETER_NAMES[name]) or (
            name == "reasoning_effort" and all(part in plain for part in _LEVEL)
        ):
            yield value
