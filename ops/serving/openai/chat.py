"""`/v1/chat/completions`: https://platform.openai.com/docs/api-reference/chat"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ops.serving.answer import Answer, Fallback
from ops.serving.openai.api_request import (
    COMMON_PARAMETERS,
    IGNORED_PARAMETERS,
    REFUSED_PARAMETERS,
    ApiRequest,
    check_parameters,
    read_common_parameters,
)
from ops.serving.openai.conversation import format_conversation
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

_BOUNDS = ("max_tokens", "max_completion_tokens")
HONOURED = COMMON_PARAMETERS | {"messages", "response_format", *_BOUNDS}
IRRELEVANT = IGNORED_PARAMETERS | {"prediction", "seed"}
REFUSED = REFUSED_PARAMETERS | {
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


def read_request(body: Mapping[str, Any]) -> ApiRequest:
    """Read a request from a body. Raises `RequestError`."""
    check_parameters(body, HONOURED, IRRELEVANT, REFUSED)
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise RequestError("messages", "is not a list of messages", 'Send [{"role": "user", "content": "…"}]')
    form = "response_format", body.get("response_format")
    return read_common_parameters(body, format_conversation(messages, "messages"), "messages", _BOUNDS, form)


class ChatWriter:
    """Writes the response to one request, whole or in chunks."""

    end_marker = "[DONE]"
    """The text that ends a stream."""

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def write_response(self, answer: Answer) -> dict[str, Any]:
        """Return the response object; its field `podium` says how the answer was made."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return self._make_object("chat.completion", answer.version) | {
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}],
            "usage": describe_usage(answer),
            "podium": answer.as_account(texts=self._request.options.workflow),
        }

    def write_start(self, version: str) -> Iterator[dict[str, Any]]:
        """Yield the first chunk, before there is an answer."""
        yield self._make_chunk(version, {"role": "assistant", "content": ""})

    def write_progress(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]:
        """Yield a chunk with an empty delta and, in `podium`, the step that has ended or the fallback."""
        yield self._make_chunk(version, {}) | {"podium": describe_progress(item, texts=self._request.options.workflow)}

    def write_end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the answer, how it was made, and the usage if the request asks for it."""
        yield self._make_chunk(answer.version, {"content": answer.text})
        account = {"podium": answer.as_account(texts=self._request.options.workflow)}
        yield self._make_chunk(answer.version, {}, answer.finish_reason) | account
        if self._request.include_usage:
            yield self._make_object("chat.completion.chunk", answer.version) | {
                "choices": [],
                "usage": describe_usage(answer),
            }

    def write_error(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield an error after the stream has begun."""
        yield {"error": error}

    def _make_chunk(self, version: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._make_object("chat.completion.chunk", version) | {"choices": [choice]}

    def _make_object(self, kind: str, version: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._request.model,
            "system_fingerprint": f"conductor-{version}",
        }


def describe_usage(answer: Answer) -> dict[str, Any]:
    """Return the workers' tokens over all calls. The Conductor's own tokens cost nothing and are not included."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def describe_progress(item: StepTrace | Fallback, *, texts: bool) -> dict[str, Any]:
    """Return a step or a fallback as an event of a stream."""
    if isinstance(item, Fallback):
        return {"fallback": item._asdict()}
    return {"step": item.to_dict(include_texts=texts)}
