"""The executor: one workflow against its critical path, a batch against its lower bound, and its CPU time.

The reference for each is an executor that runs a workflow's steps one after another.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ops.config import Worker, load_pool
from ops.core.messages import Message
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workers.queue import WorkerQueue
from ops.workers.scheduling import INDEPENDENT_CALL, CallDurations, Client, Turn
from ops.workflow.execution import build_worker_messages, execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.bench.row import Row, sized

LATENCY = 0.2
REPEATS = sized(5, 1)
FAN_IN = Workflow((*(Step(i, f"Part {i}.", "none") for i in range(4)), Step(4, "Combine.", "all")))

ROLLOUTS = sized(256, 16)
LIMITS = (2, 3, 4, 4, 6, 6, 10)
MEDIANS = (0.08, 0.12, 0.2, 0.24, 0.32, 0.4, 0.6)
"""Median of each worker's log-normal latency in seconds; sigma is 0.5."""
BATCHES = sized(3, 1)

CALLS = sized(400, 20)


def fan_in() -> list[Row]:
    """Measure five steps of fixed latency: four independent ones, and one that sees all."""
    offered = [Worker(name=f"w{i}", model="local/none") for i in range(5)]
    client = Sleeper(lambda worker, messages: LATENCY)

    async def critical() -> None:
        await asyncio.sleep(LATENCY)
        await asyncio.sleep(LATENCY)

    ours = _median(lambda: execute_workflow(FAN_IN, "A question.", Team(offered, client)))
    one_by_one = _median(lambda: serially(FAN_IN, "A question.", offered, client))
    path = _median(critical)
    return [
        Row("executor, five-step fan-in", ours, "its critical path", path, 1.15, "s"),
        Row("executor, five-step fan-in", ours, "its steps one by one", one_by_one, 0.46, "s"),
    ]


class Batch(NamedTuple):
    """The seconds of one batch, and the minimum for any order of its calls."""

    ours: float
    serial: float
    bound: float


def batch() -> list[Row]:
    """Measure 256 workflows of three steps on average on seven workers with limits: the median of three batches."""
    offered = [Worker(name=f"w{i}", model="local/none", concurrency=limit) for i, limit in enumerate(LIMITS)]
    batches = [asyncio.run(_batch(seed, offered)) for seed in range(BATCHES)]
    closest = sorted(batches, key=lambda batch: batch.ours / batch.bound)[BATCHES // 2]
    name = f"executor, {ROLLOUTS} rollouts over 7 workers with limits"
    return [
        Row(name, closest.ours, "max(critical path, work ÷ limit)", closest.bound, 1.15, "s"),
        Row(name, closest.ours, "each one's steps one by one", closest.serial, 1.0, "s"),
    ]


async def _batch(seed: int, offered: Sequence[Worker]) -> Batch:
    workflows = [_workflow(random.Random(f"{seed} {number}")) for number in range(ROLLOUTS)]

    def latency(worker: Worker, messages: Sequence[Message]) -> float:
        chance = random.Random(f"{seed} {worker.name} {messages}")
        return chance.lognormvariate(math.log(MEDIANS[int(worker.name[1:])]), 0.5)

    ours, serial = Sleeper(latency), Sleeper(latency)
    started = time.perf_counter()
    traces = await asyncio.gather(
        *(execute_workflow(workflow, f"Question {i}.", Team(offered, ours)) for i, workflow in enumerate(workflows))
    )
    between = time.perf_counter()
    await asyncio.gather(
        *(serially(workflow, f"Question {i}.", offered, serial) for i, workflow in enumerate(workflows))
    )
    ended = time.perf_counter()
    busiest = max(ours.work[worker.name] / worker.concurrency for worker in offered)
    bound = max(busiest, *(trace.latency_s for trace in traces))
    return Batch(between - started, ended - between, bound)


def _workflow(chance: random.Random) -> Workflow:
    count = chance.choice((1, 2, 3, 3, 4, 5))
    sees = [index > 0 and chance.random() < 0.6 for index in range(count)]
    return Workflow(
        tuple(Step(chance.randrange(7), f"Part {i}.", "all" if see else "none") for i, see in enumerate(sees))
    )


class Sleeper:
    """A client with calls of a given duration, behind the real queue of each worker."""

    def __init__(self, latency: Callable[[Worker, Sequence[Message]], float]) -> None:
        self.latency = latency
        self.work: dict[str, float] = {}
        self._durations = CallDurations()
        self._queues: dict[str, WorkerQueue] = {}

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, turn: Turn = INDEPENDENT_CALL, **_: object
    ) -> Response:
        taken = self.latency(worker, messages)
        queue = self._queues.setdefault(worker.name, WorkerQueue(worker, durations=self._durations))
        place = await queue.enter("call", 0, turn)
        await asyncio.sleep(taken)
        queue.leave(place, 0)
        queue.record_answer(place, 5)
        self.work[worker.name] = self.work.get(worker.name, 0.0) + taken
        return Response(f"{worker.name} of {len(messages)}", Usage(10, 5), 0.0, taken, "stop")


async def serially(workflow: Workflow, question: str, offered: Sequence[Worker], client: Client) -> None:
    """Execute every step one after another: the reference."""
    responses: dict[int, str] = {}
    for index, step in enumerate(workflow.steps):
        messages = build_worker_messages(workflow, index, question, responses)
        responses[index] = (await client.complete(offered[step.worker], messages)).text


def cpu() -> list[Row]:
    """Measure the CPU time of a whole call (execution, queue,
    client, cache, ledger) beside that of the client alone.
    """
    worker = load_pool(Workspace.find().config, "quickstart").worker("guesser")
    workflow = Workflow.single(0)

    fresh = itertools.count()  # no question is repeated, so nothing comes from the cache

    async def bare(client: Client) -> None:
        for number in itertools.islice(fresh, CALLS):
            await client.complete(worker, build_worker_messages(workflow, 0, f"Question {number}?", {}))

    async def ours(client: Client) -> None:
        for number in itertools.islice(fresh, CALLS):
            await execute_workflow(workflow, f"Question {number}?", Team([worker], client))

    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        ledger = Ledger(state / "ledger.sqlite")
        client = WorkerClient(ResponseCache(state / "cache"), ledger, Account("bench", "bench", 10.0))
        asyncio.run(bare(client))  # the first calls import and initialise
        reference = _cpu_ms(lambda: bare(client))
        whole = _cpu_ms(lambda: ours(client))
        zero = _cpu_ms(lambda: _executed(workflow, worker))
    return [
        Row("executor and client: CPU of a call", whole, "the client alone", reference, 1.75, "CPU ms"),
        Row("executor alone: CPU of a call that takes no time", zero, "the client alone", reference, 0.25, "CPU ms"),
    ]


async def _executed(workflow: Workflow, worker: Worker) -> None:
    class Echo:
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object
        ) -> Response:
            return Response("Echo.", Usage(1, 1), 0.0, 0.0, "stop")

    client = Echo()
    for number in range(CALLS):
        await execute_workflow(workflow, f"Alone {number}?", Team([worker], client))


def _cpu_ms(way: Callable[[], Awaitable[object]]) -> float:
    """Return milliseconds of CPU time of this process (all threads) per call: the median of three measurements."""

    async def once() -> float:
        started = time.process_time()
        await way()
        return (time.process_time() - started) / CALLS * 1e3

    return statistics.median(asyncio.run(once()) for _ in range(3))


def _median(way: Callable[[], Awaitable[object]]) -> float:
    async def timed() -> list[float]:
        taken = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            await way()
            taken.append(time.perf_counter() - started)
        return taken

    return statistics.median(asyncio.run(timed()))


PARTS = (fan_in, batch, cpu)
"""The measurements of `make bench`."""
