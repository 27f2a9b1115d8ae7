"""Properties of a store on a server: one call at a time over all processes, and an unreachable server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ops.core.errors import CacheUnavailable, ConfigError
from ops.store import CACHE_URL, ResponseCache, cache_key, cache_material, open_cache
from ops.store.admin import UNKNOWN_MODEL, list_contents
from ops.store.entries import Entry
from ops.store.postgres import PostgresBackend
from ops.store.redis_server import RedisBackend
from tests import needs
from tests.unit.store.conftest import LEASE_S, RESPONSE, SERVERS, claims, holder, server_url, take


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    return server_url(request.param, request)


OPENED: list[ResponseCache] = []


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    """Close what a test has opened, where there is a server."""
    yield
    while OPENED:
        with suppress(CacheUnavailable):
            OPENED.pop().close()


def shared(url: str) -> ResponseCache:
    OPENED.append(ResponseCache(RedisBackend(url) if url.startswith("redis") else PostgresBackend(url, patience_s=0.1)))
    return OPENED[-1]


def expire(url: str, key: str) -> None:
    """Simulate that the holder of a claim was suspended for longer than its lease."""
    if url.startswith("redis"):
        import redis

        redis.Redis.from_url(url).delete(f"podium:claim:{key}")
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("UPDATE podium_store.claims SET until = clock_timestamp() WHERE name = %s", (key,))


def test_a_claim_is_renewed_while_its_holder_runs_and_expires_afterwards(url: str) -> None:
    cache = shared(url)
    with holder(url, 1.0) as process:
        for _ in range(8):
            time.sleep(0.5)
            assert claims(cache, "waiting")[0] is None
        os.kill(process.pid, signal.SIGKILL)
    take(cache, "waiting").release()


def test_a_claim_of_a_call_that_was_sent_lasts_as_long_as_its_answer_may_come(url: str) -> None:
    with holder(url, 2 * LEASE_S) as process:
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
    claim = take(shared(url), "sent")
    assert time.monotonic() - began > 1.5 * LEASE_S
    claim.release()


def test_a_claim_that_ran_out_is_not_taken_from_its_new_holder(url: str) -> None:
    cache = shared(url)
    first = claims(cache, "key")[0]
    expire(url, "key")
    second = claims(shared(url), "key")[0]
    assert cache.mark_sent({"key": 60.0}) == set()
    first.release()
    assert claims(shared(url), "key")[0] is None
    second.release()


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_an_unreachable_server_is_reported_without_its_password(kind: str) -> None:
    cache = shared(f"{kind}://me:s3cret-word@127.0.0.1:1/0")
    for ask in (lambda: cache.get("key"), lambda: cache.put_many([("key", "{}", RESPONSE)]), lambda: len(cache)):
        with pytest.raises(CacheUnavailable, match=rf"{kind}://127\.0\.0\.1:1/0") as caught:
            ask()
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in cache.backend.name


@needs.postgres
def test_paid_responses_in_postgres_tables_of_an_earlier_version_are_carried_over(
    request: pytest.FixtureRequest,
) -> None:
    import psycopg

    url, key = server_url("postgres", request), cache_key({"model": "m"}, [], 0)
    entry = Entry.from_response(key, cache_material({"model": "m"}, [], 0), RESPONSE, 1.0)
    with psycopg.connect(url, options="-c search_path=podium_store") as connection:
        for statement in (
            "CREATE SCHEMA podium_store",
            "CREATE TABLE version (steps INTEGER NOT NULL)",
            "INSERT INTO version VALUES (1)",
            """CREATE TABLE entries (
                kind TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL, body BYTEA NOT NULL, checksum TEXT NOT NULL,
                material TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
                worker BIGINT NOT NULL, messages BIGINT NOT NULL, opening TEXT COLLATE "C" NOT NULL,
                PRIMARY KEY (kind, key))""",
            "CREATE INDEX near ON entries (opening, messages) WHERE kind = 'response'",
            "CREATE TABLE identities (worker BIGINT PRIMARY KEY, identity TEXT NOT NULL)",
            "CREATE TABLE claims (name TEXT PRIMARY KEY, token TEXT NOT NULL, until TIMESTAMPTZ NOT NULL)",
        ):
            connection.execute(statement)
        connection.execute("INSERT INTO entries VALUES (%s, %s, %s, %s, %s, %s, 2, 3, '')", entry)
    cache = shared(url)
    assert cache.get(key) == replace(RESPONSE, retries=0, cached=True)
    cache.put_many([("another", "{}", RESPONSE)])
    assert {(each.model, each.entries) for each in list_contents(cache.backend)} == {("m", 1), (UNKNOWN_MODEL, 1)}
    claims(shared(url), "another")[0].release()


def test_the_environment_names_the_cache(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_URL, url)
    open_cache(tmp_path).put_many([("key", "{}", RESPONSE)])
    assert shared(url).get("key") is not None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv(CACHE_URL)
    assert open_cache(tmp_path).get("key") is None
    monkeypatch.setenv(CACHE_URL, "mysql://me:s3cret@host/db")
    with pytest.raises(ConfigError, match="is not an address of a Redis or Postgres server") as caught:
        open_cache(tmp_path)
    assert "s3cret" not in str(caught.value)
