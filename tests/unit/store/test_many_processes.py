"""Eight processes on one cache: no lost write, no wrong value, one flight per call.

A second of each kind, and in `make soak` 20 s of the local cache and 10 s of Redis;
PODIUM_SOAK_S sets another length.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from ops.config import Price, Worker
from ops.core.response import Response
from ops.core.usage import Usage
from ops.spending.ledger import Ledger
from ops.store import Backend, ResponseCache
from ops.store.postgres import PostgresBackend
from ops.store.redis_server import RedisBackend
from ops.store.sqlite_file import SqliteBackend
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from tests import needs
from tests.faults.processes import Process
from tests.faults.remote import FaultServer
from tests.unit.store.conftest import server_url

PROCESSES = 8
ASKED_AT_ONCE = 8
PUT_EACH_TURN, LEAST_WRITTEN = 5, 25


def open_place(place: str) -> ResponseCache:
    backend: Backend = SqliteBackend(Path(place))
    if place.startswith("redis://"):
        backend = RedisBackend(place)
    elif "://" in place:
        backend = PostgresBackend(place)
    return ResponseCache(backend, memory_chars=2000)  # mostly on disk, where the other processes' responses are


def own_key(process: int, number: int) -> str:
    return f"{process:02}-{number}"


@dataclass(frozen=True)
class Order:
    """The task of one process; `place`: the cache, a folder or an address."""

    place: str
    ledger: Path
    url: str
    process: int
    seconds: float


def _live(order: Order, end: Connection) -> None:
    """Request questions that other processes request too, write rows of its own, and read all rows."""
    process, seconds = order.process, order.seconds
    os.environ["SOAK_KEY"] = f"sk-process-{process}"
    cache = open_place(order.place)
    client = WorkerClient(cache, Ledger(order.ledger), Account("run", "test", 1e6), backoff_s=0.01)
    worker = Worker(
        name="remote", model="openai/some-model", api_base=order.url, api_key_env="SOAK_KEY",
        price=Price(input=1.0, output=1.0), max_tokens=64, concurrency=32,
    )  # fmt: skip
    chance = random.Random(process)
    asked_questions: set[str] = set()
    wrong: list[str] = []
    written = reads = 0

    async def ask(question: str) -> None:
        response = await client.complete(worker, [{"role": "user", "content": question}])
        if response.text != f"You asked:\n{question}":
            wrong.append(f"{question}: {response.text}")
        asked_questions.add(question)

    async def live() -> None:
        nonlocal written, reads
        await ask(f"of {process} alone")  # imports LiteLLM
        end.send("ready")
        await asyncio.to_thread(end.recv)
        start = time.monotonic()
        while (elapsed := time.monotonic() - start) < seconds or written < LEAST_WRITTEN:
            window = int(5 * elapsed)  # all processes request the same questions at the same time
            questions = [f"question {window + chance.randrange(10)}" for _ in range(ASKED_AT_ONCE)]
            await asyncio.gather(*(ask(question) for question in questions + questions[:3]))
            for number in range(written, written + PUT_EACH_TURN):
                key = own_key(process, number)
                cache.put_many([(key, "{}", Response(f"text of {key}", Usage(1, 1), 0.0, 0.0, "stop"))])
            written += PUT_EACH_TURN
            for _ in range(20):
                key = own_key(chance.randrange(PROCESSES), chance.randrange(written))
                if (response := cache.get(key)) is not None:
                    reads += 1
                    if response.text != f"text of {key}":
                        wrong.append(f"{key}: {response.text}")

    asyncio.run(live())
    end.send((process, written, reads, sorted(asked_questions), wrong))


def _run_together(place: str, ledger: Path, url: str, seconds: float) -> list[Any]:
    processes = [Process(_live, Order(place, ledger, url, number, seconds)) for number in range(PROCESSES)]
    try:
        for process in processes:
            process.wait_until_ready()
        for process in processes:
            process.begin()
        return [process.outcome() for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("local", 1.0),
        pytest.param("redis", 1.0, marks=needs.redis),
        pytest.param("postgres", 1.0, marks=needs.postgres),
        pytest.param("local", 20.0, marks=pytest.mark.soak),
        pytest.param("redis", 10.0, marks=[pytest.mark.soak, needs.redis]),
        pytest.param("postgres", 10.0, marks=[pytest.mark.soak, needs.postgres]),
    ],
)
def test_eight_processes_share_a_cache(
    kind: str, seconds: float, tmp_path: Path, server: FaultServer, request: pytest.FixtureRequest
) -> None:
    server.order(rate=1.0, faults=["echo"], latency_s=0.02)
    place = str(tmp_path / "cache") if kind == "local" else server_url(kind, request)
    seconds = float(os.environ.get("PODIUM_SOAK_S", seconds))
    results = _run_together(place, tmp_path / "ledger.sqlite", f"{server.url}/v1", seconds)

    log = Counter(entry["prompt"] for entry in server.log() if entry["event"] == "came")
    assert [wrong for *_, wrongs in results for wrong in wrongs] == []
    assert all(reads for _, _, reads, _, _ in results)
    cache = open_place(place)
    lost = [
        key
        for process, written, *_ in results
        for key in (own_key(process, number) for number in range(written))
        if (row := cache.get(key)) is None or row.text != f"text of {key}"
    ]
    assert lost == []
    questions = {question for *_, asked_questions, _ in results for question in asked_questions}
    # One row per question, and no call without one: every paid response is stored.
    assert len(cache) == sum(written for _, written, *_ in results) + len(questions)
    assert log.keys() == questions
    assert max(log.values()) == 1, "a question was asked twice"
    spent = Ledger(tmp_path / "ledger.sqlite").by_run()["run"]
    assert spent.calls == log.total()
    print(
        f"{kind}, {seconds:.0f} s: {log.total()} calls for {len(questions)} questions, "
        f"{sum(written for _, written, *_ in results)} rows written, {sum(r[2] for r in results)} read across"
    )
