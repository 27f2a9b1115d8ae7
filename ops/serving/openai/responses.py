"""`/v1/responses`: https://platform.openai.com/docs/api-reference/responses, and what MLflow's agent server speaks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ops.serving.answer import Answer, Fallback
from ops.serving.openai.api_request import ApiRequest, read_common
from ops.serving.openai.chat import news
from ops.serving.openai.conversation import question_text
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "prompt": (),
    "text": ({}, {"format": {"type": "text"}}),
}


def read(body: Mapping[str, Any]) -> ApiRequest:
    """The request in a body. Raises `RequestError`."""
    given = body.get("input")
    messages: Sequence[object] = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    if not isinstance(messages, list):
        raise RequestError("input", "is neither a text nor a list of messages", "Send the question as a text")
    instructions = body.get("instructions")
    if isinstance(instructions, str):
        messages = [{"role": "system", "content": instructions}, *messages]
    return read_common(body, question_text(messages, "input"), _UNSUPPORTED)


class ResponseShape:
    """One response, whole or as events; a step is a `reasoning` item."""

    done = None

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._id, self._created = f"resp_{uuid.uuid4().hex}", time.time()
        self._number = -1
        self._items: list[dict[str, Any]] = []

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The response object; `podium` says how the answer came."""
        if not self._items:
            self._items = [step_item(step, texts=self._request.options.workflow) for step in answer.steps]
        return self._object("completed") | {
            "output": [*self._items, message_item(answer.text or "")],
            "usage": usage(answer),
            "podium": answer.account(texts=self._request.options.workflow),
        }

    def begin(self, version: str) -> Iterator[dict[str, Any]]:
        """What is sent at once."""
        response = self._object("in_progress")
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def news(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]:
        """A step that has ended, as an item; a way round a failure stands in the response at the end."""
        if isinstance(item, Fallback):
            return
        texts = self._request.options.workflow
        entry, place = step_item(item, texts=texts), len(self._items)
        self._items.append(entry)
        yield self._event("response.output_item.added", output_index=place, item=entry)
        done = self._event("response.output_item.done", output_index=place, item=entry)
        yield done | {"podium": news(item, texts=texts)}

    def end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """The answer as an item, and then the whole response."""
        whole = self.whole(answer)
        item, place = whole["output"][-1], len(self._items)
        part = item["content"][0]
        at = {"item_id": item["id"], "output_index": place, "content_index": 0}
        begun = item | {"content": [], "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=place, item=begun)
        yield self._event("response.content_part.added", **at, part=part | {"text": ""})
        yield self._event("response.output_text.delta", **at, delta=part["text"], logprobs=[])
        yield self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", **at, part=part)
        yield self._event("response.output_item.done", output_index=place, item=item)
        yield self._event("response.completed", response=whole)

    def broken(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """An error in the midst of a stream."""
        failed = self._object("failed") | {"error": {"code": error["code"], "message": error["message"]}}
        yield self._event("response.failed", response=failed | {"output": self._items, "podium": error.get("podium")})

    def _event(self, kind: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **values}

    def _object(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._request.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": self._request.metadata,
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": None,
            "top_p": None,
            "store": self._request.store,
        }


def message_item(text: str) -> dict[str, Any]:
    """The answer."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "status": "completed",
            "content": [part]}  # fmt: skip


def step_item(step: StepTrace, *, texts: bool) -> dict[str, Any]:
    """A step as an item of type `reasoning`, whose summary says who was asked; with `texts`, what and the answer."""
    said = f"Step {step.index + 1}, {step.worker}: {step.status}"
    if texts:
        said = f"{said}\n{step.subtask}\n{step.response.text or step.error}"
    return {
        "id": f"rs_{uuid.uuid4().hex}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": said}],
        "status": "completed",
    }


def usage(answer: Answer) -> dict[str, Any]:
    """The workers' tokens, of all calls on the way; the Conductor's own cost nothing and are not among them."""
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
