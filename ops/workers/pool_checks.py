"""Check a pool before the first call: keys, prices, and settings that LiteLLM would drop or replace without an
error."""

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
"""Maps each setting to the words that the names of its parameters contain, whatever the provider."""
_LEVEL = ("thinking", "level")
"""The words in Gemini's name for the reasoning effort."""


def check_pool(pool: Pool, file: Path | str) -> None:
    """Raise the `ConfigError` of the first worker with unusable settings, before anything is spent."""
    for worker in pool.workers:
        request_settings(worker, file)
        find_price(worker, file)
        for error in find_unsent_settings(worker, file):
            raise error


def check_pools(setup: Setup) -> None:
    """Check the recipe's pool and the pools of its evaluation. Raises `ConfigError`."""
    for name, pool in setup.all_pools.items():
        check_pool(pool, pool_file(setup.workspace.config, name))


def find_unsent_settings(worker: Worker, file: Path | str) -> list[ConfigError]:
    """Return an error for each setting of a remote worker that LiteLLM would drop or change.

    LiteLLM's own translation of the parameters is used, offline and without keys. For a worker whose model names no
    provider, this is the only error.
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
    configured = {name: getattr(worker, name) for name in _PARAMETER_NAMES if names.get(name, name) in settings}
    arguments = {name: settings[names.get(name, name)] for name in configured}

    def translate(selection: Mapping[str, Any]) -> dict[str, Any]:
        keywords = {names.get(name, name): value for name, value in selection.items()}
        translated: dict[str, Any] = library.get_optional_params(model=model, custom_llm_provider=provider, **keywords)
        return translated

    errors = []
    if worker.thinking_budget == 0 and "thinking" not in settings and _is_always_reasoning(worker.model, model):
        errors.append(_setting_error(worker, file, "thinking_budget", "0 is not sent, and this model always thinks"))
    try:
        translated_settings = translate(arguments)
    except library.exceptions.BadRequestError as error:
        return [*errors, *_find_refused_settings(worker, file, arguments, translate, error)]
    for name, value in configured.items():
        sent_values = list(_find_parameters(translated_settings, name))
        if value in sent_values:
            continue
        if sent_values:
            errors.append(_setting_error(worker, file, name, f"LiteLLM sends {sent_values[0]!r} in place of {value!r}"))
        elif name == "thinking_budget" or translated_settings == translate(
            {k: v for k, v in arguments.items() if k != name}
        ):
            errors.append(_setting_error(worker, file, name, f"LiteLLM silently drops {value!r} for this model"))
    return errors


def _find_refused_settings(
    worker: Worker, file: Path | str, arguments: Mapping[str, Any], translate: Any, refusal: Exception
) -> Iterator[ConfigError]:
    """Yield an error for each setting that LiteLLM refuses individually or, if there is none, for all of them
    together."""
    error_type, rejected_individually = type(refusal), []
    for name, value in arguments.items():
        try:
            translate({name: value})
        except error_type:
            rejected_individually.append(name)
    for name in rejected_individually or list(arguments):
        yield _setting_error(worker, file, name, f"LiteLLM refuses {getattr(worker, name)!r} for this model")
        if not rejected_individually:
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


def _find_parameters(parameters: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the values of all parameters that carry a setting, at any depth."""
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _find_parameters(value, name)
            continue
        lowered_key = key.lower()
        if all(part in lowered_key for part in _PARAMETER_NAMES[name]) or (
            name == "reasoning_effort" and all(part in lowered_key for part in _LEVEL)
        ):
            yield value
