"""The HTTP session of an event loop: it bounds the size of replies, and closes when the loop ends.

LiteLLM would make its own session; this one refuses an implausibly large reply before it is in memory.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from ops.workers.litellm_private import client_with, kept_clients, takes_client
from ops.workers.providers import litellm

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MOST_REPLY_BYTES = 16_000_000
"""Several times the size of the longest answer with its reasoning."""
_KEEP_ALIVE_S, _KEEP_NAMES_S = 120, 300
_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[ClientSession, AsyncGenerator[None, None]]]
_sessions = weakref.WeakKeyDictionary()


_BEFORE_SENDING: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("before_sending", default=None)


@contextmanager
def before_sending(action: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Await `action` before each request that the session sends inside the block: its connection stands by then, and
    the next thing that happens is that the request is written to it."""
    token = _BEFORE_SENDING.set(action)
    try:
        yield
    finally:
        _BEFORE_SENDING.reset(token)


async def _prepare(*_: object) -> None:
    if (action := _BEFORE_SENDING.get()) is not None:
        await action()


async def way_out(model: str) -> dict[str, Any]:
    """Return the arguments with which LiteLLM sends a call to this model through the running loop's session."""
    session = await session_of_loop()
    return {"shared_session": session} | ({"client": client_with(session)} if takes_client(model) else {})


async def session_of_loop() -> ClientSession:
    """Return the running loop's session; it and LiteLLM's clients of the loop are closed when the loop ends.

    LiteLLM keeps one client per loop, by the loop's address: left open, its sockets leak, and a later loop at the same
    address would get dead connections.
    """
    loop = asyncio.get_running_loop()
    kept = _sessions.get(loop)
    if kept is None:
        session = _open()
        closing = _closing(session)
        kept = _sessions[loop] = session, closing
        await anext(closing)
    return kept[0]


def _open() -> ClientSession:
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_prepare)
    trace.on_connection_reuseconn.append(_prepare)
    return aiohttp.ClientSession(
        # No limit here, because each worker's own limit applies before.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ttl_dns_cache=_KEEP_NAMES_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_bounded_response(),
        trace_configs=[trace],
        trust_env=bool(litellm().aiohttp_trust_env),
    )


async def _closing(session: ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield  # asyncio.run ends its loop's generators here, while the loop still runs
    finally:
        kept = kept_clients()
        suffix = f"-{id(asyncio.get_running_loop())}"
        for key in [key for key in kept if str(key).endswith(suffix)]:
            await kept.pop(key).close()
        await session.close()


@cache
def _bounded_response() -> type[ClientResponse]:
    import aiohttp

    class Bounded(aiohttp.ClientResponse):
        """Raises `ClientPayloadError`, as a broken connection does, for more than `MOST_REPLY_BYTES`."""

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if (self.content_length or 0) > MOST_REPLY_BYTES:
                self.close()
                raise _too_long()
            self.content = _Counted(self.content)  # type: ignore[assignment]
            return self

    return Bounded


class _Counted:
    """A body's stream that ends in an error if it is too long; for replies without a length."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._content.iter_chunked(size):
            total += len(chunk)
            if total > MOST_REPLY_BYTES:
                raise _too_long()
            yield chunk


def _too_long() -> Exception:
    import aiohttp

    return aiohttp.ClientPayloadError(f"more than {MOST_REPLY_BYTES} bytes")
