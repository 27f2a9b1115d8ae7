"""`/v1/responses`: https://platform.openai.com/docs/api-reference/responses, and an MLflow agent's requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ops.core.problem import Problem
from ops.core.usage import TOKEN_PARTS
from ops.serving.answer import Answer, Fallback
from ops.serving.openai.api_request import (
    COMMON_PARAMETERS,
    IGNORED_PARAMETERS,
    REFUSED_PARAMETERS,
    ApiRequest,
    add_response_format,
    check_parameters,
    read_common_parameters,
)
from ops.serving.openai.chat import describe_progress
from ops.serving.openai.conversation import format_conversation
from ops.serving.request_options import RequestError, RequestOptions, make_problem, read_options
from ops.workflow.trace import StepTrace

_BOUND = "max_output_tokens"
HONOURED = COMMON_PARAMETERS | {"input", "instructions", "text.format", _BOUND}
IRRELEVANT = IGNORED_PARAMETERS | {"reasoning.summary", "reasoning.generate_summary"}
REFUSED = REFUSED_PARAMETERS | {
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "prompt": (),
    "include": (),
    "truncation": ("disabled",),
    "max_tool_calls": (),
    "reasoning.effort": ("medium",),
    "text.verbosity": ("medium",),
}


def read_request(body: Mapping[str, Any]) -> ApiRequest:
    """Read a request from a body. Raises `RequestError`."""
    check_parameters(body, HONOURED, IRRELEVANT, REFUSED)
    return read_common_parameters(body, _read_question(body), "input", (_BOUND,), _read_response_format(body))


def read_agent_request(request: Mapping[str, Any]) -> tuple[Problem, RequestOptions]:
    """Return the question and the options of a request to an agent that is logged in MLflow. Raises `RequestError`."""
    agents = frozenset({"input", "instructions", "stream", "store", "metadata", "context", "custom_inputs", "model",
                        "text.format"})  # fmt: skip
    check_parameters(request, agents, IRRELEVANT, REFUSED | {_BOUND: ()})
    options = add_response_format(
        read_options(request.get("custom_inputs"), "custom_inputs"), *_read_response_format(request)
    )
    return make_problem(_read_question(request), options, "input"), options


def _read_response_format(body: Mapping[str, Any]) -> tuple[str, object]:
    """The field `text.format`, and its value as chat completions' `response_format`, which nests name and schema."""
    form = (body.get("text") or {}).get("format")
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return "text.format", form
    described = {name: value for name, value in form.items() if name != "type"}
    return "text.format", {"type": "json_schema", "json_schema": described}


def _read_question(body: Mapping[str, Any]) -> str:
    given, instructions = body.get("input"), body.get("instructions")
    if not isinstance(instructions, str | None):
        raise RequestError("instructions", "is not a string", "Send a string, or leave it out")
    if isinstance(given, str):
        if not instructions:
            return given
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise RequestError("input", "is neither a text nor a list of messages", "Send the question as a text")
    return format_conversation(given, "input", instructions)


class ResponsesWriter:
    """Writes the response to one request, whole or as events. A step is a `reasoning` item."""

    end_marker = None

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._id, self._created = f"resp_{uuid.uuid4().hex}", time.time()
        self._number = -1
        self._items: list[dict[str, Any]] = []

    def write_response(self, answer: Answer) -> dict[str, Any]:
        """Return the response object; its field `podium` says how the answer was made."""
        if not self._items:
            self._items = [make_step_item(step, texts=self._request.options.workflow) for step in answer.steps]
        cut = answer.finish_reason == "length"
        return self._make_object("incomplete" if cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [*self._items, make_message_item(answer.text or "")],
            "usage": describe_usage(answer),
            "podium": answer.as_account(texts=self._request.options.workflow),
        }

    def write_start(self, version: str) -> Iterator[dict[str, Any]]:
        """Yield the first events, before there is an answer."""
        response = self._make_object("in_progress")
        yield self._make_event("response.created", response=response)
        yield self._make_event("response.in_progress", response=response)

    def write_progress(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]:
        """Yield a step that has ended, as an item. Fallbacks are in the response at the end."""
        if isinstance(item, Fallback):
            return
        texts = self._request.options.workflow
        entry, place = make_step_item(item, texts=texts), len(self._items)
        self._items.append(entry)
        yield self._make_event("response.output_item.added", output_index=place, item=entry)
        done = self._make_event("response.output_item.done", output_index=place, item=entry)
        yield done | {"podium": describe_progress(item, texts=texts)}

    def write_end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the answer as an item, then the whole response."""
        whole = self.write_response(answer)
        item, place = whole["output"][-1], len(self._items)
        part = item["content"][0]
        at = {"item_id": item["id"], "output_index": place, "content_index": 0}
        begun = item | {"content": [], "status": "in_progress"}
        yield self._make_event("response.output_item.added", output_index=place, item=begun)
        yield self._make_event("response.content_part.added", **at, part=part | {"text": ""})
        yield self._make_event("response.output_text.delta", **at, delta=part["text"], logprobs=[])
        yield self._make_event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield self._make_event("response.content_part.done", **at, part=part)
        yield self._make_event("response.output_item.done", output_index=place, item=item)
        yield self._make_event(f"response.{whole['status']}", response=whole)

    def write_error(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield an error after the stream has begun."""
        failed = self._make_object("failed") | {"error": {"code": error["code"], "message": error["message"]}}
        yield self._make_event(
            "response.failed", response=failed | {"output": self._items, "podium": error.get("podium")}
        )

    def _make_event(self, kind: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **values}

    def _make_object(self, status: str) -> dict[str, Any]:
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


def make_message_item(text: str) -> dict[str, Any]:
    """Return the answer as an item."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "status": "completed",
            "content": [part]}  # fmt: skip


def make_step_item(step: StepTrace, *, texts: bool) -> dict[str, Any]:
    """Return a step as an item of type `reasoning` whose summary names the worker; with `texts`, also its subtask and
    response."""
    said = f"Step {step.index + 1}, {step.worker}: {step.status}"
    if texts:
        said = f"{said}\n{step.subtask}\n{step.response.text or step.error}"
    return {
        "id": f"rs_{uuid.uuid4().hex}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": said}],
        "status": "completed",
    }


def describe_usage(answer: Answer) -> dict[str, Any]:
    """Return the workers' tokens over all calls. The Conductor's own tokens cost nothing and are not included."""
    details: dict[str, dict[str, float]] = {"prompt_tokens": {}, "completion_tokens": {}}
    for part in TOKEN_PARTS:
        name = part.reply_fields[0].rpartition(".")[2]
        details[part.whole][name] = sum(getattr(response.usage, part.name) for _, response in answer.responses)
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": details["prompt_tokens"],
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": details["completion_tokens"],
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
