"""`/v1/chat/completions`: https://platform.openai.com/docs/api-reference/chat"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ops.serving.answer import Answer, Fallback
from ops.serving.openai.api_request import DEFAULTS, NO_EFFECT, READ, ApiRequest, check_parameters, read_common
from ops.serving.openai.conversation import question_text
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

_BOUNDS = ("max_tokens", "max_completion_tokens")
HONOURED = READ | {"messages", "response_format", *_BOUNDS}
IRRELEVANT = NO_EFFECT | {"prediction", "seed"}
REFUSED = DEFAULTS | {
    "n": (1,),
    "stop": (),
    "logit_bias": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logprobs": (False,),
    "reasoning_effort": ("medium",),
    "verbosity": ("medium",),
    "functions": (),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}


def read(body: Mapping[str, Any]) -> ApiRequest:
    """Read a request from a body. Raises `RequestError`."""
    check_parameters(body, HONOURED, IRRELEVANT, REFUSED)
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise RequestError("messages", "is not a list of messages", 'Send [{"role": "user", "content": "…"}]')
    form = "response_format", body.get("response_format")
    return read_common(body, question_text(messages, "messages"), "messages", _BOUNDS, form)


class ChatShape:
    """Writes the response to one request, whole or in chunks."""

    done = "[DONE]"
    """The text that ends a stream."""

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the response object; its field `podium` says how the answer was made."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return self._object("chat.completion", answer.version) | {
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}],
            "usage": usage(answer),
            "podium": answer.account(texts=self._request.options.workflow),
        }

    def begin(self, version: str) -> Iterator[dict[str, Any]]:
        """Yield the first chunk, before there is an answer."""
        yield self._chunk(version, {"role": "assistant", "content": ""})

    def progress(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]:
        """Yield a chunk with an empty delta and, in `podium`, the step that has ended or the fallback."""
        yield self._chunk(version, {}) | {"podium": progress_item(item, texts=self._request.options.workflow)}

    def end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the answer, how it was made, and the usage if the request asks for it."""
        yield self._chunk(answer.version, {"content": answer.text})
        account = {"podium": answer.account(texts=self._request.options.workflow)}
        yield self._chunk(answer.version, {}, answer.finish_reason) | account
        if self._request.include_usage:
            yield self._object("chat.completion.chunk", answer.version) | {"choices": [], "usage": usage(answer)}

    def broken(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield an error after the stream has begun."""
        yield {"error": error}

    def _chunk(self, version: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._object("chat.completion.chunk", version) | {"choices": [choice]}

    def _object(self, kind: str, version: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._request.model,
            "system_fingerprint": f"conductor-{version}",
        }


def usage(answer: Answer) -> dict[str, Any]:
    """Return the workers' tokens over all calls. The Conductor's own tokens cost nothing and are not included."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def progress_item(item: StepTrace | Fallback, *, texts: bool) -> dict[str, Any]:
    """Return a step or a fallback as an event of a stream."""
    if isinstance(item, Fallback):
        return {"fallback": item._asdict()}
    return {"step": item.to_dict(include_texts=texts)}
