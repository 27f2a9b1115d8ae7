"""Our client and cache over bare LiteLLM: a call that is made, and a response that is warm."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ops.config import load_pool
from ops.workers.cache import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.ledger import Ledger
from ops.workers.providers import ensure_registered
from ops.workers.types import Message
from ops.workspace import Workspace
from tests.bench.row import Row

CALLS = 1600
AT_ONCE = 32
WARM_ROUNDS = 20


def rows() -> list[Row]:
    """The same tool, asked the same new questions, through us and through `litellm.acompletion` alone."""
    import litellm

    pool = load_pool(Workspace.find().config, "quickstart")
    worker = pool.worker("guesser")
    ensure_registered(worker.model)
    asked = [[{"role": "user", "content": f"What is {i} + {i}?"}] for i in range(CALLS)]

    async def at_once(call: Callable[[list[Message]], Awaitable[object]]) -> float:
        started = time.perf_counter()
        for start in range(0, CALLS, AT_ONCE):
            await asyncio.gather(*(call(messages) for messages in asked[start : start + AT_ONCE]))
        return time.perf_counter() - started

    def bare(messages: list[Message]) -> Awaitable[object]:
        return litellm.acompletion(model=worker.model, messages=messages, temperature=worker.temperature)  # type: ignore[no-any-return]

    async def ours(client: WorkerClient) -> tuple[float, float]:
        cold = await at_once(lambda messages: client.complete(worker, messages))
        started = time.perf_counter()
        for _ in range(WARM_ROUNDS):
            for messages in asked:
                await client.complete(worker, messages)
        return cold, time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        client = WorkerClient(
            ResponseCache(state / "cache"),
            Ledger(state / "ledger.sqlite"),
            "bench",
            run="bench",
            cap_usd=10.0,
        )
        asyncio.run(at_once(bare))  # LiteLLM's first calls import and set up
        reference = asyncio.run(at_once(bare))
        cold, warm = asyncio.run(ours(client))
    return [
        Row(
            "client + cache + ledger, new call",
            cold / CALLS * 1e6,
            reference / CALLS * 1e6,
            "ratio <= 1.10",
            "µs/call",
        ),
        Row(
            "warm cache: bare LiteLLM",
            CALLS * WARM_ROUNDS / warm,
            CALLS / reference,
            "ours >= 20000",
            "responses/s",
        ),
    ]
