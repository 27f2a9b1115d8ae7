"""Properties of a shared cache: one call at a time over all processes, and an unreachable server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.cache import CACHE_URL, ResponseCache, open_cache
from ops.cache.shared import SharedBackend
from ops.core.errors import CacheUnavailable, ConfigError
from tests.unit.cache.conftest import LEASE_S, RESPONSE, holder, take


@pytest.fixture
def url(redis_server: Any) -> Iterator[str]:
    redis_server.client.flushall()
    yield redis_server.url


def shared(url: str) -> ResponseCache:
    return ResponseCache(SharedBackend(url))


def test_a_claim_is_renewed_while_its_holder_runs_and_expires_afterwards(url: str) -> None:
    cache = shared(url)
    with holder(url, 1.0) as process:
        for _ in range(8):
            time.sleep(0.5)
            assert cache.backend.claim("waiting")[0] is None
        os.kill(process.pid, signal.SIGKILL)
    take(cache, "waiting").release()


def test_a_claim_of_a_call_that_was_sent_lasts_as_long_as_its_answer_may_come(url: str) -> None:
    with holder(url, 2 * LEASE_S) as process:
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
    claim = take(shared(url), "sent")
    assert time.monotonic() - began > 1.5 * LEASE_S
    claim.release()


def test_a_claim_that_ran_out_is_not_taken_from_its_new_holder(url: str, redis_server: Any) -> None:
    cache = shared(url)
    first = cache.backend.claim("key")[0]
    redis_server.client.delete("podium:claim:key")  # simulates a pause longer than the lease
    second = shared(url).backend.claim("key")[0]
    assert cache.mark_sent({"key": 60.0}) == set()
    first.release()
    assert shared(url).backend.claim("key")[0] is None
    second.release()


def test_an_unreachable_server_is_reported_without_its_password() -> None:
    cache = ResponseCache(SharedBackend("redis://:s3cret-word@127.0.0.1:1/0"))
    for ask in (lambda: cache.get("key"), lambda: cache.put_many([("key", "{}", RESPONSE)]), lambda: len(cache)):
        with pytest.raises(CacheUnavailable, match=r"redis://127\.0\.0\.1:1/0") as caught:
            ask()
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in cache.backend.name


def test_the_environment_names_the_cache(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_URL, url)
    open_cache(tmp_path).put_many([("key", "{}", RESPONSE)])
    assert shared(url).get("key") is not None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv(CACHE_URL)
    assert open_cache(tmp_path).get("key") is None
    monkeypatch.setenv(CACHE_URL, "postgres://me:s3cret@host/db")
    with pytest.raises(ConfigError, match="is not an address of a Redis server") as caught:
        open_cache(tmp_path)
    assert "s3cret" not in str(caught.value)
