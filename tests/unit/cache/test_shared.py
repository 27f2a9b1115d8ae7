"""Properties of a shared cache: one call at a time over all processes, and an unreachable server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.cache import CACHE_URL, ResponseCache, open_cache
from ops.cache.shared import SharedBackend
from ops.core.errors import CacheUnavailable, ConfigError
from ops.core.response import Response

RESPONSE = Response("Answer: 4", 10, 5, 2e-5, 0.25, "stop")


@pytest.fixture
def url(redis_server: Any) -> Iterator[str]:
    redis_server.client.flushall()
    yield redis_server.url


def shared(url: str, lease_s: float = 30.0) -> ResponseCache:
    return ResponseCache(SharedBackend(url, lease_s=lease_s))


_HOLDER = """
    import asyncio, sys, time
    from ops.cache import ResponseCache
    from ops.cache.shared import SharedBackend
    cache = ResponseCache(SharedBackend(sys.argv[1], lease_s=3.0))
    claim = asyncio.run(cache.claim("key"))
    print("held", flush=True)
    time.sleep(120)
"""


def test_a_claim_is_renewed_while_its_holder_runs_and_expires_afterwards(url: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_HOLDER), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        cache = shared(url)
        for _ in range(8):
            time.sleep(0.5)
            assert cache.backend.claim("key")[0] is None
        os.kill(holder.pid, signal.SIGKILL)
    claim = asyncio.run(asyncio.wait_for(cache.claim("key"), 30))
    assert not isinstance(claim, Response)
    claim.release()


def test_a_claim_of_a_call_that_was_sent_lasts_as_long_as_its_answer_may_come(url: str) -> None:
    holder_of_a_sent_call = textwrap.dedent(_HOLDER).replace("print(", "cache.mark_sent({'key': 6.0}); print(")
    command = [sys.executable, "-c", holder_of_a_sent_call, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        began = time.monotonic()
        os.kill(holder.pid, signal.SIGKILL)
    claim = asyncio.run(asyncio.wait_for(shared(url).claim("key"), 60))
    assert time.monotonic() - began > 4.5  # its lease was only three seconds
    assert not isinstance(claim, Response)
    claim.release()


def test_a_claim_that_ran_out_is_not_taken_from_its_new_holder(url: str, redis_server: Any) -> None:
    cache = shared(url)
    first = cache.backend.claim("key")[0]
    assert first is not None
    redis_server.client.delete("podium:claim:key")  # simulates a pause longer than the lease
    second = shared(url).backend.claim("key")[0]
    assert second is not None
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
