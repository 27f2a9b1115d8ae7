"""The embedded workers behind LiteLLM: a custom provider named `local`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import litellm

from ops.miniature.generalists import SKILLS, think
from ops.miniature.reading import read
from ops.miniature.tools import TOOLS


class ToolProvider(litellm.CustomLLM):  # type: ignore[misc]
    """`local/NAME` answers with the tool or the generalist of that name."""

    def completion(
        self, model: str, messages: list[Any], optional_params: Mapping[str, Any] | None = None, **_: Any
    ) -> litellm.ModelResponse:
        """One answer. Raises LiteLLM's `NotFoundError` for an unknown worker."""
        name, settings = model.removeprefix("local/"), optional_params or {}
        if name in TOOLS:
            text = TOOLS[name](read(messages))
        elif name in SKILLS:
            text = think(
                name, messages, sample=settings.get("sample", 0), temperature=settings.get("temperature", 1.0)
            ).text
        else:
            known = ", ".join([*TOOLS, *SKILLS])
            raise litellm.NotFoundError(f"no worker {name!r}; there are: {known}", model=model, llm_provider="local")
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
