"""`/v1/chat/completions`: https://platform.openai.com/docs/api-reference/chat"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ops.serving.answer import Answer, Fallback
from ops.serving.openai.api_request import ApiRequest, read_common
from ops.serving.openai.conversation import question_text
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "audio": (),
}


def read(body: Mapping[str, Any]) -> ApiRequest:
    """The request in a body. Raises `RequestError`."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise RequestError("messages", "is not a list of messages", 'Send [{"role": "user", "content": "…"}]')
    return read_common(body, question_text(messages, "messages"), _UNSUPPORTED)


class ChatShape:
    """One response, whole or as chunks."""

    done = "[DONE]"
    """What ends a stream."""

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The response object; `podium` says how the answer came."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return self._object("chat.completion", answer.version) | {
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": usage(answer),
            "podium": answer.account(texts=self._request.options.workflow),
        }

    def begin(self, version: str) -> Iterator[dict[str, Any]]:
        """What is sent at once."""
        yield self._chunk(version, {"role": "assistant", "content": ""})

    def news(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]:
        """A step that has ended, or a way round a failure: an empty delta, and the news in `podium`."""
        yield self._chunk(version, {}) | {"podium": news(item, texts=self._request.options.workflow)}

    def end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """The answer, how it came, and the usage where it was asked for."""
        yield self._chunk(answer.version, {"content": answer.text})
        account = {"podium": answer.account(texts=self._request.options.workflow)}
        yield self._chunk(answer.version, {}, "stop") | account
        if self._request.include_usage:
            yield self._object("chat.completion.chunk", answer.version) | {"choices": [], "usage": usage(answer)}

    def broken(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """An error in the midst of a stream."""
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
    """The workers' tokens, of all calls on the way; the Conductor's own cost nothing and are not among them."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def news(item: StepTrace | Fallback, *, texts: bool) -> dict[str, Any]:
    """A step or a fallback as a stream tells it."""
    if isinstance(item, Fallback):
        return {"fallback": item._asdict()}
    return {"step": item.as_object(texts=texts)}
