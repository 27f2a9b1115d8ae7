"""A run with the same questions as its siblings, in a process that can be killed at any moment."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ops.cache import ResponseCache
from ops.config import Worker
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from tests.faults.processes import Process

CONCURRENCY = 4
WARM_UP = "a first one, with a cache and a ledger of its own"
"""The first call of a process prepares things for seconds."""


@dataclass(frozen=True)
class Order:
    """The task of each process."""

    folder: Path
    worker: Worker
    questions: int
    cap_usd: float = 1.0


@contextmanager
def running(order: Order, count: int) -> Iterator[list[Process]]:
    """Give processes that are ready to begin; kill the remaining ones in the end."""
    processes: list[Process] = []
    try:
        processes.extend(Process(_live, order) for _ in range(count))
        for process in processes:
            process.wait_until_ready()
        yield processes
    finally:
        for process in processes:
            process.kill()


def _live(order: Order, end: Connection) -> None:
    asyncio.run(_ask_all(order, end))


async def _ask_all(order: Order, end: Connection) -> None:
    await _client(order, f"of {os.getpid()}").complete(order.worker, [{"role": "user", "content": WARM_UP}])
    end.send("ready")
    await asyncio.to_thread(end.recv)
    client = _client(order, "")
    prompts = ([{"role": "user", "content": f"question {number}"}] for number in range(order.questions))
    calls = (client.complete(order.worker, prompt) for prompt in prompts)
    results = await asyncio.gather(*calls, return_exceptions=True)
    end.send(Counter("answered" if not isinstance(r, BaseException) else type(r).__name__ for r in results))


def _client(order: Order, name: str) -> WorkerClient:
    cache, ledger = ResponseCache(order.folder / name / "cache"), Ledger(order.folder / name / "ledger.sqlite")
    return WorkerClient(cache, ledger, Account("run", "test", order.cap_usd), backoff_s=0.01)
