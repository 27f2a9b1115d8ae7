"""What every request passes: a request id, the length of its body, a token, counters; and errors in OpenAI's shape."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders

from ops.core.errors import PodiumError
from ops.serving.http.access import Access
from ops.serving.http.metrics import Metrics
from ops.serving.openai.errors import Failure, of_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
OPEN = ("/health",)
"""Routes that need no token: they say nothing but whether there will be answers."""
ROUTES = frozenset(
    {"/v1/chat/completions", "/v1/responses", "/v1/models", "/health", "/metrics", "/invocations", "/responses",
     "/agent/info"}
)  # fmt: skip
"""Those that are counted by name: a stranger's paths must not make a label each."""
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that this task carries out."""


class RequestMiddleware:
    """The outermost application."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, request_bytes: int) -> None:
        self._app, self._access, self._metrics, self._most = app, access, metrics, request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, began, status = Headers(scope=scope), time.monotonic(), 500
        named = headers.get(REQUEST_ID, "")
        own = named if _ID.fullmatch(named) else f"req_{uuid.uuid4().hex}"
        request_id.set(own)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = own
            await send(message)

        try:
            await self._admitted(scope, headers, receive, answer)
        finally:
            route = scope["path"] if scope["path"] in ROUTES else "other"
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.monotonic() - began)

    async def _admitted(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if scope["path"] not in OPEN:
                self._access.check(headers)
            await self._app(scope, self._counted(headers, receive), noting)
        except (Failure, PodiumError) as error:
            if begun:
                raise
            await send_failure(error if isinstance(error, Failure) else of_error(error), send)
        except Exception:
            log.exception("request %s", request_id.get())
            if begun:
                raise
            words = f"the server failed; its log says more under {request_id.get()}"
            await send_failure(Failure(500, "server_error", "internal_error", words), send)

    def _counted(self, headers: Headers, receive: Receive) -> Receive:
        """The body, as far as it may go. Raises `Failure`."""
        too_long = Failure(
            413, "invalid_request_error", "request_too_large", f"the request has more than {self._most} bytes"
        )
        told = headers.get("content-length", "0")
        if told.isdecimal() and int(told) > self._most:
            raise too_long
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._most:
                raise too_long
            return message

        return counted


async def send_failure(failure: Failure, send: Send) -> None:
    """The error as a whole response."""
    body = json.dumps({"error": failure.error}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **failure.headers}
    raw: list[tuple[bytes, bytes]] = [(name.encode(), value.encode()) for name, value in headers.items()]
    start: dict[str, Any] = {"type": "http.response.start", "status": failure.status, "headers": raw}
    await send(start)
    await send({"type": "http.response.body", "body": body})
