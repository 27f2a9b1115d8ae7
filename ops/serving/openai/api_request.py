"""What every request of OpenAI's routes has: the model's name, the question, the options, and what is not done here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ops.core.problem import Problem
from ops.serving.request_options import RequestError, RequestOptions, UnknownModelError, question, read_options

MODEL = "conductor"
"""The one model that is served."""


@dataclass(frozen=True)
class ApiRequest:
    """A request that was understood."""

    problem: Problem
    options: RequestOptions
    model: str
    stream: bool
    include_usage: bool
    """Of a stream of chat completions: whether it ends with the usage."""
    store: bool
    """False: no text of it goes into MLflow's traces."""
    metadata: dict[str, str]


def read_common(body: Mapping[str, Any], text: str, unsupported: Mapping[str, tuple[object, ...]]) -> ApiRequest:
    """The request in `body`, whose question is `text`.

    `unsupported`: fields that would change the answer if they were heeded, with the values that change nothing. What
    is in neither place (temperature, max_tokens, seed, user …) is passed over: how workers answer is the pool's to say.
    Raises `RequestError`.
    """
    for field, harmless in unsupported.items():
        if body.get(field) is not None and body[field] not in harmless:
            raise RequestError(field, "is not supported by this server", "Leave it out")
    options = read_options(body.get("podium"), "podium")
    stream_options = body.get("stream_options")
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise RequestError("metadata", "is not an object", "Send texts by name, or leave it out")
    return ApiRequest(
        problem=question(text, options),
        options=options,
        model=_model(body.get("model")),
        stream=bool(body.get("stream")),
        include_usage=bool(isinstance(stream_options, Mapping) and stream_options.get("include_usage")),
        store=body.get("store") is not False,
        metadata={str(name): str(value) for name, value in metadata.items()},
    )


def _model(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise RequestError("model", "is missing", f'Send "{MODEL}"')
    if name != MODEL:
        raise UnknownModelError("model", f"{name!r} is not served here", f'Send "{MODEL}" (GET /v1/models)')
    return name
