"""The undocumented parts of LiteLLM that Podium uses, to be checked with each new version.

LiteLLM documents neither the place of its HTTP clients, nor its fallback tokenizer, nor the table of models in its
package, nor that its callback `log_post_api_call` is given a reply's body before LiteLLM reads it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from ops.workers.providers import litellm
from ops.workers.reply_body import note_body

WRITTEN_AGAINST = {"litellm": "1.106.2"}
_MODELS = "model_prices_and_context_window_backup.json"


def kept_clients() -> MutableMapping[str, Any]:
    """Return LiteLLM's HTTP clients; the key of each ends with the `id` of its event loop."""
    clients: MutableMapping[str, Any] = litellm().in_memory_llm_clients_cache.cache_dict
    return clients


def encoding() -> Any:
    """Return LiteLLM's tokenizer for models without their own (tiktoken's `Encoding`)."""
    from litellm.litellm_core_utils.default_encoding import encoding

    return encoding


def custom_provider_error() -> type[Exception]:
    """Return the error that a custom provider raises for an error status: documented, but in a module of LiteLLM's."""
    from litellm.llms.custom_llm import CustomLLMError

    error: type[Exception] = CustomLLMError
    return error


def body_keeper() -> Any:
    """Return a callback that keeps the body of each reply (`ops.workers.reply_body`)."""
    from litellm.integrations.custom_logger import CustomLogger

    class BodyKeeper(CustomLogger):  # type: ignore[misc]
        def log_post_api_call(self, kwargs: Mapping[str, Any], *_: object, **__: object) -> None:
            if isinstance(sent := kwargs.get("original_response"), str):
                note_body(sent)

    return BodyKeeper()


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """Return LiteLLM's table of models without importing LiteLLM; empty if it is not installed or lies elsewhere."""
    spec = importlib.util.find_spec("litellm")
    file = Path(spec.origin).with_name(_MODELS) if spec is not None and spec.origin is not None else None
    if file is None or not file.is_file():
        return {}
    table: Mapping[str, Mapping[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return table
