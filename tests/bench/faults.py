"""Calls with failures against calls without: the same calls at the
same rate limit, with a fifth of the replies failing.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import WorkerUnreachable
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from tests.bench.row import Row, sized
from tests.faults.remote import FaultServer
from tests.faults.server import RETRY_AFTER_S

CALLS = sized(2000, 100)
PER_MINUTE = 2400
TIMEOUT_S = sized(10, 2)
LATENCY_S = 0.05


def rows() -> list[Row]:
    """Measure the seconds for all calls, minus imposed waits: each
    Retry-After, and time-outs when nothing else is in flight.

    Repeated calls (a quarter more, at this rate) count, as do the client's own pauses.
    """
    with tempfile.TemporaryDirectory() as folder:
        good, _, _ = _night(Path(folder) / "good", rate=0.0)
        bad, waits, unreachable = _night(Path(folder) / "bad", rate=0.2)
    print(f"{CALLS} calls, 20 % faults: {bad:.1f} s, of which imposed {waits:.1f} s; {unreachable} unreachable")
    return [Row(f"{CALLS} calls, 20 % faults", bad - waits, "the same without faults", good, 1.30, "s")]


def _night(folder: Path, rate: float) -> tuple[float, float, int]:
    """Return the seconds of the calls, the seconds that the server imposed, and the number of unanswered calls."""
    folder.mkdir()
    with FaultServer(folder) as server:
        server.order(latency_s=LATENCY_S, seed=1)
        worker = server.worker(concurrency=64, requests_per_minute=PER_MINUTE, timeout_s=TIMEOUT_S, retries=8)
        cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
        client = WorkerClient(cache, ledger, Account("bench", "bench", 10.0))
        taken, unreachable = asyncio.run(_ask(client, worker, server, rate))
        waits = _imposed([entry for entry in server.log() if entry["event"] == "came"])
        cache.close()
        ledger.close()
    return taken, waits, unreachable


async def _ask(client: WorkerClient, worker: Worker, server: FaultServer, rate: float) -> tuple[float, int]:
    await client.complete(worker, [{"role": "user", "content": "first"}])  # imports, connects, opens files
    server.order(rate=rate)
    started = time.perf_counter()
    calls = (client.complete(worker, [{"role": "user", "content": f"question {i}"}]) for i in range(CALLS))
    results = await asyncio.gather(*calls, return_exceptions=True)
    taken = time.perf_counter() - started
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, WorkerUnreachable):
            raise result
    return taken, sum(isinstance(result, WorkerUnreachable) for result in results)


def _imposed(came: list[dict[str, Any]]) -> float:
    """Return the seconds in which the server had requested a wait, or in which only hanging calls were in flight."""
    first: dict[str, float] = {}
    for entry in came:
        first.setdefault(entry["prompt"], entry["time"])
    all_asked = max(first.values())
    pauses = [(e["time"] + LATENCY_S, e["time"] + LATENCY_S + RETRY_AFTER_S) for e in came if e["step"] == "429 after"]
    hung = [(max(e["time"], all_asked), e["time"] + TIMEOUT_S) for e in came if e["step"] in ("hang", "trickle")]
    return _union(pauses + [(begin, end) for begin, end in hung if begin < end])


def _union(spans: Iterable[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


PARTS = (rows,)
"""The measurements of `make bench`."""
