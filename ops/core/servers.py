"""Servers that a team shares, by the URL in an environment variable."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ops.core.errors import ConfigError

_TIMEOUT_S = 10.0


def shown(url: str) -> str:
    """The URL without what may be a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def redis_client(url: str, variable: str) -> Any:
    """A client of the Redis server that the environment's `variable` names; it connects when it is first used.

    Raises `ConfigError` where the client is not installed or the URL is none.
    """
    try:
        import redis
    except ModuleNotFoundError:
        raise ConfigError(
            variable, shown(url), "needs the Redis client, which is not installed", "Run: python -m pip install redis"
        ) from None
    try:
        return redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
    except ValueError:
        remedy = "Write redis://HOST:PORT/DB, or unset it"
        raise ConfigError(variable, shown(url), "is no address of a Redis server", remedy) from None
