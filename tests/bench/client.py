"""Podium's client relative to bare `import_litellm.acompletion`: the same new questions, asked in both ways in turn.

Podium's client calls an embedded worker without LiteLLM; the reference is the same worker as LiteLLM's custom provider.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ops.config import Worker, load_pool
from ops.core.async_run import run_async
from ops.core.messages import Message
from ops.core.workspace import Workspace
from ops.precaching.precache import precache_worker
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.synthetic.problems import generate_problems
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workers.providers import import_litellm, is_remote, request_settings
from tests.bench.fast_worker import fast_worker
from tests.bench.row import Row, sized
from tests.faults.limits_run import Order, live, several
from tests.faults.remote import FaultServer

AT_ONCE = 32
CALLS = sized(320, 64)
ROUNDS = sized(11, 1)
"""Rounds of each way, in turn; the row shows the median round of each, so that a busy moment does not count."""
BARE = "bare LiteLLM"
EMBEDDED = "embedded"
"""The embedded workers' prefix in LiteLLM, in place of `local`."""
AT_MOST = 1.2
"""The bound; ratios on a quiet machine are between 1.0 and 1.13, regardless of which part of the client is left out."""
MOST_OF_TWO = 0.75
"""The bound on two cores: a half would be perfect."""
WORKERS, SLOTS, ANSWER_S = 7, sized(64, 4), 0.3
"""The workers that one and two processes ask, as many as the paper's: calls in flight of each, and their latency in
seconds."""
QUESTIONS, THOUGHT_S, MOST_OF_LIMITS = sized(14_042, 8), sized(3, 1), 1.1
"""Precaching's questions, as many as MMLU's; the mean latency of its workers in seconds; and the bound. It takes eleven
minutes: of fewer questions, the slowest last call would be a larger share."""
LATENCY_S = 0.1
"""Latency of the remote worker in seconds, short for a language model."""

Ask = Callable[[list[Message]], Awaitable[object]]


class Cost(NamedTuple):
    """Seconds per call."""

    wall: float
    cpu: float


def _calls() -> Iterator[Row]:
    """Measure a remote worker that answers in 0.1 s, one that answers at once, and an embedded tool."""
    tool = load_pool(Workspace.find().config, "quickstart").worker("guesser")
    with tempfile.TemporaryDirectory() as folder, FaultServer(Path(folder)) as server:
        slow = server.worker(concurrency=AT_ONCE, timeout_s=120)
        for name, worker, latency_s in (
            (f"remote worker, {LATENCY_S:g} s", slow, LATENCY_S),
            ("remote worker, 0 s", slow.model_copy(update={"name": "quick"}), 0.0),
            ("embedded tool, 0 s", tool, 0.0),
        ):
            server.order(latency_s=latency_s)
            ours, bare = _compare(worker, Path(folder) / worker.name)
            yield Row(f"new call, {name}", ours.wall * 1e3, BARE, bare.wall * 1e3, AT_MOST, "ms")
            yield Row(f"CPU of a new call, {name}", ours.cpu * 1e3, BARE, bare.cpu * 1e3, AT_MOST, "CPU ms")


def _two_processes() -> Iterator[Row]:
    """Measure a call of two processes that ask at the same time, beside one process."""
    with tempfile.TemporaryDirectory() as folder, fast_worker(ANSWER_S) as url:
        one, two = _by_processes(url, Path(folder), 1), _by_processes(url, Path(folder), 2)
        yield Row("a call, two processes asking", two * 1e3, "one process", one * 1e3, MOST_OF_TWO, "ms")


def _precaching() -> Iterator[Row]:
    """Measure precaching beside the time that the workers' limits impose."""
    with tempfile.TemporaryDirectory() as folder, fast_worker(THOUGHT_S, prompt_tokens=60) as url:
        shortest = QUESTIONS / SLOTS * THOUGHT_S
        name, limits = f"precaching, {WORKERS} workers × {QUESTIONS:,} questions", "questions ÷ slots × latency"
        yield Row(name, _precached(url, Path(folder)), limits, shortest, MOST_OF_LIMITS, "s")


def _precached(url: str, folder: Path) -> float:
    """Measure the seconds in which precaching asks every worker every question, after LiteLLM's first call."""
    workers = several(url, WORKERS, concurrency=SLOTS, timeout_s=120)
    [one] = generate_problems("mmlu", "test", 1, 0)
    questions = [replace(one, id=str(n), question=f"{n}: {one.question}") for n in range(QUESTIONS)]
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("bench", "bench", 100.0))

    async def ask() -> float:
        await client.complete(workers[0], [{"role": "user", "content": "LiteLLM's first call takes its time"}])
        began = time.perf_counter()
        await asyncio.gather(*(precache_worker(questions, worker, client) for worker in workers))
        return time.perf_counter() - began

    seconds = run_async(ask())
    cache.close()
    ledger.close()
    return seconds


def _by_processes(url: str, folder: Path, count: int) -> float:
    """Measure the seconds per call of processes that share cache, ledger and limits, after each one's first call. Each
    makes as many calls, however many processes there are."""
    start = multiprocessing.get_context("spawn")
    settings = {"concurrency": SLOTS, "timeout_s": 120}
    ends = []
    for number in range(count):
        ours, theirs = start.Pipe()
        order = Order(
            url, folder / f"by-{count}", f"process-{number}", sized(5600, 28), settings, "cache", workers=WORKERS
        )
        start.Process(target=live, args=(order, theirs), daemon=True).start()
        theirs.close()  # `recv` raises EOFError if the process ends without an answer
        ends.append(ours)
    for end in ends:
        end.recv()
    began = time.perf_counter()
    for end in ends:
        end.send("go")
    answered = sum(end.recv() for end in ends)
    return (time.perf_counter() - began) / answered


def _compare(worker: Worker, folder: Path) -> tuple[Cost, Cost]:
    """Measure the seconds per call of Podium's client and of bare LiteLLM."""
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("bench", "bench", 10.0))
    settings = request_settings(worker, "bench")
    if not is_remote(worker):
        _as_custom_provider(settings)

    async def ours(messages: list[Message]) -> object:
        return await client.complete(worker, messages)

    async def bare(messages: list[Message]) -> object:
        return await import_litellm().acompletion(messages=messages, **settings)

    async def rounds() -> tuple[Cost, Cost]:
        costs: dict[Ask, list[Cost]] = {ours: [], bare: []}
        for number in range(ROUNDS + 1):
            for way in costs if number % 2 else reversed(costs):
                cost = await _round(way, number)
                if number:  # the first call imports, connects and opens files
                    costs[way].append(cost)
        return tuple(Cost(*map(median, zip(*costs[way], strict=True))) for way in (ours, bare))  # type: ignore[return-value]

    pair = asyncio.run(rounds())
    cache.close()
    ledger.close()
    return pair


def _as_custom_provider(settings: dict[str, Any]) -> None:
    """Register the embedded workers with LiteLLM as a custom provider, and let a call's settings name it."""
    library = import_litellm()
    from tests.bench.embedded_provider import PROVIDER

    library.custom_provider_map = [{"provider": EMBEDDED, "custom_handler": PROVIDER}]
    library.utils.custom_llm_setup()
    settings["model"] = settings["model"].replace("local/", f"{EMBEDDED}/")


async def _round(way: Ask, number: int) -> Cost:
    questions = iter([[{"role": "user", "content": f"Round {number}: what is {i} + {i}?"}] for i in range(CALLS)])

    async def asker() -> None:
        for messages in questions:
            await way(messages)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(asker() for _ in range(AT_ONCE)))
    await asyncio.sleep(0.02)  # pending logs of LiteLLM are part of its cost
    return Cost((time.perf_counter() - wall) / CALLS, (time.process_time() - cpu) / CALLS)


PARTS = (_calls, _two_processes, _precaching)
"""The measurements of `make bench`."""
