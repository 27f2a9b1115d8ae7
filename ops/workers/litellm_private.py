"""The undocumented parts of LiteLLM that Podium uses, to be checked with each new version.

LiteLLM documents neither the place of its HTTP clients, nor its fallback tokenizer, nor the table of models in its
package, nor that its callback `log_post_api_call` is given a reply's body before LiteLLM reads it, nor which providers
it calls through the session that it is given.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ops.workers.providers import import_litellm
from ops.workers.reply_body import note_body

WRITTEN_AGAINST = {"litellm": "1.106.2"}
_MODELS = "model_prices_and_context_window_backup.json"


def cached_clients() -> MutableMapping[str, Any]:
    """Return LiteLLM's HTTP clients; the key of each ends with the `id` of its event loop."""
    clients: MutableMapping[str, Any] = import_litellm().in_memory_llm_clients_cache.cache_dict
    return clients


_TAKE_SESSION = frozenset((
    "cerebras", "dashscope", "deepinfra", "github", "lm_studio", "moonshot", "nebius", "novita", "nvidia_nim", "openai",
    "perplexity", "sambanova", "zai",
))  # fmt: skip
"""Providers that LiteLLM calls by the OpenAI library, through the argument `shared_session`."""
_TAKE_CLIENT = frozenset((
    "anthropic", "azure_ai", "bedrock", "cloudflare", "cohere_chat", "databricks", "deepseek", "fireworks_ai", "gemini",
    "groq", "hosted_vllm", "huggingface", "minimax", "mistral", "ollama", "ollama_chat", "openrouter", "together_ai",
    "xai",
))  # fmt: skip
"""Providers that LiteLLM calls by an HTTP client of its own, through the argument `client`."""
SESSION_PROVIDERS = _TAKE_SESSION | _TAKE_CLIENT


@cache
def can_take_client(model: str) -> bool:
    """Return whether LiteLLM calls this model by the HTTP client that it is given."""
    return _provider_of(model) in _TAKE_CLIENT


@cache
def can_take_session(model: str) -> bool:
    """Return whether calls to this model certainly go through our session, as `ops.workers.session` gives it."""
    known = import_litellm().model_cost.get(model) or import_litellm().model_cost.get(model.partition("/")[2]) or {}
    return known.get("mode") != "responses" and _provider_of(model) in SESSION_PROVIDERS


def _provider_of(model: str) -> str:
    library = import_litellm()
    try:
        return str(library.get_llm_provider(model)[1])
    except library.exceptions.BadRequestError:  # a provider hook's
        return ""


_CLIENTS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def client_for_session(session: Any) -> Any:
    """Return LiteLLM's HTTP client that sends through an aiohttp session, which stays the caller's to close."""
    if (client := _CLIENTS.get(session)) is None:
        client = _CLIENTS[session] = _client_class()(shared_session=session)
    return client


@cache
def _client_class() -> Any:
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class ClientOfSession(AsyncHTTPHandler):  # type: ignore[misc]
        """Repeats a request without a connection through the same session, and not through one of its own."""

        def create_client(self, *arguments: Any, **named: Any) -> Any:
            return super().create_client(*arguments, **{**named, "shared_session": self.shared_session})

    return ClientOfSession


def fallback_tokenizer() -> Any:
    """Return LiteLLM's tokenizer for models without their own (tiktoken's `Encoding`)."""
    from litellm.litellm_core_utils.default_encoding import encoding

    return encoding


def custom_provider_error() -> type[Exception]:
    """Return the error that a custom provider raises for an error status: documented, but in a module of LiteLLM's."""
    from litellm.llms.custom_llm import CustomLLMError

    error: type[Exception] = CustomLLMError
    return error


def make_body_callback() -> Any:
    """Return a callback that keeps the body of each reply (`ops.workers.reply_body`)."""
    from litellm.integrations.custom_logger import CustomLogger

    class BodyKeeper(CustomLogger):  # type: ignore[misc]
        def log_post_api_call(self, kwargs: Mapping[str, Any], *_: object, **__: object) -> None:
            if isinstance(sent := kwargs.get("original_response"), str):
                note_body(sent)

    return BodyKeeper()


@cache
def read_model_table() -> Mapping[str, Mapping[str, Any]]:
    """Return LiteLLM's table of models without importing LiteLLM; empty if it is not installed or lies elsewhere."""
    spec = importlib.util.find_spec("litellm")
    file = Path(spec.origin).with_name(_MODELS) if spec is not None and spec.origin is not None else None
    if file is None or not file.is_file():
        return {}
    table: Mapping[str, Mapping[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return table
