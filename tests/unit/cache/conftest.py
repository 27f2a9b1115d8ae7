"""A real Redis server on loopback, and a cache in each of the two backends."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.cache import ResponseCache
from tests import needs
from tests.faults.clients import server as server

OpenCache = Callable[[], ResponseCache]


class RedisServer:
    """A server of the test itself, without a file."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
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
