"""The undocumented parts of LiteLLM that Podium uses, which must be checked with each new version of LiteLLM.

LiteLLM does not document where it keeps its HTTP clients, its fallback tokenizer and the table of models in its
package. Nor does it document that its callback `log_post_api_call` receives the body of a reply before LiteLLM reads
it, and which providers it calls through a session that is passed to it.
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
    """Return LiteLLM's HTTP clients. The key of each ends with the `id` of its event loop."""
    clients: MutableMapping[str, Any] = import_litellm().in_memory_llm_clients_cache.cache_dict
    return clients


_TAKE_SESSION = frozenset((
    "cerebras", "dashscope", "deepinfra", "github", "lm_studio", "moonshot", "nebius", "novita", "nvidia_nim", "openai",
    "perplexity", "sambanova", "zai",
))  # fmt: skip
"""Providers that LiteLLM calls with the OpenAI library, through its argument `shared_session`."""
_TAKE_CLIENT = frozenset((
    "anthropic", "azure_ai", "bedrock", "cloudflare", "cohere_chat", "databricks", "deepseek", "fireworks_ai", "gemini",
    "groq", "hosted_vllm", "huggingface", "minimax", "mistral", "ollama", "ollama_chat", "openrouter", "together_ai",
    "xai",
))  # fmt: skip
"""Providers that LiteLLM calls with its own HTTP client, through its argument `client`."""
SESSION_PROVIDERS = _TAKE_SESSION | _TAKE_CLIENT


@cache
def can_take_client(model: str) -> bool:
    """Return whether LiteLLM calls this model with an HTTP client that is passed to it."""
    return _provider_of(model) in _TAKE_CLIENT


@cache
def can_take_session(model: str) -> bool:
    """Return whether calls to this model certainly use the session that `ops.workers.session` passes."""
    known = import_litellm().model_cost.get(model) or import_litellm().model_cost.get(model.partition("/")[2]) or {}
    return known.get("mode") != "responses" and _provider_of(model) in SESSION_PROVIDERS


def _provider_of(model: str) -> str:
    library = import_litellm()
    try:
        return str(library.get_llm_provider(model)[1])
    except library.exceptions.BadRequestError:  # the model belongs to a custom provider
        return ""


_CLIENTS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def client_for_session(session: Any) -> Any:
    """Return LiteLLM's HTTP client that sends through an aiohttp session. The caller remains responsible for closing
    the session."""
    if (client := _CLIENTS.get(session)) is None:
        client = _CLIENTS[session] = _client_class()(shared_session=session)
    return client


@cache
def _client_class() -> Any:
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class ClientOfSession(AsyncHTTPHandler):  # type: ignore[misc]
        """A client that repeats a request after a lost connection through the same session instead of one of its
        own."""

        def create_client(self, *arguments: Any, **named: Any) -> Any:
            return super().create_client(*arguments, **{**named, "shared_session": self.shared_session})

    return ClientOfSession


def fallback_tokenizer() -> Any:
    """Return LiteLLM's tokenizer for models without a tokenizer of their own (tiktoken's `Encoding`)."""
    from litellm.litellm_core_utils.default_encoding import encoding

    return encoding


def custom_provider_error() -> type[Exception]:
    """Return the exception that a custom provider raises for an error status. It is documented, but not exported."""
    from litellm.llms.custom_llm import CustomLLMError

    error: type[Exception] = CustomLLMError
    return error


def make_body_callback() -> Any:
    """Return a LiteLLM callback that keeps the body of each reply (`ops.workers.reply_body`)."""
    from litellm.integrations.custom_logger import CustomLogger

    class BodyKeeper(CustomLogger):  # type: ignore[misc]
        def log_post_api_call(self, kwargs: Mapping[str, Any], *_: object, **__: object) -> None:
            if isinstance(sent := kwargs.get("original_response"), str):
                note_body(sent)

    return BodyKeeper()


@cache
def read_model_table() -> Mapping[str, Mapping[str, Any]]:
    """Return LiteLLM's table of models without importing LiteLLM; empty if the file is not found."""
    spec = importlib.util.find_spec("litellm")
    file = Path(spec.origin).with_name(_MODELS) if spec is not None and spec.origin is not None else None
    if file is None or not file.is_file():
        return {}
    table: Mapping[str, Mapping[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return table
