"""The store in a Redis server, so that the members of a team share values and compute each of them only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ops.core.errors import CacheUnavailable
from ops.core.servers import hide_password, open_redis_client
from ops.store.claims import Lease, LeasedClaim, LeasedClaims
from ops.store.entries import (
    CACHE_URL,
    Entry,
    Kind,
    StoredValue,
    claim_name,
)

_PREFIX = "podium:{}:"
"""The prefix of the name of an entry of one kind. The entry's key follows it."""
_CLAIM = "podium:claim:"
_PAGE = 500


class RedisBackend:
    """A `Backend` in the Redis server at `url` (``redis://HOST:PORT/DB``; ``rediss://`` for TLS), whose interface
    documents the methods.

    `lease_s` is the duration of a claim in seconds (`LeasedClaims`). Raises `ConfigError` for an invalid URL, or if the
    package `redis` is not installed. Every method raises `CacheUnavailable` if the server does not answer.
    """

    def __init__(self, url: str, *, lease_s: float = 30.0) -> None:
        self._client = open_redis_client(url, CACHE_URL)
        self.name = hide_password(url)
        self._claims = LeasedClaims(_RedisLeases(self), lease_s)

    def select(self, kind: Kind, keys: Sequence[str]) -> dict[str, StoredValue]:
        stored_values = {}
        for batch, values in self._ask_in_batches(
            keys, lambda pipe, key: pipe.hmget(_entry_name(kind, key), "body", "checksum")
        ):
            for key, (body, checksum) in zip(batch, values, strict=True):
                if body is not None or checksum is not None:
                    stored_values[key] = StoredValue(body or b"", _decode_text(checksum))
        return stored_values

    def insert(self, entries: Sequence[Entry]) -> None:
        with self.translate_errors(), self._client.pipeline(transaction=True) as pipeline:
            for entry in entries:
                fields = entry._asdict()
                pipeline.hset(_entry_name(fields.pop("kind"), entry.key), mapping=fields)
            pipeline.execute()

    def delete(self, kind: str, keys: Sequence[str]) -> None:
        with self.translate_errors(), self._client.pipeline(transaction=True) as pipeline:
            for key in keys:
                pipeline.delete(_entry_name(kind, key))
            pipeline.execute()

    def find_existing(self, kind: Kind, keys: Sequence[str]) -> set[str]:
        stored_keys: set[str] = set()
        for batch, replies in self._ask_in_batches(keys, lambda pipe, key: pipe.exists(_entry_name(kind, key))):
            stored_keys.update(key for key, is_stored in zip(batch, replies, strict=True) if is_stored)
        return stored_keys

    def count(self, kind: Kind) -> int:
        with self.translate_errors():  # SCAN returns some names twice if entries are written meanwhile
            return len(set(self._client.scan_iter(match=f"{_entry_name(kind, '')}*", count=_PAGE)))

    def iterate_entries(self) -> Iterator[Entry]:
        for kind in Kind:
            with self.translate_errors():
                names = self._client.scan_iter(match=f"{_entry_name(kind, '')}*", count=_PAGE)
                for page in _split_into_pages(names):
                    with self._client.pipeline(transaction=False) as pipeline:
                        for name in page:
                            pipeline.hgetall(name)
                        entries = pipeline.execute()
                    for name, fields in zip(page, entries, strict=True):
                        if fields:
                            yield _entry(kind, name, fields)

    def find(self, prefix: str) -> Entry | None:
        with self.translate_errors():
            for kind in Kind:
                for name in self._client.scan_iter(match=f"{_entry_name(kind, prefix)}*", count=_PAGE):
                    if fields := self._client.hgetall(name):
                        return _entry(kind, name, fields)
        return None

    def claim(self, kind: Kind, keys: Sequence[str]) -> list[LeasedClaim | None]:
        return self._claims.try_claim([claim_name(kind, key) for key in keys])

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        return self._claims.mark_sent(seconds)

    def close(self) -> None:
        """Close the connections. The claims of this process remain."""
        with self.translate_errors():
            self._client.close()

    def _ask_in_batches(
        self, keys: Sequence[str], send_request: Callable[[Any, str], object]
    ) -> Iterator[tuple[Sequence[str], list[Any]]]:
        """Send a request for each key, many of them in one round trip. Yields batches of keys with their replies."""
        for start in range(0, len(keys), _PAGE):
            batch = keys[start : start + _PAGE]
            with self.translate_errors(), self._client.pipeline(transaction=False) as pipeline:
                for key in batch:
                    send_request(pipeline, key)
                replies = pipeline.execute()
            yield batch, replies

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise `CacheUnavailable` if the server does not answer in the block."""
        import redis

        try:
            yield
        except redis.RedisError as error:
            raise CacheUnavailable(
                f"the store {self.name} ({CACHE_URL}) does not answer correctly ({type(error).__name__}). "
                "Start or repair the server and run again: stored responses are not paid for again"
            ) from None


class _RedisLeases:
    """Leases as locks in the format of redis-py, whose scripts act only while the holder still has the lock.

    redis-py's own `Lock` takes one lock per round trip and is not used, because 256 claims would take 54 ms instead of
    12 ms on loopback.
    """

    def __init__(self, backend: RedisBackend) -> None:
        from redis.lock import Lock

        self._client, self._asking = backend._client, backend.translate_errors
        self._renew = self._client.register_script(Lock.LUA_REACQUIRE_SCRIPT)
        self._release = self._client.register_script(Lock.LUA_RELEASE_SCRIPT)

    def acquire(self, names: Sequence[str], lease: Lease) -> Sequence[bool]:
        with self._asking(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.set(_CLAIM + name, lease.token, nx=True, px=int(1000 * lease.seconds))
            return list(map(bool, pipeline.execute()))

    def renew(self, leases: Mapping[str, Lease]) -> set[str]:
        with self._asking(), self._client.pipeline(transaction=False) as pipeline:
            for name, lease in leases.items():
                self._renew([_CLAIM + name], [lease.token, int(1000 * lease.seconds)], client=pipeline)
            return {name for name, renewed in zip(leases, pipeline.execute(), strict=True) if renewed}

    def release(self, name: str, token: str) -> None:
        with self._asking():
            self._release([_CLAIM + name], [token])


def _entry_name(kind: str, key: str) -> str:
    return _PREFIX.format(kind) + key


def _entry(kind: Kind, name: bytes, fields: dict[bytes, bytes]) -> Entry:
    return Entry(
        kind,
        _decode_text(name).removeprefix(_entry_name(kind, "")),
        fields.get(b"body", b""),
        _decode_text(fields.get(b"checksum")),
        _decode_text(fields.get(b"material")),
        float(fields.get(b"created", 0)),
    )


def _split_into_pages(names: Iterator[bytes]) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    for name in names:
        page.append(name)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _decode_text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
