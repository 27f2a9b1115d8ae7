"""The HTTP session of an event loop, which limits the size of replies and is closed when the loop ends.

LiteLLM would create its own session. This one rejects an implausibly large reply before it is in memory.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from ops.workers.litellm_private import cached_clients, can_take_client, client_for_session
from ops.workers.providers import import_litellm

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_REPLY_BYTES = 16_000_000
"""The maximum size of a reply in bytes, which is several times that of the longest answer with its reasoning."""
_KEEP_ALIVE_S, _KEEP_NAMES_S = 120, 300
_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[ClientSession, AsyncGenerator[None, None]]]
_sessions = weakref.WeakKeyDictionary()


_BEFORE_SENDING: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("before_sending", default=None)


@contextmanager
def run_before_sending(action: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Await `action` before each request that the session sends inside the block.

    At that time the connection is established, and the next thing that happens is that the request is written to it.
    """
    token = _BEFORE_SENDING.set(action)
    try:
        yield
    finally:
        _BEFORE_SENDING.reset(token)


async def _run_action(*_: object) -> None:
    if (action := _BEFORE_SENDING.get()) is not None:
        await action()


async def session_arguments(model: str) -> dict[str, Any]:
    """Return the arguments with which LiteLLM sends a call to this model through the session of the running loop."""
    session = await loop_session()
    return {"shared_session": session} | ({"client": client_for_session(session)} if can_take_client(model) else {})


async def loop_session() -> ClientSession:
    """Return the session of the running loop. It and LiteLLM's clients of this loop are closed when the loop ends.

    LiteLLM keeps a client for each loop by the loop's address. If it were not closed, its sockets would leak, and a
    later loop at the same address would get dead connections.
    """
    loop = asyncio.get_running_loop()
    session_and_closer = _sessions.get(loop)
    if session_and_closer is None:
        session = _open_session()
        closer = _close_with_loop(session)
        session_and_closer = _sessions[loop] = session, closer
        await anext(closer)
    return session_and_closer[0]


def _open_session() -> ClientSession:
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_run_action)
    trace.on_connection_reuseconn.append(_run_action)
    return aiohttp.ClientSession(
        # The session has no limit of connections, because each worker's own limit applies before.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ttl_dns_cache=_KEEP_NAMES_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_bounded_response_class(),
        trace_configs=[trace],
        trust_env=bool(import_litellm().aiohttp_trust_env),
    )


async def _close_with_loop(session: ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield  # asyncio.run ends its loop's generators here, while the loop still runs
    finally:
        clients = cached_clients()
        suffix = f"-{id(asyncio.get_running_loop())}"
        for key in [key for key in clients if str(key).endswith(suffix)]:
            await clients.pop(key).close()
        await session.close()


@cache
def _bounded_response_class() -> type[ClientResponse]:
    import aiohttp

    class Bounded(aiohttp.ClientResponse):
        """A response that raises `ClientPayloadError`, as a broken connection does, if it has more than
        `MAX_REPLY_BYTES`."""

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if (self.content_length or 0) > MAX_REPLY_BYTES:
                self.close()
                raise _too_long_error()
            self.content = _BoundedStream(self.content)  # type: ignore[assignment]
            return self

    return Bounded


class _BoundedStream:
    """The stream of a body that raises an error if it becomes too long; needed for replies that do not declare their
    length."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._content.iter_chunked(size):
            total += len(chunk)
            if total > MAX_REPLY_BYTES:
                raise _too_long_error()
            yield chunk


def _too_long_error() -> Exception:
    import aiohttp

    return aiohttp.ClientPayloadError(f"more than {MAX_REPLY_BYTES} bytes")
