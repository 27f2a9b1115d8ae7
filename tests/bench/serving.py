"""Load this checkout's champion through `podium serve` (`python -m tests.bench.serving`), into the measurements.

`--misbehaving` measures the normal clients beside five misbehaving ones instead, `--options` what the options of a
request do to accuracy and price.

Questions are new ones of the embedded families, so that nothing comes from a cache. Embedded workers answer at once:
the measurement is the time that serving adds to a workflow's critical path, whose seconds are those that the pool
declares. The clients run on the same cores as the server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import httpx
import psutil
import yaml

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import PolicyCard
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import configure, grade_many
from ops.release import registry
from ops.release.champion import open_registered_versions
from ops.results.statistics import estimate_mean
from ops.synthetic.problems import generate_problems
from tests.bench.row import SMALL, Absent, Row, sized
from tests.bench.waiting import finished
from tests.command import PODIUM
from tests.serving.misbehaving import Misbehaving

MARK = "<!-- made by `python -m tests.bench.serving` -->"
MISBEHAVING = "<!-- made by `python -m tests.bench.serving --misbehaving` -->"
OPTIONS_MARK = "<!-- made by `python -m tests.bench.serving --options` -->"
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "`vote: {workflows: 3, agree: 2}`": {"vote": {"workflows": 3, "agree": 2}},
    "`vote: {workflows: 5, agree: 2}`": {"vote": {"workflows": 5, "agree": 2}},
    "`preference: cost`": {"preference": "cost"},
}
START_S = 300.0
OOD = ("aime25", "gpqa_diamond", "bigcodebench")
"""The benchmarks of the quickstart that it is not trained on."""
AHEAD = 8
"""Sets of 240 questions."""
DURATIONS = ("waited_s", "writing_s", "working_s", "latency_s")
CORES = f"{os.cpu_count()} cores ({platform.machine()}), which the clients used as well"
Cells = tuple[object, ...]


class Reply(NamedTuple):
    """One request from the client's side."""

    status: int
    seconds: float
    body: dict[str, Any]


class Server(NamedTuple):
    """A running `podium serve`."""

    url: str
    process: psutil.Process
    ready_s: float
    """Seconds from the start to the first answer; `ready_cpu_s` are the CPU seconds."""
    ready_cpu_s: float


@contextmanager
def serving(workspace: Workspace, **settings: Any) -> Iterator[Server]:
    """Start the server on a folder with the workspace's registry and an empty cache, and ask it one question."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(workspace.config, root / "config")
        shutil.copyfile(workspace.root / "dvc.yaml", root / "dvc.yaml")
        (root / "data").mkdir()
        shutil.copyfile(workspace.data / "profiles.json", root / "data" / "profiles.json")
        file = root / "config" / "serving.yaml"
        known = yaml.safe_load(file.read_text(encoding="utf-8"))
        file.write_text(yaml.safe_dump(known | settings), encoding="utf-8")
        environment = {**os.environ, "PODIUM_ROOT": folder, "MLFLOW_TRACKING_URI": workspace.mlflow_uri}
        log, began = (root / "log").open("w+", encoding="utf-8"), time.monotonic()
        server = subprocess.Popen([*PODIUM, "serve", "--port", "0"], env=environment, stdout=log, stderr=log)
        try:
            url = _place(server, root / "log", began)
            first = asyncio.run(_first(url, began))
            spent = psutil.Process(server.pid).cpu_times()
            yield Server(url, psutil.Process(server.pid), first, spent.user + spent.system)
        finally:
            server.terminate()
            server.wait(START_S)
            log.close()


def _place(server: subprocess.Popen[bytes], log: Path, began: float) -> str:
    while "/health" not in (text := log.read_text(encoding="utf-8")):
        if server.poll() is not None or time.monotonic() - began > START_S:
            sys.exit(f"the server did not start:\n{text}")
        time.sleep(0.02)
    return text.partition("; ")[2].partition("/health")[0]


async def _first(url: str, began: float) -> float:
    async with aiohttp.ClientSession() as session:
        while (await ask(session, url, "What is the density of iron?")).status != 200:
            if time.monotonic() - began > START_S:
                sys.exit("the server gave no answer")
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def ask(session: aiohttp.ClientSession, url: str, question: str, **options: Any) -> Reply:
    body: dict[str, Any] = {"model": "conductor", "messages": [{"role": "user", "content": question}]}
    if options:
        body["podium"] = options
    began = time.perf_counter()
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            return Reply(response.status, time.perf_counter() - began, await response.json())
    except aiohttp.ClientError:
        return Reply(0, time.perf_counter() - began, {})


async def load(url: str, clients: int, seconds: float, questions: Iterator[str]) -> list[Reply]:
    """Return the replies to several clients, each of which asks again at once after a reply."""
    end = time.monotonic() + seconds
    replies: list[Reply] = []

    async def client(session: aiohttp.ClientSession) -> None:
        while time.monotonic() < end:
            replies.append(await ask(session, url, next(questions)))

    limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(600)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return replies


class Loaded(NamedTuple):
    """The replies to some clients, the CPU seconds of the server for them, and its memory in MiB at the end."""

    replies: list[Reply]
    cpu_s: float
    mib: float

    @property
    def whole(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.status == 200]

    @property
    def statuses(self) -> str:
        counts = Counter(reply.status for reply in self.replies)
        return ", ".join(f"{count:,} × {status}" for status, count in sorted(counts.items()))


def loaded(server: Server, clients: int, seconds: float, questions: Iterator[str]) -> Loaded:
    before = server.process.cpu_times()
    replies = asyncio.run(load(server.url, clients, seconds, questions))
    after = server.process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Loaded(replies, cpu_s, server.process.memory_info().rss / 2**20)


def fresh(seed: int) -> Iterator[str]:
    """Make new questions of all training benchmarks in turn, none of them twice."""
    made = [_some(seed + number) for number in range(AHEAD)]
    later = (question for number in itertools.count(seed + AHEAD) for question in _some(number))
    return _distinct(itertools.chain(*made, later))


def _distinct(questions: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for question in questions:
        if question not in seen:
            seen.add(question)
            yield question


def _some(seed: int) -> list[str]:
    sets = [generate_problems(name, "test", 60, seed) for name in training_benchmarks()]
    return [problem.question for each in zip(*sets, strict=True) for problem in each]


async def graded(
    url: str, problems: Sequence[Problem], more: dict[str, Any]
) -> list[tuple[bool, float, float, bool]]:
    """Return (right, USD, critical path in seconds, whether there was a fallback) of each problem."""
    places = asyncio.Semaphore(32)

    async def one(session: aiohttp.ClientSession, problem: Problem) -> Reply:
        async with places:
            options = {"grader": problem.grader, "choices": list(problem.choices), **more}
            return await ask(session, url, problem.question, **options)

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
        replies = await asyncio.gather(*(one(session, problem) for problem in problems))
    assert {reply.status for reply in replies} == {200}
    texts = [reply.body["choices"][0]["message"]["content"] for reply in replies]
    grades = grade_many(list(zip(problems, texts, strict=True)))
    return [
        (grade.correct, reply.body["podium"]["cost_usd"], reply.body["podium"]["latency_s"],
         bool(reply.body["podium"]["fallbacks"]))
        for grade, reply in zip(grades, replies, strict=True)
    ]  # fmt: skip


class Load(NamedTuple):
    """One row of the table, and the figure for comparing rows."""

    start: str
    row: Cells
    cpu_ms: float
    """CPU milliseconds of the server per answer."""
    traces: str


def traces(url: str) -> str:
    """Return the server's own counts of traces by their outcome so far."""
    page = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).raise_for_status().text
    found = dict(re.findall(r"^podium_traces_(stored_total|dropped_total|waiting) (\S+)$", page, re.MULTILINE))
    stored, dropped, waiting = (float(found[name]) for name in ("stored_total", "dropped_total", "waiting"))
    return f"{stored:,.0f} traces had been stored, {waiting:,.0f} were waiting and {dropped:,.0f} had been dropped"


def under_load(workspace: Workspace, clients: int, seconds: float, traced: float) -> Load:
    with serving(workspace, at_once=clients, traced_share=traced) as server:
        done = loaded(server, clients, seconds, fresh(10_000))
        kept = traces(server.url)
    whole = done.whole
    times = [reply.seconds for reply in whole]
    parts = [range_of([reply.body["podium"][name] for reply in whole]) for name in DURATIONS]
    fallbacks = sum(bool(reply.body["podium"]["fallbacks"]) for reply in whole)
    row = (
        clients, f"{traced:g}", done.statuses, range_of(times), *parts, f"{len(whole) / seconds:.1f}",
        f"{len(whole) / done.cpu_s:.1f}", f"{fallbacks / len(whole):.1%}", f"{done.mib:,.0f} MiB",
    )  # fmt: skip
    start = (
        f"From its start to its first answer, the server needed {server.ready_s:.1f} s "
        f"({server.ready_cpu_s:.1f} s of CPU time)."
    )
    return Load(start, row, 1000 * done.cpu_s / len(whole), kept)


AT_ONCE, SECONDS = sized(50, 4), sized(20.0, 3.0)


def champions_workspace() -> Workspace:
    """Return this workspace if it has a champion, or else the one in which `make bench` ran the quickstart."""
    here = Workspace.find()
    if registry.find_champion(here) is not None:
        return here
    if SMALL:
        raise Absent("a champion (`make run` makes one)")
    return Workspace(finished().root)


def _tracing() -> Iterator[Row]:
    """Measure the server's CPU time of an answer with every request traced, beside none."""
    workspace = champions_workspace()
    without, traced = (under_load(workspace, AT_ONCE, SECONDS, share).cpu_ms for share in (0.0, 1.0))
    yield Row(f"a served answer, {AT_ONCE} clients, traced", traced, "without traces", without, 1.3, "CPU ms")


def beside_misbehaving(workspace: Workspace, clients: int, seconds: float) -> list[Cells]:
    """Measure the normal clients alone and beside five misbehaving ones, in turn on one server: two rows of a table."""
    rows = []
    with serving(workspace, at_once=clients, traced_share=0.0) as server:
        questions = fresh(20_000)
        for name, others in (("alone", nullcontext()), ("beside the five", Misbehaving(server.url))):
            with others:
                done = loaded(server, clients, seconds, questions)
                health = httpx.get(f"{server.url}/health", trust_env=False).json()["status"]
            times = range_of([reply.seconds for reply in done.replies])
            rows.append((f"{clients}, {name}", done.statuses, times, health, f"{done.mib:,.0f} MiB"))
    return rows


def options(workspace: Workspace, each: int) -> list[Cells]:
    """Return a row for each option: accuracy, price, critical path and fallbacks, in-domain and OOD."""
    configure(workspace.root, "resource_limits")
    groups = [
        [problem for name in names for problem in generate_problems(name, "test", each, 77)]
        for names in (training_benchmarks(), OOD)
    ]
    table = []
    with serving(workspace, traced_share=0.0) as server:
        for name, more in OPTIONS.items():
            made = [asyncio.run(graded(server.url, problems, more)) for problems in groups]
            rights = [estimate_mean([float(row[0]) for row in rows]) for rows in made]
            shares = [f"{100 * right.mean:.1f} ± {100 * right.standard_error:.1f}" for right in rights]
            usd, seconds, led = (statistics.fmean(row[i] for rows in made for row in rows) for i in (1, 2, 3))
            table.append((name, *shares, f"{usd:.5f}", f"{seconds:.1f}", f"{100 * led:.0f}"))
    return table


def range_of(seconds: Sequence[float]) -> str:
    """Return p50 and p99 of some seconds as a cell."""
    cuts = statistics.quantiles(seconds, n=100)
    return f"{cuts[49]:.2f} / {cuts[98]:.2f}"


def publish(mark: str, head: str, columns: Sequence[str], rows: Iterable[Cells]) -> None:
    """Write a sentence and a table into the measurements, and print them."""
    text = f"{head}\n\n{format_markdown_table(columns, rows)}"
    replace_marked_text(Workspace.find().root / MEASUREMENTS, mark, text)
    print(text)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 10, 50, 200])
    arguments.add_argument("--seconds", type=float, default=60.0, help="of each row")
    arguments.add_argument("--each", type=int, default=60, help="questions of each benchmark, per option")
    arguments.add_argument("--options", action="store_true", help="accuracy and price by option of a request")
    arguments.add_argument("--misbehaving", action="store_true", help="good clients beside five misbehaving ones")
    chosen = arguments.parse_args()
    workspace, most = Workspace.find(), max(chosen.clients)
    if chosen.misbehaving:
        rows = beside_misbehaving(workspace, most - 5, chosen.seconds)
        with open_registered_versions(workspace) as champion:
            recipe = PolicyCard.read(champion.fetch_files(champion.find_current() or "").policy).recipe
        head = (
            f"A champion of the recipe `{recipe}` was measured for {chosen.seconds:g} s for each row, on {CORES}. The "
            f"load average at the end was {psutil.getloadavg()[0]:.1f}. Times are in seconds: median / 99th percentile."
        )
        columns = ("good clients", "their responses", "a good request", "`/health`", "memory")
        return publish(MISBEHAVING, head, columns, rows)
    if chosen.options:
        head = f"The quickstart's champion, {chosen.each} fresh questions of each benchmark of its recipe."
        columns = (
            "option", "in-domain, %", "OOD, %", "USD a question", "declared critical path, s", "with a fallback, %",
        )  # fmt: skip
        return publish(OPTIONS_MARK, head, columns, options(workspace, chosen.each))
    wanted = [*((clients, 0.0) for clients in sorted(chosen.clients)), (most, 1.0)]
    loads = [under_load(workspace, clients, chosen.seconds, traced) for clients, traced in wanted]
    head = (
        f"The quickstart's champion was measured for {chosen.seconds:g} s for each row, on {CORES}. The load average "
        f"at the end was {psutil.getloadavg()[0]:.1f}. {loads[0].start} With {most} clients, storing traces multiplied "
        f"the server's CPU time for an answer by {loads[-1].cpu_ms / loads[-2].cpu_ms:.2f}. When the load ended, "
        f"{loads[-1].traces}."
    )
    columns = (
        "clients", "traced", "responses", "whole request", "wait for admission", "writing, with its queue",
        "workers' calls", "declared critical path", "requests/s", "requests per core second", "with a fallback",
        "memory",
    )  # fmt: skip
    return publish(MARK, head, columns, [each.row for each in loads])


PARTS = (_tracing,)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    main()
