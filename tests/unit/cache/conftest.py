"""A real Redis server on loopback, a cache in each of the two backends, and processes that hold claims."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.cache import CallClaim, ResponseCache
from ops.core.processes import free_port
from ops.core.response import Response
from ops.core.usage import Usage
from tests import needs
from tests.faults.clients import server as server

OpenCache = Callable[[], ResponseCache]
RESPONSE = Response("Answer: 4", Usage(10, 5), 2e-5, 0.25, "stop", retries=2)
LEASE_S = 3.0
_HOLDER = f"""
    import asyncio, sys
    from pathlib import Path
    from ops.cache import CallClaim, ResponseCache
    from ops.cache.shared import SharedBackend
    place = sys.argv[1]
    cache = ResponseCache(SharedBackend(place, lease_s={LEASE_S}) if "://" in place else Path(place))
    claims = [asyncio.run(cache.claim(key)) for key in ("waiting", "sent")]
    cache.mark_sent({{"sent": float(sys.argv[2])}})
    print("held", flush=True)
    sys.stdin.readline()
    if not cache.mark_sent({{"waiting": 60.0}}):
        print("lost", flush=True)
"""


def holder(place: Path | str, sent_s: float) -> subprocess.Popen[str]:
    """A process that holds the claims of two keys and has sent the call of one."""
    command = [sys.executable, "-c", textwrap.dedent(_HOLDER), str(place), str(sent_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "held"
    return process


def take(cache: ResponseCache, key: str) -> CallClaim:
    """Wait for the claim."""
    claim = asyncio.run(asyncio.wait_for(cache.claim(key), 60))
    assert not isinstance(claim, Response)
    return claim


class RedisServer:
    """A server of the test itself, without a file."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        import redis

        self.client = redis.Redis.from_url(self.url)
        for _ in range(200):
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.05)
        raise RuntimeError("redis-server did not start within ten seconds")

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(params=["local", pytest.param("shared", marks=needs.redis)])
def open_cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenCache]:
    """Opens the same empty cache repeatedly, each time with separate memory."""
    if request.param == "local":
        yield lambda: ResponseCache(tmp_path / "cache")
        return
    from ops.cache.shared import SharedBackend

    server: RedisServer = request.getfixturevalue("redis_server")
    server.client.flushall()
    yield lambda: ResponseCache(SharedBackend(server.url))


@pytest.fixture
def cache(open_cache: OpenCache) -> ResponseCache:
    return open_cache()
