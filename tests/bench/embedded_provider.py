"""The embedded workers as a custom provider of LiteLLM: what Podium's own client and server are compared with.

LiteLLM's proxy loads `PROVIDER` from this file.
"""

from __future__ import annotations

from typing import Any

import litellm

from ops.synthetic.plugin import answer


class Embedded(litellm.CustomLLM):  # type: ignore[misc, name-defined]
    """Answers as the embedded worker of the model's name does."""

    async def acompletion(
        self, model: str, messages: list[Any], model_response: Any, optional_params: dict[str, Any], **_: Any
    ) -> Any:
        reply = answer(messages, model=model, temperature=optional_params.get("temperature", 1.0))
        model_response.choices[0].message.content = reply.choices[0].message.content
        model_response.usage = litellm.Usage(**vars(reply.usage))
        return model_response


PROVIDER = Embedded()
