"""A hook for a provider that LiteLLM does not know: its models are named `HOOK/MODEL`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ops.core.registry import Registry
from ops.core.response import Message
from ops.workers.reply_body import as_openai, note_body

if TYPE_CHECKING:
    import httpx


class HookCall(Protocol):
    """One request to the provider."""

    def __call__(
        self,
        model: str,
        messages: list[Message],
        settings: dict[str, Any],
        *,
        api_base: str | None,
        api_key: str | None,
        timeout_s: float | None,
    ) -> Awaitable[Mapping[str, Any]]:
        """Return the reply in the shape of OpenAI's chat completions (`choices`, `usage`).

        `settings`: the worker's sampling by OpenAI's names, and `extra_body` as it stands in the pool. Raises
        `httpx.HTTPStatusError` for an error status, and httpx's other errors for a broken connection.
        """
        ...


@dataclass(frozen=True)
class ProviderHook:
    """A provider, named as its file."""

    name: str
    complete: HookCall


HOOKS = Registry("ops.workers.hooks", ProviderHook)


def custom_providers(library: Any) -> list[dict[str, Any]]:
    """Return the hooks as LiteLLM's custom providers (docs.litellm.ai/docs/providers/custom_llm_server)."""
    return [{"provider": hook.name, "custom_handler": _handler(library, hook)} for hook in HOOKS.values()]


def _handler(library: Any, hook: ProviderHook) -> Any:
    class Handler(library.CustomLLM):  # type: ignore[misc]
        async def acompletion(
            self, model: str, messages: list[Message], optional_params: dict[str, Any], **given: Any
        ) -> Any:
            import httpx

            limit = given.get("timeout")
            seconds = limit.read if isinstance(limit, httpx.Timeout) else limit
            settings = {name: value for name, value in optional_params.items() if name != "max_retries"}
            try:
                reply = await hook.complete(
                    model, messages, settings,
                    api_base=given.get("api_base"), api_key=given.get("api_key"), timeout_s=seconds,
                )  # fmt: skip
            except httpx.HTTPStatusError as error:
                raise _in_the_providers_words(error) from None
            note_body(reply)
            return library.ModelResponse(**(as_openai(reply) or reply))

    return Handler()


def _in_the_providers_words(error: httpx.HTTPStatusError) -> httpx.HTTPStatusError:
    """Return the error with the reply's text, from which its cause is read, and with LiteLLM's status."""
    said = type(error)(error.response.text or str(error), request=error.request, response=error.response)
    said.status_code = error.response.status_code  # type: ignore[attr-defined]
    return said
