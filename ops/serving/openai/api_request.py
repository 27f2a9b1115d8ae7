"""Requests to OpenAI's routes: the parameters that both routes share, and which parameters are honoured, refused or
ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ops.core.problem import Problem
from ops.serving.request_options import (
    RequestError,
    RequestOptions,
    UnknownModelError,
    make_problem,
    read_options,
    read_response_format,
)

MODEL_NAME = "conductor"
"""The name of the one model that is served."""
COMMON_PARAMETERS = frozenset({"model", "stream", "stream_options", "store", "metadata", "podium"})
"""Parameters that both routes honour."""
IGNORED_PARAMETERS = frozenset(
    {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "parallel_tool_calls",
     "temperature", "top_p"}
)  # fmt: skip
"""Parameters that may have any value. They do not change an answer, or they set how it is sampled, which common clients
always send and which the pool decides for each worker."""
REFUSED_PARAMETERS: dict[str, tuple[object, ...]] = {
    "top_logprobs": (0,),
    "tools": (),
    "tool_choice": ("none", "auto"),
}
"""Parameters that would change an answer and are refused by name. Each is listed with the values that mean OpenAI's
default; these, null and an empty list or object are accepted."""


@dataclass(frozen=True)
class ApiRequest:
    """A valid request to one of OpenAI's routes."""

    problem: Problem
    field: str
    """The field that holds the question, for error messages."""
    options: RequestOptions
    model: str
    stream: bool
    include_usage: bool
    """Whether a stream of chat completions ends with the usage."""
    store: bool
    """Whether MLflow's traces may hold the texts of the request."""
    metadata: dict[str, str]
    answer_tokens: tuple[str, int] | None
    """The field that limits the tokens of the answer, with its value; None if no field does."""


def read_common_parameters(
    body: Mapping[str, Any], text: str, field: str, bounds: tuple[str, ...], response_format: tuple[str, object]
) -> ApiRequest:
    """Read the parameters that both routes share. `text` is the question in `field`, `bounds` are the fields that limit
    the tokens of the answer, and `response_format` is the field of the answer's format with its value as OpenAI's
    `response_format`.

    Raises `RequestError`.
    """
    model = _read_model_name(body.get("model"))
    options = add_response_format(read_options(body.get("podium"), "podium"), *response_format)
    streaming = _read_object(body, "stream_options")
    metadata = _read_object(body, "metadata")
    for name, value in metadata.items():
        if not isinstance(value, str):
            raise RequestError(f"metadata.{name}", f"is {value!r:.80}, not a string", "Send strings by name")
    return ApiRequest(
        problem=make_problem(text, options, field),
        field=field,
        options=options,
        model=model,
        stream=_read_flag(body, "stream", default=False),
        include_usage=_read_flag(streaming, "include_usage", "stream_options.", default=False),
        store=_read_flag(body, "store", default=True),
        metadata=dict(metadata),
        answer_tokens=_read_token_bound(body, bounds),
    )


def check_parameters(
    body: Mapping[str, Any],
    honoured: frozenset[str],
    no_effect: frozenset[str],
    defaults: Mapping[str, tuple[object, ...]],
) -> None:
    """Raise `RequestError` for a parameter that is unknown here, or that would change the answer and is not honoured.

    A name with a dot is a key of an object, such as `text.format`.
    """
    objects = {name.partition(".")[0] for name in (*honoured, *no_effect, *defaults) if "." in name}
    for name, value in body.items():
        if name in objects:
            check_parameters({f"{name}.{key}": entry for key, entry in _read_object(body, name).items()},
                             frozenset(each for each in honoured if "." in each),
                             frozenset(each for each in no_effect if "." in each),
                             {each: values for each, values in defaults.items() if "." in each})  # fmt: skip
        elif name in defaults:
            if value not in (None, [], {}) and not any(_is_default(value, default) for default in defaults[name]):
                said = f"is {value!r:.80}, which this server does not support"
                raise RequestError(name, said, f"Leave it out{_list_alternatives(defaults[name])}")
        elif name not in honoured and name not in no_effect:
            raise RequestError(name, "is not a parameter of this route", "Leave it out")


def add_response_format(options: RequestOptions, field: str, form: object) -> RequestOptions:
    """Return the options with the format of the answer that the parameter `field` demands. Raises `RequestError`."""
    try:
        wanted = read_response_format(form)
    except ValueError as error:
        raise RequestError(field, str(error), "See OpenAI's structured outputs") from None
    if wanted is None:
        return options
    if options.grader not in (None, "open") or options.choices or options.response_format is not None:
        place = f"{options.field}.{'response_format' if options.response_format else 'grader'}"
        raise RequestError(place, f"asks for another form of answer than {field}", "Send one of the two")
    return options.model_copy(update={"response_format": wanted})


def _list_alternatives(defaults: tuple[object, ...]) -> str:
    return "".join(f", or send {default!r}" for default in defaults[:1])


def _is_default(value: object, default: object) -> bool:
    return isinstance(value, bool) == isinstance(default, bool) and value == default


def _read_object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if not isinstance(value, Mapping | None):
        raise RequestError(name, f"is {value!r:.80}, not an object", "Send an object, or leave it out")
    return value or {}


def _read_flag(values: Mapping[str, Any], name: str, place: str = "", *, default: bool) -> bool:
    value = values.get(name)
    if not isinstance(value, bool | None):
        raise RequestError(f"{place}{name}", f"is {value!r:.80}, not a boolean", "Send true or false")
    return default if value is None else value


def _read_token_bound(body: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, int] | None:
    given = [(name, body[name]) for name in names if body.get(name) is not None]
    for name, value in given:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RequestError(name, f"is {value!r:.80}, not a positive integer", "Send a number of tokens")
    return min(given, key=lambda each: each[1], default=None)


def _read_model_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise RequestError("model", "is missing", f'Send "{MODEL_NAME}"')
    if name != MODEL_NAME:
        raise UnknownModelError("model", f"{name!r:.80} is not served here", f'Send "{MODEL_NAME}" (GET /v1/models)')
    return name
