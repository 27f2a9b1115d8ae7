"""The HTTP session of an event loop: it bounds the size of replies, and closes when the loop ends.

LiteLLM would make its own session; this one refuses an implausibly large reply before it is in memory.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ops.workers.litellm_private import kept_clients
from ops.workers.providers import litellm

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MOST_REPLY_BYTES = 16_000_000
"""Several times the size of the longest answer with its reasoning."""
_KEEP_ALIVE_S, _KEEP_NAMES_S = 120, 300
_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[ClientSession, AsyncGenerator[None, None]]]
_sessions = weakref.WeakKeyDictionary()


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

    return aiohttp.ClientSession(
        # No limit here, because each worker's own limit applies before.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ttl_dns_cache=_KEEP_NAMES_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_bounded_response(),
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
