"""The tool workers behind LiteLLM: a custom provider named `local`."""

from __future__ import annotations

from typing import Any

import litellm

from ops.miniature.reading import read
from ops.miniature.tools import TOOLS


class ToolProvider(litellm.CustomLLM):  # type: ignore[misc]
    """`local/NAME` answers with the tool of that name."""

    def completion(self, model: str, messages: list[Any], **_: Any) -> litellm.ModelResponse:
        """One answer. Raises LiteLLM's `NotFoundError` for an unknown tool."""
        name = model.removeprefix("local/")
        if name not in TOOLS:
            raise litellm.NotFoundError(
                f"no tool {name!r}; there are: {', '.join(TOOLS)}", model=model, llm_provider="local"
            )
        text = TOOLS[name](read(messages))
        prompt_tokens = sum(tokens(message["content"]) for message in messages)
        return litellm.ModelResponse(
            model=model,
            choices=[{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            usage={
                "prompt_tokens": prompt_tokens,
                "completion_tokens": tokens(text),
                "total_tokens": prompt_tokens + tokens(text),
            },
        )

    async def acompletion(self, *args: Any, **kwargs: Any) -> litellm.ModelResponse:
        """The same; a tool takes milliseconds."""
        return self.completion(*args, **kwargs)


def tokens(text: str) -> int:
    """Tokens that a tool bills: four characters each, at least one."""
    return max(1, (len(text) + 3) // 4)


def register() -> None:
    """Make `local/…` known to LiteLLM; harmless when done twice."""
    if not any(entry["provider"] == "local" for entry in litellm.custom_provider_map):
        litellm.custom_provider_map.append({"provider": "local", "custom_handler": ToolProvider()})
