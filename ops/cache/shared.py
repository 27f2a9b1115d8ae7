"""Rows in a Redis server: one cache, and one call at a time for each key, for a whole team."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from ops.cache.backend import CACHE_URL, CacheRow, Head, Marks, marks
from ops.core.errors import CacheUnavailable
from ops.core.servers import Leases, redis_client, shown

_PREFIX = "podium:response:"
_CLAIM = "podium:claim:"
_NEAR = "podium:near"
"""A sorted set of OPENING, fingerprint of the messages and key; equal scores sort by text."""
_IDENTITIES = "podium:identities"
_PAGE = 500
_TIMEOUT_S = 10.0


class SharedBackend:
    """The Redis server at `url` (``redis://HOST:PORT/DB``, ``rediss://`` for TLS).

    A claim expires `lease_s` seconds after its process died, or when no answer to its call can come any more;
    a running process renews it. Raises
    `ConfigError` for an invalid URL, or without the `redis` package; any method raises
    `CacheUnavailable` when the server does not answer.
    """

    def __init__(self, url: str, *, lease_s: float = 30.0) -> None:
        self._client = redis_client(url, CACHE_URL)
        self.name = shown(url)
        self._claims = _Claims(self._client, lease_s, self._asking)

    def select(self, key: str) -> tuple[bytes, str] | None:
        with self._asking():
            body, checksum = self._client.hmget(_PREFIX + key, "body", "checksum")
        return None if body is None and checksum is None else (body or b"", _text(checksum))

    def insert(self, rows: Sequence[CacheRow]) -> None:
        with self._asking(), self._client.pipeline(transaction=True) as pipeline:
            for row in rows:
                mark = marks(row.material)
                member = _member(mark, row.key)
                pipeline.hset(_PREFIX + row.key, mapping=row._asdict() | {"worker": mark.worker, "near": member})
                pipeline.zadd(_NEAR, {member: 0})
                if mark.worker:
                    pipeline.hsetnx(_IDENTITIES, str(mark.worker), mark.identity)
            pipeline.execute()

    def delete(self, keys: Sequence[str]) -> None:
        with self._asking(), self._client.pipeline(transaction=True) as pipeline:
            for key in keys:
                member = self._client.hget(_PREFIX + key, "near")
                pipeline.delete(_PREFIX + key)
                pipeline.zrem(_NEAR, member or b"")
            pipeline.execute()

    def holds(self, keys: Sequence[str]) -> set[str]:
        stored_keys: set[str] = set()
        for start in range(0, len(keys), _PAGE):
            some = keys[start : start + _PAGE]
            with self._asking(), self._client.pipeline(transaction=False) as pipeline:
                for key in some:
                    pipeline.exists(_PREFIX + key)
                stored_keys.update(key for key, is_there in zip(some, pipeline.execute(), strict=True) if is_there)
        return stored_keys

    def count(self) -> int:
        with self._asking():
            return int(self._client.zcard(_NEAR))

    def heads(self) -> Iterator[Head]:
        for row, worker in self._all():
            yield Head(row.key, worker, row.created, len(row.body) + len(row.material))

    def rows(self) -> Iterator[CacheRow]:
        return (row for row, _ in self._all())

    def row(self, prefix: str) -> CacheRow | None:
        with self._asking():
            for name in self._client.scan_iter(match=f"{_PREFIX}{prefix}*", count=_PAGE):
                if fields := self._client.hgetall(name):
                    return _row(_text(name).removeprefix(_PREFIX), fields)
        return None

    def identities(self) -> dict[int, str]:
        with self._asking():
            return {int(worker): _text(identity) for worker, identity in self._client.hgetall(_IDENTITIES).items()}

    def near(self, marks: Marks, limit: int) -> Iterator[str]:
        same, opening = _member(marks, "").encode(), marks.opening.encode()
        with self._asking():
            members = [
                *self._client.zrange(_NEAR, b"[" + same, b"[" + same + b"\xff", bylex=True, offset=0, num=limit),
                *self._client.zrange(_NEAR, b"[" + opening, b"+", bylex=True, offset=0, num=limit),
                *self._client.zrange(
                    _NEAR, b"(" + opening, b"-", desc=True, bylex=True, offset=0, num=limit
                ),
            ]  # fmt: skip
        keys = [_text(member).rpartition("\0")[2] for member in members]
        for start in range(0, len(keys), _PAGE):
            with self._asking(), self._client.pipeline(transaction=False) as pipeline:
                for key in keys[start : start + _PAGE]:
                    pipeline.hget(_PREFIX + key, "material")
                materials = pipeline.execute()
            yield from (_text(material) for material in materials if material is not None)

    def claim(self, *keys: str) -> list[SharedClaim | None]:
        with self._asking():
            return self._claims.take(keys)

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        return self._claims.mark_sent(seconds)

    def close(self) -> None:
        """Close the connections; this process keeps its claims."""
        with self._asking():
            self._client.close()

    def _all(self) -> Iterator[tuple[CacheRow, int]]:
        with self._asking():
            names = self._client.scan_iter(match=f"{_PREFIX}*", count=_PAGE)
            for page in _pages(names):
                with self._client.pipeline(transaction=False) as pipeline:
                    for name in page:
                        pipeline.hgetall(name)
                    entries = pipeline.execute()
                for name, fields in zip(page, entries, strict=True):
                    if fields:
                        yield _row(_text(name).removeprefix(_PREFIX), fields), int(fields.get(b"worker", 0))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        import redis

        try:
            yield
        except redis.RedisError as error:
            raise CacheUnavailable(
                f"the response cache {self.name} ({CACHE_URL}) does not answer correctly ({type(error).__name__}). "
                "Start or repair the server and run again: stored responses are not paid for again"
            ) from None


class SharedClaim:
    """The claim of one key in Redis, until it is released or its process dies."""

    def __init__(self, claims: _Claims, key: str, token: str) -> None:
        self._claims, self.key, self._token = claims, key, token

    def release(self) -> None:
        """Release the claim. If the server is gone, the claim expires by itself."""
        import redis

        with suppress(redis.RedisError):
            self._claims.drop(self.key, self._token)


class _Claims:
    """This process's claims.

    Each is a lock of redis-py: its token, and its scripts, which act only while the holder still has the lock.
    redis-py's `Lock` is not used because it takes one lock per round trip: 256 claims would take 54 ms instead of 12 ms
    on loopback.
    """

    def __init__(self, client: Any, lease_s: float, asking: Callable[[], AbstractContextManager[None]]) -> None:
        from redis.lock import Lock

        self._client, self._lease_s, self._asking = client, lease_s, asking
        self._renew = client.register_script(Lock.LUA_REACQUIRE_SCRIPT)
        self._release = client.register_script(Lock.LUA_RELEASE_SCRIPT)
        self._leases = Leases[str, tuple[str, float]]("cache claims", lease_s / 3, self._keep)
        """Key → token, and the time until which an answer to a sent call may arrive (monotonic clock)."""

    def take(self, keys: Sequence[str]) -> list[SharedClaim | None]:
        token = secrets.token_hex(16)
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.set(_CLAIM + key, token, nx=True, px=self._milliseconds())
            claims = [
                SharedClaim(self, key, token) if is_ours else None
                for key, is_ours in zip(keys, pipeline.execute(), strict=True)
            ]
        with self._leases.held() as held:
            held.update((claim.key, (token, 0.0)) for claim in claims if claim is not None)
        return claims

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        with self._leases.held() as held:
            tokens = {key: held[key][0] for key in seconds.keys() & held.keys()}
        until = {key: time.monotonic() + seconds[key] for key in tokens}
        with self._asking(), self._client.pipeline(transaction=False) as pipeline:
            for key, token in tokens.items():
                self._renew([_CLAIM + key], [token, self._milliseconds(until[key])], client=pipeline)
            kept = {key for key, renewed in zip(tokens, pipeline.execute(), strict=True) if renewed}
        with self._leases.held() as held:
            held.update((key, (tokens[key], until[key])) for key in kept & held.keys())
        return kept

    def drop(self, key: str, token: str) -> None:
        with self._leases.held() as held:
            if held.get(key, ("",))[0] == token:
                del held[key]
        self._release([_CLAIM + key], [token])

    def _keep(self, held: dict[str, tuple[str, float]]) -> None:
        import redis

        # The calls that hold these claims receive an error themselves.
        with suppress(redis.RedisError), self._client.pipeline(transaction=False) as pipeline:
            for key, (token, until) in held.items():
                self._renew([_CLAIM + key], [token, self._milliseconds(until)], client=pipeline)
            pipeline.execute()

    def _milliseconds(self, until: float = 0.0) -> int:
        return int(1000 * max(self._lease_s, until - time.monotonic()))


def _member(mark: Marks, key: str) -> str:
    return f"{mark.opening}\0{mark.messages % 2**64:016x}\0{key}"


def _row(key: str, fields: dict[bytes, bytes]) -> CacheRow:
    return CacheRow(
        key,
        fields.get(b"body", b""),
        _text(fields.get(b"checksum")),
        _text(fields.get(b"material")),
        float(fields.get(b"created", 0)),
    )


def _pages(names: Iterator[bytes]) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    for name in names:
        page.append(name)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
