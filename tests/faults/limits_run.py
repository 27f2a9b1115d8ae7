"""One of several processes that call the same worker, each with its own questions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.async_run import run_async
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from tests.faults.remote import remote_worker, user

WARM_UP = "LiteLLM's first call takes its time"


@dataclass(frozen=True)
class Order:
    """A process's task: `count` questions to the server at `url`, distinguished by `name`."""

    url: str
    folder: Path
    name: str
    count: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the worker."""
    cache: str = ""
    """The name of a response cache that several processes share; by default each has its own."""
    workers: int = 1
    """The number of workers at the server, which are asked in turn."""


def live(order: Order, end: Connection) -> None:
    """Report readiness, wait for a message, send all questions, and return the number of answers."""
    run_async(_ask_all(order, end))


def several(url: str, count: int, **settings: Any) -> list[Worker]:
    """Return workers at `url`, each with a name and an endpoint of its own."""
    return [remote_worker(f"{url}/{n}", name=f"remote-{n}", **settings) for n in range(count)]


async def _ask_all(order: Order, end: Connection) -> None:
    workers = several(order.url, order.workers, **order.settings)
    cache, ledger = ResponseCache(order.folder / (order.cache or order.name)), Ledger(order.folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("run", "test", 10.0))
    warm = workers[0].model_copy(update={"name": f"warm-{order.name}", "requests_per_minute": None})
    await client.complete(warm, user(WARM_UP))
    end.send("ready")
    await asyncio.to_thread(end.recv)
    turns = zip(cycle(workers), range(order.count))
    prompts = ((each, user(f"{order.name} {number}")) for each, number in turns)
    end.send(len(await asyncio.gather(*(client.complete(each, prompt) for each, prompt in prompts))))
