"""Access to LiteLLM: an import without output, custom providers, request parameters and prices."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ops.config import Price, Worker
from ops.config.base import key_problem
from ops.core.errors import ConfigError
from ops.core.messages import NO_PARAMETERS, Message, Parameters
from ops.core.registry import PROVIDERS, find_plugin, is_plugin
from ops.workers.price_table import read_price

_CHATTY_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "httpcore", "aiohttp")
"""Loggers that write prompts, headers or URLs with keys at the levels DEBUG and INFO."""
_NESTS_EXTRA_BODY = re.compile(r"anthropic/|bedrock(_converse)?/|vertex_ai/.*claude")
"""Models for which LiteLLM 1.106 sends `extra_body` as one field of that name, instead of the fields that it
contains."""
_NAMES: dict[str, dict[str, str]] = {
    "api_version": {"azure": "api_version", "azure_ai": "api_version"},
    "region": {"bedrock": "aws_region_name", "vertex_ai": "vertex_location"},
    "project": {"vertex_ai": "vertex_project"},
    "organization": {"openai": "organization"},
}
"""For each setting, maps the providers that accept it to LiteLLM's name of it. Other providers would ignore the
setting."""
_TOKENS_PER_MESSAGE = 16
"""An upper bound of the number of tokens that a chat template adds to a message."""


@cache
def import_litellm() -> Any:
    """Return the module litellm, imported at first use with its local price table and without telemetry, output or
    logs."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise the import downloads prices
    module: Any = importlib.import_module("litellm")
    module.telemetry = False
    module.suppress_debug_info = True
    for name in _CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    module.custom_provider_map = [
        {"provider": name, "custom_handler": provider.handler()}
        for name, provider in PROVIDERS.items()
        if provider.handler is not None
    ]
    from ops.workers.litellm_private import make_body_callback  # it imports this module

    module.input_callback = [*module.input_callback, make_body_callback()]
    return module


@cache
def provider_error() -> type[Exception]:
    """Return the base class of LiteLLM's errors for failed calls, which comes from the OpenAI library."""
    error: type[Exception] = importlib.import_module("openai").OpenAIError
    return error


def request_settings(worker: Worker, file: Path | str) -> dict[str, Any]:
    """Return the keyword arguments of every LiteLLM call to this worker, without the messages.

    Raises `ConfigError` if the key's environment variable holds no key, the model names no provider, or a setting would
    not reach the provider.
    """
    provider = _find_provider(worker, file)
    if worker.extra_body and _NESTS_EXTRA_BODY.match(worker.model):
        raise ConfigError(
            file, f"workers.{worker.name}.extra_body", f"does not reach {provider}: LiteLLM sends it as one field "
            "named extra_body", "Remove it; thinking_budget and the sampling settings do reach it",
        )  # fmt: skip
    settings: dict[str, Any] = {"model": worker.model, "max_tokens": worker.max_tokens}
    if is_remote(worker):  # LiteLLM makes no retries, because the client's own are counted and budgeted
        settings |= {"timeout": _timeouts(worker), "max_retries": 0}
    optional = {
        "api_base": worker.api_base,
        "temperature": worker.temperature,
        "top_p": worker.top_p,
        "top_k": worker.top_k,
        "presence_penalty": worker.presence_penalty,
        "reasoning_effort": worker.reasoning_effort,
        "extra_body": worker.extra_body or None,
        "response_format": worker.response_format,
        "extra_headers": worker.extra_headers,
        "api_key": _read_key(worker, provider, file),
    }
    settings |= {name: value for name, value in optional.items() if value is not None}
    settings |= _provider_settings(worker, provider, file)
    # Anthropic's models reason only if a budget is given, and reject a budget of 0.
    if worker.thinking_budget is not None and not (provider == "anthropic" and worker.thinking_budget == 0):
        settings["thinking"] = {"type": "enabled", "budget_tokens": worker.thinking_budget}
    return settings


def _provider_settings(worker: Worker, provider: str, file: Path | str) -> dict[str, str]:
    """Return the settings that only some providers accept, by LiteLLM's names. Raises `ConfigError` for one that this
    provider ignores."""
    settings = {}
    for name, names in _NAMES.items():
        value = getattr(worker, name)
        if value is None:
            continue
        if provider not in names:
            raise ConfigError(
                file, f"workers.{worker.name}.{name}", f"does not reach {provider}: LiteLLM sends it to "
                f"{', '.join(names)} alone", "Remove it, or send what the provider documents by extra_headers",
            )  # fmt: skip
        settings[names[provider]] = value
    return settings


def _timeouts(worker: Worker) -> Any:
    import httpx

    return httpx.Timeout(worker.timeout_s, connect=min(worker.connect_timeout_s, worker.timeout_s))


def is_remote(worker: Worker) -> bool:
    """Return whether calls to this worker need a network, rather than being answered by a plug-in in this process."""
    return not is_plugin(worker.model)


def _find_provider(worker: Worker, file: Path | str) -> str:
    prefix, _, name = worker.model.partition("/")
    if (plugin := find_plugin(worker.model)) is not None:
        if name not in plugin.NAMES:
            raise ConfigError(
                file, f"workers.{worker.name}.model", f"{worker.model!r} is not an embedded worker",
                f"Take one of {', '.join(f'{prefix}/{worker_name}' for worker_name in plugin.NAMES)}",
            )  # fmt: skip
        return prefix
    library = import_litellm()
    if any(worker.model.startswith(item["provider"] + "/") for item in library.custom_provider_map):
        return prefix
    try:
        return str(library.get_llm_provider(worker.model)[1])
    except library.exceptions.BadRequestError:
        raise ConfigError(
            file, f"workers.{worker.name}.model", f"{worker.model!r} does not begin with a provider that LiteLLM knows",
            "Write provider/model, for example openai/gpt-5 or hosted_vllm/NAME with an api_base, or add it to "
            "ops/providers",
        ) from None  # fmt: skip


def _read_key(worker: Worker, provider: str, file: Path | str) -> str | None:
    if worker.api_key_env is None:
        # Without a value, LiteLLM would send the provider's key in the environment to another party's endpoint.
        return "none" if worker.api_base else None
    if (problem := key_problem(worker.api_key_env)) is None:
        return os.environ[worker.api_key_env]
    raise ConfigError(
        file, f"workers.{worker.name}.api_key_env",
        f"the environment variable {worker.api_key_env} {problem}",
        f"Set it to your {provider} key (see .env.example) or take the worker out of the pool",
    )  # fmt: skip


def find_price(worker: Worker, file: Path | str) -> Price:
    """Return the worker's price from the pool, or else from LiteLLM's table. Raises `ConfigError` if neither has
    one."""
    if worker.price is not None:
        return worker.price
    library = import_litellm()
    provider = _find_provider(worker, file)
    bare = worker.model.removeprefix(provider + "/")
    entry = library.model_cost.get(worker.model) or library.model_cost.get(bare) or {}
    if (price := read_price(entry, provider)) is not None:
        return price
    raise ConfigError(
        file, f"workers.{worker.name}.price",
        f"is missing, and LiteLLM has no price for {worker.model!r}",
        "Give it, in USD per million tokens (0 for a server of your own)",
    )  # fmt: skip


def max_prompt_tokens(worker: Worker, messages: Sequence[Message], parameters: Parameters = NO_PARAMETERS) -> int:
    """Return an upper bound of the number of prompt tokens of a request with these messages and parameters.

    Each token of a byte-level tokenizer holds at least one byte. A provider counts the JSON schema of an answer as a
    part of the prompt.
    """
    own = {} if worker.response_format is None else {"response_format": worker.response_format}
    sent = {**own, **parameters}
    stated = len(json.dumps(sent).encode()) if sent else 0
    return stated + sum(len(message["content"].encode(errors="replace")) + _TOKENS_PER_MESSAGE for message in messages)


def max_call_usd(
    worker: Worker, price: Price, messages: Sequence[Message], parameters: Parameters = NO_PARAMETERS
) -> float:
    """Return the highest possible cost of a call in USD."""
    prompt_tokens = max_prompt_tokens(worker, messages, parameters)
    return price.compute_max_usd(prompt_tokens, worker.max_tokens, worker.service_tier)
