"""What went wrong as OpenAI's clients read it: a status, an error object, and whether asking again can help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ops.core.errors import CacheUnavailable, PodiumError
from ops.serving.answer import Answer
from ops.serving.engine import NotLoadedError
from ops.serving.request_options import RequestError, UnknownModelError

DO_NOT_RETRY = {"x-should-retry": "false"}
"""A header that OpenAI's clients heed: the same request would meet the same end, and pay for it again."""


@dataclass(eq=False)
class Failure(Exception):
    """A response that is an error."""

    status: int
    kind: str
    """OpenAI's `type`."""
    code: str
    message: str
    parameter: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    account: dict[str, Any] | None = None
    """What was done and paid for on the way."""

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        told = {"message": self.message, "type": self.kind, "param": self.parameter, "code": self.code}
        return told if self.account is None else told | {"podium": self.account}


def crowded(waiting: int, retry_after_s: float) -> Failure:
    """No place is free, and no room to wait for one."""
    words = f"all places are taken and {waiting} requests wait: ask again later, or raise at_once or waiting"
    return Failure(429, "rate_limit_error", "rate_limit_exceeded", words, headers=_after(retry_after_s))


def not_ready(words: str, retry_after_s: float) -> Failure:
    """Nothing is loaded yet, or the server is about to end."""
    return Failure(503, "server_error", "not_ready", words, headers=_after(retry_after_s))


def of_error(error: PodiumError) -> Failure:
    """Why a request was not carried out."""
    if isinstance(error, UnknownModelError):
        return Failure(404, "invalid_request_error", "model_not_found", str(error), error.where)
    if isinstance(error, RequestError):
        return Failure(400, "invalid_request_error", "invalid_value", str(error), error.where)
    if isinstance(error, NotLoadedError):
        return not_ready(str(error), 2)
    if isinstance(error, CacheUnavailable):
        return not_ready(str(error), 10)
    return Failure(500, "server_error", "internal_error", str(error), headers=DO_NOT_RETRY)


_ENDS: dict[str, tuple[int, str, str]] = {
    "no_workflow": (502, "server_error", "no_workflow"),
    "unreachable": (502, "server_error", "workers_unreachable"),
    "refused": (400, "invalid_request_error", "content_filter"),
    "rejected": (502, "server_error", "request_rejected"),
    "too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "empty": (502, "server_error", "empty_answer"),
    "timed_out": (504, "server_error", "deadline_exceeded"),
    "over_budget": (402, "invalid_request_error", "budget_exceeded"),
    "server_budget": (429, "insufficient_quota", "insufficient_quota"),
}


def of_answer(answer: Answer, *, texts: bool) -> Failure:
    """Why a request that was carried out has no answer."""
    status, kind, code = _ENDS[answer.status]
    headers = {} if answer.status == "unreachable" else DO_NOT_RETRY
    if answer.status == "unreachable":
        headers = _after(10)
    return Failure(status, kind, code, answer.error, headers=dict(headers), account=answer.account(texts=texts))


def _after(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(seconds)))}
