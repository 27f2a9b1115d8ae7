"""Real Redis and Postgres servers on loopback, a store in each of the backends, and processes that hold claims."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ops.core.processes import free_port
from ops.core.response import Response
from ops.store import Backend, Claim, Kind, ResponseCache
from ops.store.sqlite_file import SqliteBackend
from tests import needs
from tests.faults.clients import server as server
from tests.team.servers import Postgres

OpenCache = Callable[[], ResponseCache]
OpenStore = Callable[[], Backend]
RESPONSE = Response("Answer: 4", 10, 5, 2e-5, 0.25, "stop", retries=2)
LEASE_S = 3.0
_HOLDER = f"""
    import asyncio, sys
    from pathlib import Path
    from ops.store import ResponseCache
    from ops.store.postgres import PostgresBackend
    from ops.store.redis_server import RedisBackend
    from ops.store.sqlite_file import SqliteBackend
    kinds = {{"redis": RedisBackend, "postgresql": PostgresBackend}}
    place = sys.argv[1]
    kind = kinds.get(place.partition("://")[0])
    cache = ResponseCache(kind(place, lease_s={LEASE_S}) if kind else SqliteBackend(Path(place)))
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


def claims(cache: ResponseCache, *keys: str) -> Sequence[Claim | None]:
    """Try to claim the calls of these keys."""
    return cache.backend.claim(Kind.RESPONSE, keys)


def take(cache: ResponseCache, key: str) -> Claim:
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install -e '.[team]')")
    server = Postgres()
    yield server
    server.remove()


SERVERS = [pytest.param("redis", marks=needs.redis), pytest.param("postgres", marks=needs.postgres)]


def server_url(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of an empty database of a server."""
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.client.flushall()
        return server.url
    postgres: Postgres = request.getfixturevalue("postgres_server")
    return postgres.database()


@pytest.fixture(params=["sqlite", *SERVERS])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the same empty store repeatedly, each time with a connection of its own."""
    from ops.store.postgres import PostgresBackend
    from ops.store.redis_server import RedisBackend

    kinds: dict[str, Callable[[str], Backend]] = {"redis": RedisBackend, "postgres": PostgresBackend}
    opened: list[Backend] = []

    def open_one() -> Backend:
        opened.append(SqliteBackend(tmp_path / "cache") if url is None else kinds[request.param](url))
        return opened[-1]

    url = None if request.param == "sqlite" else server_url(request.param, request)
    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def open_cache(open_store: OpenStore) -> OpenCache:
    """Opens the responses of the same empty store repeatedly, each time with separate memory."""
    return lambda: ResponseCache(open_store())


@pytest.fixture
def cache(open_cache: OpenCache) -> ResponseCache:
    return open_cache()
