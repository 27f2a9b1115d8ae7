"""The executor against the critical path and against serial execution, at a fixed worker latency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ops.config import Worker
from ops.workers.types import Message, Response
from ops.workflow.execution import execute, worker_messages
from ops.workflow.grammar import Step, Workflow
from tests.bench.row import Row

LATENCY = 0.2
REPEATS = 5
FAN_IN = Workflow((*(Step(i, f"Part {i}.", "none") for i in range(4)), Step(4, "Combine.", "all")))


class Sleeper:
    """A client whose every call takes `LATENCY` seconds."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        await asyncio.sleep(LATENCY)
        return Response(f"{worker.name} of {len(messages)}", 10, 5, 0.0, LATENCY, "stop")


def rows() -> list[Row]:
    """Five steps: four independent, one that sees all."""
    offered = [Worker(name=f"w{i}", model="local/none") for i in range(5)]
    client = Sleeper()

    async def graph() -> None:
        await execute(FAN_IN, "A question.", offered, client)

    async def serial() -> None:
        responses: dict[int, str] = {}
        for index, step in enumerate(FAN_IN.steps):
            messages = worker_messages(FAN_IN, index, "A question.", responses)
            responses[index] = (await client.complete(offered[step.worker], messages)).text

    async def critical() -> None:
        await asyncio.sleep(LATENCY)
        await asyncio.sleep(LATENCY)

    ours, one_by_one, path = (_median(way) for way in (graph, serial, critical))
    return [
        Row("executor, five-step fan-in: critical path", ours, path, "ratio <= 1.15", "s"),
        Row("executor, five-step fan-in: serial steps", ours, one_by_one, "ratio <= 0.46", "s"),
    ]


def _median(way: object) -> float:
    async def timed() -> list[float]:
        taken = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            await way()  # type: ignore[operator]
            taken.append(time.perf_counter() - started)
        return taken

    return sorted(asyncio.run(timed()))[REPEATS // 2]
