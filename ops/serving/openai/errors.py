"""Errors in the format that OpenAI's clients read: a status, an error object, and whether a retry can help."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

from ops.core.errors import CacheUnavailable, PodiumError
from ops.core.status import Status
from ops.serving.answer import Answer
from ops.serving.engine import NotLoadedError
from ops.serving.request_options import QuestionTooLongError, RequestError, RequestOptions, UnknownModelError

log = logging.getLogger(__name__)

DO_NOT_RETRY = {"x-should-retry": "false"}
"""A header that OpenAI's clients honour. It is sent if a retry would fail in the same way and be paid for again."""


@dataclass(eq=False)
class ApiError(Exception):
    """An error response."""

    status: int
    kind: str
    """OpenAI's `type` of the error."""
    code: str
    message: str
    parameter: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    account: dict[str, Any] | None = None
    """What was done and paid for before the error; None if nothing was."""

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        error = {"message": self.message, "type": self.kind, "param": self.parameter, "code": self.code}
        return error if self.account is None else error | {"podium": self.account}


def make_overload_error(waiting: int, retry_after_s: float) -> ApiError:
    """Return the error for a request that finds all places taken, also those in the queue."""
    words = f"all places are taken and {waiting} requests wait: ask again later, or raise at_once or waiting"
    return ApiError(429, "rate_limit_error", "rate_limit_exceeded", words, headers=_retry_after_header(retry_after_s))


def make_not_ready_error(words: str, retry_after_s: float) -> ApiError:
    """Return the error for a request that arrives before a version is in service, or while the server is ending."""
    return ApiError(503, "server_error", "not_ready", words, headers=_retry_after_header(retry_after_s))


def convert_podium_error(error: PodiumError) -> ApiError:
    """Return the error response for a request that was refused."""
    if isinstance(error, UnknownModelError):
        return ApiError(404, "invalid_request_error", "model_not_found", str(error), error.where)
    if isinstance(error, QuestionTooLongError):
        return ApiError(400, "invalid_request_error", "context_length_exceeded", str(error), error.where)
    if isinstance(error, RequestError):
        return ApiError(400, "invalid_request_error", "invalid_value", str(error), error.where)
    if isinstance(error, NotLoadedError):
        return make_not_ready_error(str(error), 2)
    if isinstance(error, CacheUnavailable):
        return make_not_ready_error(str(error), 10)
    return make_internal_error(str(error))


def convert_exception(error: Exception, request: str) -> ApiError:
    """Return the error response for any exception, to the request with this id. An unexpected exception is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PodiumError):
        return convert_podium_error(error)
    log.error("request %s failed", request, exc_info=error)
    return make_internal_error(f"the server failed; its log says more under {request}")


_ERROR_OF_STATUS: dict[Status, tuple[int, str, str]] = {
    Status.NO_WORKFLOW: (502, "server_error", "no_workflow"),
    Status.UNREACHABLE: (502, "server_error", "workers_unreachable"),
    Status.REFUSED: (400, "invalid_request_error", "content_filter"),
    Status.REJECTED: (502, "server_error", "request_rejected"),
    Status.TOO_LONG: (400, "invalid_request_error", "context_length_exceeded"),
    Status.DECLINED: (502, "server_error", "refusal"),
    Status.TOOL_CALLS: (502, "server_error", "tool_calls_only"),
    Status.REASONING: (502, "server_error", "reasoning_only"),
    Status.EMPTY: (502, "server_error", "empty_answer"),
    Status.MALFORMED: (502, "server_error", "malformed_answer"),
    Status.TIMED_OUT: (504, "server_error", "deadline_exceeded"),
    Status.OVER_BUDGET: (402, "invalid_request_error", "budget_exceeded"),
    Status.SERVER_BUDGET: (429, "insufficient_quota", "insufficient_quota"),
}


def make_answer_error(answer: Answer, options: RequestOptions) -> ApiError:
    """Return the error response for a request that was processed and has no answer."""
    status, kind, code = _ERROR_OF_STATUS[answer.status]
    headers = _retry_after_header(10) if answer.status == Status.UNREACHABLE else dict(DO_NOT_RETRY)
    is_own_budget = answer.status == Status.OVER_BUDGET and options.budget_usd is not None
    field = f"{options.field}.budget_usd" if is_own_budget else None
    return ApiError(status, kind, code, answer.error, field, headers, answer.as_account(texts=options.workflow))


def make_internal_error(words: str) -> ApiError:
    """Return the error response for a defect or an unexpected failure."""
    return ApiError(500, "server_error", "internal_error", words, headers=dict(DO_NOT_RETRY))


def _retry_after_header(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(seconds)))}
