"""Which of the calls that ended without an answer may be billed all the same."""

from __future__ import annotations

from collections.abc import Iterator

from ops.core.errors import ConfigError


def may_be_billed(error: BaseException) -> bool:
    """Whether the provider may have served a call that left and ended in this error.

    Not when it answered with an error's status, nor when the call never left this machine: for want of a connection,
    of credentials or of a package. After a time-out, a cancellation or a broken connection it may be billed.
    """
    import aiohttp
    import httpx

    if isinstance(error, ConfigError) or getattr(error, "in_the_end", None) is not None:
        return False
    unserved = (httpx.HTTPStatusError, httpx.ConnectTimeout, aiohttp.ClientConnectorError)
    return not any(isinstance(cause, unserved) for cause in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
