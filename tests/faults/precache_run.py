"""A process that precaches and can be killed at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ops.config import Worker
from ops.core.problem import Problem
from ops.precaching.precache import precache_worker, write_responses
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account


@dataclass(frozen=True)
class Order:
    """The problems and workers; cache, ledger and the table `rows.parquet` are in `folder`."""

    folder: Path
    worker: Worker
    problems: Sequence[Problem]


def live(order: Order, end: Connection) -> None:
    """Report readiness, wait for a message, precache, and return the number of rows."""
    end.send("ready")
    end.recv()
    client = WorkerClient(
        ResponseCache(order.folder), Ledger(order.folder / "ledger.sqlite"), Account("run", "precache", 10.0)
    )
    rows = asyncio.run(precache_worker(order.problems, order.worker, client))
    write_responses(rows, order.folder / "rows.parquet")
    end.send(len(rows))
