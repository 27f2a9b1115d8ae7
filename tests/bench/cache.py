"""The response cache: a warm cache through the client, a table made again from it, and a cache of ten million entries.

PODIUM_BENCH_ENTRIES is the number of entries of the large cache (default 1,000,000; ten million take some minutes to
write and about 6 GB of disk space in TMPDIR).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ops.config import Pool, Setup, Worker, load_pool, load_recipe
from ops.core.messages import Message
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.store.entries import Entry
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from tests.bench.row import Row, sized

ASKED = sized(1600, 50)
WARM_ROUNDS = sized(20, 1)
BY_HAND = "sha256, sqlite3 and json by hand"
Complete = Callable[[Worker, Sequence[Message]], Awaitable[Response]]
PROBLEMS_EACH = sized(240, 5)
"""Number of problems from each of the four training benchmarks: 960 in total."""
SMALL = sized(10_000, 500)
TURNS = sized(40, 2)
LOOK_UPS = sized(1000, 100)
"""Number of look-ups in one turn."""
PAGE = 50_000


# ── warm, through the client ─────────────────────────────────────────────────


def _warm() -> list[Row]:
    """Measure a response when every call is a hit, in memory and only on disk, beside a look-up written by hand.

    CPU time, because the single thread waits for nothing. The ways take turns, and the median turn counts.
    """
    worker = load_pool(Workspace.find().config, "quickstart").worker("guesser")
    questions = [[{"role": "user", "content": f"What is {i} + {i}?"}] for i in range(ASKED)]

    async def ask_all(complete: Complete) -> float:
        started = time.process_time()
        for messages in questions:
            await complete(worker, messages)
        return (time.process_time() - started) / ASKED * 1e6

    async def turns(*ways: Complete) -> list[float]:
        taken = [[await ask_all(way) for way in ways] for _ in range(WARM_ROUNDS)]
        return [median(times) for times in zip(*taken, strict=True)]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(ask_all(_client(folder).complete))
        warm, disk = _client(folder), _client(folder, memory_chars=0)
        by_hand = _ByHand(folder / "by_hand.sqlite", worker, questions)
        ours, on_disk, bare = asyncio.run(turns(warm.complete, disk.complete, by_hand.complete))
        assert (warm.counts.live, disk.counts.live) == (0, 0), "a warm cache makes no call"
    return [
        Row("a response from a warm cache", ours, BY_HAND, bare, 0.8, "CPU µs"),
        Row("a response from a warm cache, memory off", on_disk, BY_HAND, bare, 2.0, "CPU µs"),
    ]


class _ByHand:
    """The minimum work of a cache on disk: a key of the request, one SELECT, the response parsed from JSON."""

    def __init__(self, file: Path, worker: Worker, questions: Sequence[Sequence[Message]]) -> None:
        self._connection = sqlite3.connect(file)
        self._connection.execute("CREATE TABLE responses (key TEXT PRIMARY KEY, response TEXT)")
        response = json.dumps(Response("Answer: 12", Usage(10, 5), 2e-5, 0.25, "stop").as_stored())
        rows = [(self._key(worker, messages), response) for messages in questions]
        with self._connection:
            self._connection.executemany("INSERT INTO responses VALUES (?, ?)", rows)

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        query = "SELECT response FROM responses WHERE key = ?"
        (body,) = self._connection.execute(query, (self._key(worker, messages, sample),)).fetchone()
        return Response.from_stored(json.loads(body))

    def _key(self, worker: Worker, messages: Sequence[Message], sample: int = 0) -> str:
        material = {"model": worker.model, "temperature": worker.temperature, "messages": messages, "sample": sample}
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def _client(state: Path, *, memory_chars: int = 64_000_000) -> WorkerClient:
    cache = ResponseCache(state / "cache", memory_chars=memory_chars)
    return WorkerClient(cache, Ledger(state / "ledger.sqlite"), Account("bench", "bench", 10.0))


# ── a table made again ───────────────────────────────────────────────────────


def _again() -> list[Row]:
    """Measure a table of 960 problems × 7 workers that is made once and then again by a new process.

    The reference, also in a separate process, makes the table without a cache: stored texts are graded and written. CPU
    time of the process and of the programs that it graded.
    """
    with tempfile.TemporaryDirectory() as name:
        first, again, bare = (_apart(way, name) for way in (_materialize, _materialize, _grade_and_write))
    assert (again.calls, again.rows, bare.rows) == (0, first.rows, first.rows), "no call, and the same table"
    what = f"{first.rows:,} responses of {first.calls:,} earlier calls"
    return [Row(what, again.cpu_s, "their texts graded and written", bare.cpu_s, 1.8, "CPU s")]


class Table(NamedTuple):
    """The time for making a table, the calls that were made, and the table's rows."""

    cpu_s: float
    calls: int
    rows: int


def _apart(way: Callable[[Workspace], Table], root: str) -> Table:
    """Run in a new process, which has nothing in memory."""
    command = [sys.executable, "-m", "tests.bench.cache", way.__name__, root]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=Workspace.find().root, timeout=240
    )
    return Table(*json.loads(done.stdout.splitlines()[-1]))


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    return sum(os.times()[:4])


def _grade_and_write(workspace: Workspace) -> Table:
    """Measure the reference: read each file of responses, grade its texts, and write it again."""
    from ops.benchmarks.problem_files import read_problems
    from ops.core.response_rows import load_responses, response_file
    from ops.grading import configure, grade
    from ops.precaching.precache import write_responses

    configure(workspace.root, "resource_limits")  # programs of our own, on any machine
    data = workspace.data
    problems = {(problem.benchmark, problem.id): problem for problem in read_problems(data / "shortlist.jsonl")}
    grade(next(iter(problems.values())), "")  # imports
    started = _cpu_s()
    rows = load_responses(data / "responses")
    graded = [
        replace(row, score=grade(problems[row.benchmark, row.problem_id], row.response.text).score) for row in rows
    ]
    for worker, benchmark in sorted({(row.worker, row.benchmark) for row in graded}):
        own = [row for row in graded if (row.worker, row.benchmark) == (worker, benchmark)]
        write_responses(own, response_file(data / "again", worker, benchmark))
    return Table(_cpu_s() - started, 0, len(graded))


def _materialize(workspace: Workspace) -> Table:
    from ops.benchmarks.problem_files import write_problems
    from ops.benchmarks.registry import training_benchmarks
    from ops.grading import configure, grade
    from ops.precaching.client_setup import open_client
    from ops.stages.responses import materialize_responses
    from ops.synthetic.problems import generate_problems

    config = Workspace.find().config
    configure(workspace.root, "resource_limits")
    os.environ.pop("PODIUM_CACHE_URL", None)
    pool, recipe = load_pool(config, "quickstart"), load_recipe(config, "quickstart")
    seventh = pool.worker("guesser").model_copy(update={"name": "seventh", "revision": "seventh"})
    pool = Pool(name="seven", workers=(*pool.workers, seventh))
    problems = [p for name in training_benchmarks() for p in generate_problems(name, "train", PROBLEMS_EACH, 1)]
    write_problems(workspace.data / "shortlist.jsonl", problems)
    client = open_client(Setup(workspace, recipe, pool), "precache")
    grade(problems[0], "")  # imports
    started = _cpu_s()
    made = materialize_responses(Setup(workspace, recipe, pool), client)
    return Table(_cpu_s() - started, client.counts.live, sum(map(len, made.values())))


# ── a large cache ────────────────────────────────────────────────────────────


def _large() -> list[Row]:
    """Measure look-ups of random keys, half of them stored, in the large
    cache and in one of ten thousand entries, without a memory cache.
    """
    entries = int(os.environ.get("PODIUM_BENCH_ENTRIES", sized(1_000_000, 5_000)))
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        _fill(small, SMALL)
        started = time.perf_counter()
        _fill(large, entries)
        filled = time.perf_counter() - started
        size = (large / "responses.sqlite").stat().st_size
        print(f"  {entries:,} entries written in {filled:.0f} s, {size / 1e9:.2f} GB", flush=True)
        _read_through(large / "responses.sqlite")
        ours, reference = _look_up([(large, entries), (small, SMALL)])
    return [Row(f"look-up among {entries:,} entries", ours, f"among {SMALL:,}", reference, 2.0, "µs")]


def _read_through(file: Path) -> None:
    """Read a file into the system's page cache, so that the tree is measured and not the disk."""
    with file.open("rb") as stream:
        while stream.read(1 << 24):
            pass


def _key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def _fill(folder: Path, entries: int) -> None:
    """Write rows of about 300 bytes in the order of their keys, because random inserts into a large tree take hours."""
    cache = ResponseCache(folder, memory_chars=0)
    for page in _pages(entries):
        cache.backend.insert(page)
    cache.close()


def _pages(entries: int) -> Iterator[list[Entry]]:
    identity = '{"model":"openai/some-model","temperature":0.2}'
    keys = sorted(bytes.fromhex(_key(number)) for number in range(entries))
    now = time.time()
    for start in range(0, entries, PAGE):
        page = []
        for number, key in enumerate(keys[start : start + PAGE], start):
            response = Response(f"Answer: {number:012}", Usage(10, 5), 2e-5, 0.25, "stop")
            messages = f'[{{"content":"What is {number:012}?","role":"user"}}]'
            material = f'{{"messages":{messages},"sample":0,"worker":{identity}}}'
            page.append(Entry.from_response(key.hex(), material, response, now))
        yield page


def _look_up(places: Sequence[tuple[Path, int]]) -> list[float]:
    """Return microseconds for one `get` in each place; the places take turns, and the median turn counts."""
    chance = random.Random(1)
    caches = [ResponseCache(folder, memory_chars=0) for folder, _ in places]
    taken: list[list[float]] = [[] for _ in places]
    for turn in range(TURNS + TURNS // 4):
        for cache, (_, entries), times in zip(caches, places, taken, strict=True):
            keys = [_key(chance.randrange(2 * entries)) for _ in range(LOOK_UPS)]
            began = time.perf_counter()
            hits = sum(cache.get(key) is not None for key in keys)
            if turn >= TURNS // 4:  # the first look-ups warm up
                times.append((time.perf_counter() - began) / LOOK_UPS * 1e6)
            assert 0.4 < hits / LOOK_UPS < 0.6
    for cache in caches:
        cache.close()
    return [sorted(times)[TURNS // 2] for times in taken]


PARTS = (_warm, _again, _large)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    way, root = sys.argv[1:]
    print(json.dumps({"_materialize": _materialize, "_grade_and_write": _grade_and_write}[way](Workspace(Path(root)))))
