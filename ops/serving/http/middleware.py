"""The outermost layer of the application: request ids, access control, limits of bodies, counters, and errors in
OpenAI's format."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ops.config import Serving
from ops.core.errors import PodiumError
from ops.serving.http.access import AccessControl
from ops.serving.http.metrics import Metrics
from ops.serving.openai.errors import DO_NOT_RETRY, ApiError, convert_exception

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
PUBLIC_ROUTES = ("/health",)
"""Routes that need no token, because they only report whether the server answers."""
COUNTED_ROUTES = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/models", "/health", "/metrics"})
"""Routes that are counted by name. All other paths share one label, so that clients cannot create labels."""
CLIENT_DISCONNECTED = 499
"""The status under which a request is counted whose client disconnected before the end of its response."""
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CODES = {404: "not_found", 405: "method_not_allowed"}
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the current task's request."""
arrival_time: ContextVar[float] = ContextVar("arrived", default=0.0)
"""Arrival of that request in seconds since the epoch."""


class RequestMiddleware:
    """Wraps the application with everything that all routes share."""

    def __init__(self, app: ASGIApp, access: AccessControl, metrics: Metrics, settings: Serving) -> None:
        self._app, self._access, self._metrics = app, access, metrics
        self._most, self._most_held, self._held = settings.request_bytes, settings.held_bytes, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, began = Headers(scope=scope), time.monotonic()
        named = headers.get(REQUEST_ID, "")
        own = named if _ID.fullmatch(named) else f"req_{uuid.uuid4().hex}"
        request_id.set(own)
        arrival_time.set(time.time())
        status, ended = 0, False

        async def counted_send(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = own
            elif not message.get("more_body", False):
                ended = True
            await send(message)

        body = _Body(receive, self)
        try:
            if scope["path"] not in PUBLIC_ROUTES:
                self._access.check_request(headers)
            body.check_length(headers)
            await self._app(scope, body.receive, counted_send)
        except Exception as error:
            if not status:
                response = await make_error_response(Request(scope), error)
                await response(scope, receive, counted_send)
            elif not ended:
                status, ended = 500, True
                raise  # the response has begun, so uvicorn logs the error and closes the connection
        finally:
            self._held -= body.held
            route = scope["path"] if scope["path"] in COUNTED_ROUTES else "other"
            self._metrics.requests.labels(route, str(status if ended else CLIENT_DISCONNECTED)).inc()
            self._metrics.seconds.labels(route).observe(time.monotonic() - began)

    def reserve_bytes(self, size: int) -> None:
        """Count bytes of a body that stay in memory until its request ends. Raises `ApiError` if all bodies together
        are too large."""
        if self._held + size > self._most_held:
            words = f"all requests together have more than {self._most_held} bytes (held_bytes): ask again later"
            raise ApiError(429, "rate_limit_error", "rate_limit_exceeded", words, headers={"retry-after": "1"})
        self._held += size

    def check_body_size(self, size: int) -> None:
        """Raise `ApiError` if a body of this many bytes is too large."""
        if size > self._most:
            words = f"the request has more than {self._most} bytes (request_bytes)"
            raise ApiError(413, "invalid_request_error", "request_too_large", words)


class _Body:
    """One request's body, whose bytes are counted as they arrive."""

    def __init__(self, receive: Receive, limits: RequestMiddleware) -> None:
        self._receive, self._limits = receive, limits
        self.held = 0

    def check_length(self, headers: Headers) -> None:
        """Refuse a body whose declared length is too large, before it is read. Raises `ApiError`."""
        length = headers.get("content-length", "0")
        self._limits.check_body_size(int(length[:20]) if length.isdecimal() else 0)

    async def receive(self) -> Message:
        """Receive as ASGI defines. Raises `ApiError`."""
        message = await self._receive()
        size = len(message.get("body", b""))
        self._limits.check_body_size(self.held + size)
        self._limits.reserve_bytes(size)
        self.held += size
        return message


async def make_error_response(request: Request, error: Exception) -> Response:
    """Return the response to any exception. An unexpected one is logged."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_DISCONNECTED)  # the client has disconnected
    own = request_id.get()
    failure = _convert_http_error(request, error) if isinstance(error, HTTPException) else convert_exception(error, own)
    return JSONResponse({"error": failure.error}, failure.status, headers=failure.headers)


def _convert_http_error(request: Request, error: HTTPException) -> ApiError:
    status, headers = error.status_code, dict(error.headers or {})
    words = f"{request.method} {request.url.path}: {error.detail}"
    if status >= 500:
        return ApiError(status, "server_error", "internal_error", words, headers=headers | DO_NOT_RETRY)
    code = _CODES.get(status, "invalid_request")
    return ApiError(status, "invalid_request_error", code, words, headers=headers)


ERROR_HANDLERS: Mapping[Any, Any] = dict.fromkeys(
    (HTTPException, ApiError, PodiumError, ClientDisconnect, Exception), make_error_response
)
"""Handlers for Starlette, whose own error responses have another shape."""
