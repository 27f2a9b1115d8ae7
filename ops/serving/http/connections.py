"""Connections of clients: how many, and how long a client may take to send a request.

uvicorn bounds neither (only an idle connection that has had a response ends), accepts sockets without TCP_NODELAY where
they were made by `socket.create_server`, and asyncio logs a traceback for every socket that it cannot accept. This is
the one place that relies on private attributes of its protocols (uvicorn 0.54: `cycle.more_body`,
`cycle.response_started`, `cycle.response_complete`, `on_response_complete`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from http import HTTPStatus
from typing import Any, Literal

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ops.config import Serving
from ops.serving.openai.errors import ApiError

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""The seconds for which an idle connection stays open. This is longer than proxies and clients keep theirs open;
otherwise they would send requests on connections that are being closed."""
MAX_CONNECTIONS = 20_000
"""The maximum number of connections, even if the limit of open files allows more."""
RESERVED_FILES = 256
"""How many open files are reserved for everything else: cache, ledger, connections to workers, sockets being accepted.
"""
MIN_OPEN_FILES = 256
"""With fewer open files than this, a server could not answer every request that it accepts."""
ACCEPT_BATCH = 16
"""How many sockets asyncio accepts before it closes others. It is far smaller than the number of reserved files."""
ACCEPT_QUEUE = 2048
"""How many connections the kernel holds until they are accepted."""
WARNING_INTERVAL_S = 60.0
"""The minimum number of seconds between two warnings about the same problem."""

Phase = Literal["new", "idle", "body", "working"]
"""A connection's phase: waiting for its first request, another request, the rest of a body, or the response."""


class ConnectionLimits:
    """The open connections of one server."""

    def __init__(self, settings: Serving, open_files: int) -> None:
        room = open_files - min(RESERVED_FILES, 2 * open_files // 3)
        self.most = min(settings.connections or MAX_CONNECTIONS, room)
        self.head_s, self.body_s = settings.head_s, settings.body_s
        self._phases: dict[Phase, dict[LimitedConnection, None]] = {"new": {}, "idle": {}, "body": {}, "working": {}}
        self._said_at = -WARNING_INTERVAL_S
        self._unsaid = 0

    @property
    def open_count(self) -> int:
        """Return the number of open connections."""
        return sum(map(len, self._phases.values()))

    def change_phase(self, connection: LimitedConnection, before: Phase | None, after: Phase | None) -> None:
        """Count a connection in its new phase, and no longer in the phase `before`."""
        if before is not None:
            self._phases[before].pop(connection, None)
        if after is not None:
            self._phases[after][connection] = None

    def make_room(self) -> bool:
        """Close connections to make room for the newest: those that have waited longest without a complete request, and
        among them first those that never sent one.

        Returns whether that was possible.
        """
        if self.open_count <= self.most:
            return True
        self.warn_once_a_minute(
            f"there are more than {self.most} connections: idle ones are closed, and others refused"
        )
        for waiting in (self._phases["new"], self._phases["idle"], self._phases["body"]):
            newest = 1 if waiting is self._phases["new"] else 0
            while self.open_count > self.most and len(waiting) > newest:
                next(iter(waiting)).close_with()
        return self.open_count <= self.most

    def warn_once_a_minute(self, problem: str) -> None:
        """Log a problem that may occur thousands of times in a row, at most once a minute."""
        self._unsaid += 1
        if time.monotonic() - self._said_at >= WARNING_INTERVAL_S:
            log.warning("%s (%d times since the last warning)", problem, self._unsaid)
            self._said_at, self._unsaid = time.monotonic(), 0

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop. Sockets that cannot be accepted lead to a warning without a traceback."""
        if isinstance(error := context.get("exception"), OSError) and "socket.accept" in str(context.get("message")):
            self.warn_once_a_minute(f"a connection could not be accepted ({error})")
        else:
            loop.default_exception_handler(context)


class LimitedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if the client takes too long to send a request."""

    def __init__(self, limits: ConnectionLimits, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._limits = limits
        self._refused = False
        self._phase: Phase | None = None
        self._waits_for: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        client = transport.get_extra_info("socket")
        if client.family in (socket.AF_INET, socket.AF_INET6):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._enter_phase("new", self._limits.head_s)
        self._refused = not self._limits.make_room()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self.close_with(
                ApiError(503, "server_error", "too_many_connections", "too many connections: ask again later")
            )
            return
        before = self._phase
        super().data_received(data)
        self._update_phase(head=before != "body")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_phase(head=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter_phase(None)
        super().connection_lost(exc)

    def close_with(self, failure: ApiError | None = None) -> None:
        """Close the connection, after an error response if no response has begun."""
        self._enter_phase(None)
        if self.transport.is_closing():
            return
        if failure is not None and (
            self.cycle is None or self.cycle.response_complete or not self.cycle.response_started
        ):
            self.transport.write(_format_response(failure))
        self.transport.close()

    def _update_phase(self, *, head: bool) -> None:
        """Enter the phase of the request in progress; `head`: a part of the next request's headers has come."""
        cycle = self.cycle
        if self.transport.is_closing():
            self._enter_phase(None)
        elif cycle is None:
            self._enter_phase("new", self._limits.head_s)
        elif cycle.more_body:
            self._enter_phase("body", self._limits.body_s, cycle)
        elif not cycle.response_complete:
            self._enter_phase("working")
        else:
            self._enter_phase("idle", self._limits.head_s if head else KEEP_ALIVE_S, (cycle, head))

    def _enter_phase(self, phase: Phase | None, seconds: float | None = None, waits_for: Any = None) -> None:
        """Enter a phase with its time limit; within the same phase, the time continues."""
        if phase == self._phase and waits_for == self._waits_for:
            return
        self._limits.change_phase(self, self._phase, phase)
        self._phase, self._waits_for = phase, waits_for
        if self._timer is not None:
            self._timer.cancel()
        late = None if phase == "idle" and not waits_for[1] else _REQUEST_TIMEOUT
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.close_with, late)


_REQUEST_TIMEOUT = ApiError(408, "invalid_request_error", "request_timeout", "the request did not arrive in time")


def _format_response(failure: ApiError) -> bytes:
    """An error as the bytes of a whole response."""
    body = json.dumps({"error": failure.error}).encode()
    head = (
        f"HTTP/1.1 {failure.status} {HTTPStatus(failure.status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
