"""Servers that a team shares: the environment variables with their URLs, and the renewal of leases that a process holds
there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ops.core.errors import ConfigError
from ops.core.installation import install_extra_command

_TIMEOUT_S = 10.0


class _AddressKind(NamedTuple):
    """The URLs that an environment variable accepts."""

    name: str
    schemes: tuple[str, ...]
    example: str


_REDIS = _AddressKind("Redis server", ("redis", "rediss", "unix"), "redis://HOST:PORT/DB")
_REDIS_OR_POSTGRES = _AddressKind(
    "Redis or Postgres server",
    ("redis", "rediss", "unix", "postgresql", "postgres"),
    "redis://HOST:PORT/DB or postgresql://USER:PASSWORD@HOST:PORT/DB",
)
_POSTGRES = _AddressKind("Postgres server", ("postgresql", "postgres"), "postgresql://USER:PASSWORD@HOST:PORT/DB")
_MLFLOW = _AddressKind(
    "MLflow store",
    ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks", "databricks-uc"),
    "http://HOST:PORT or sqlite:///FILE",
)
_VARIABLES = {
    "PODIUM_CACHE_URL": _REDIS_OR_POSTGRES,
    "PODIUM_LIMITS_URL": _REDIS,
    "PODIUM_LEDGER_URL": _POSTGRES,
    "MLFLOW_TRACKING_URI": _MLFLOW,
}


def find_invalid_addresses(*, mlflow: bool = True) -> Iterator[ConfigError]:
    """Yield an error for each environment variable that is set to an invalid address. No server is contacted.

    With `mlflow`, MLflow's variable is checked too; a rehearsal does not use it.
    """
    for variable in _VARIABLES:
        url = os.environ.get(variable)
        if url and (mlflow or variable != "MLFLOW_TRACKING_URI"):
            try:
                check_address(url, variable)
            except ConfigError as error:
                yield error


def check_addresses(*, mlflow: bool = True) -> None:
    """Raise the first error of `find_invalid_addresses`. It is called before any money is spent."""
    for error in find_invalid_addresses(mlflow=mlflow):
        raise error


def check_address(url: str, variable: str) -> None:
    """Raise `ConfigError` if `url` is not an address of the kind that `variable` needs.

    The message does not contain the URL, because it may contain a password.
    """
    kind = _VARIABLES[variable]
    if not _is_address(url, kind):
        raise ConfigError(variable, "", f"is not an address of a {kind.name}", f"Write {kind.example}, or unset it")


def _is_address(url: str, kind: _AddressKind) -> bool:
    if kind is _MLFLOW and (url == "databricks" or Path(url).is_absolute()):
        return True
    if any(character <= " " for character in url) or not ("://" in url or url.startswith("file:")):
        return False
    try:
        parts = urlsplit(url)
        several_hosts = kind in (_POSTGRES, _REDIS_OR_POSTGRES) and "," in parts.netloc  # each with its own port
        usable = several_hosts or parts.port is None or parts.port > 0
    except ValueError:
        return False
    scheme = parts.scheme.partition("+")[0]
    return usable and scheme in kind.schemes and (scheme not in ("http", "https") or bool(parts.hostname))


def hide_password(url: str) -> str:
    """Return the URL without user name and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_redis_client(url: str, variable: str) -> Any:
    """Return a client of the Redis server at `url`, which connects at its first use.

    `variable` is the environment variable that holds the URL. Raises `ConfigError` if the Redis package is not
    installed or the URL is invalid.
    """
    check_address(url, variable)
    try:
        import redis
    except ModuleNotFoundError:
        raise ConfigError(
            variable,
            hide_password(url),
            "needs the Redis client, which is not installed",
            f"Run {install_extra_command('redis')}",
        ) from None
    return redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)


K = TypeVar("K")
V = TypeVar("V")


class LeaseRenewer(Generic[K, V]):
    """Holds leases by key, and renews them in a background thread that calls `renew` with all of them every `every_s`
    seconds.

    After a fork, the child holds none of its parent's leases. An exception of `renew` ends the thread, so `renew` must
    handle transient errors itself.
    """

    def __init__(self, name: str, every_s: float, renew: Callable[[dict[K, V]], object]) -> None:
        self._name, self._every_s, self._renew = name, every_s, renew
        self._held: dict[K, V] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @contextmanager
    def locked(self) -> Iterator[dict[K, V]]:
        """Yield the dictionary of leases under a lock. Leases that the block adds are renewed from then on, removed
        ones are not."""
        if self._pid != os.getpid():  # after a fork, neither the thread nor the holder of the lock exists
            self._held, self._thread, self._lock, self._pid = {}, None, threading.Lock(), os.getpid()
        with self._lock:
            try:
                yield self._held
            finally:
                if self._held and self._thread is None:
                    self._thread = threading.Thread(target=self._renew_repeatedly, name=self._name, daemon=True)
                    self._thread.start()

    def _renew_repeatedly(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._every_s):
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                held = dict(self._held)
            self._renew(held)
