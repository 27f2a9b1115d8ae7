"""An evaluation that is killed five times, and then read again: `python -m tests.bench.evaluation ROWS`.

A process evaluates a simulated policy with simulated workers without latency, through the usual loop, client, store and
ledger. It appends a mark of each generated text and each call to a file, and ends itself by SIGKILL when the calls
reach the next sixth of all: at an answer that is not stored yet, and, every second time, after rows were made. Then it
is started again, and at the end once more, when it only reads. What a kill loses before it is stored counts as in
flight and may be made again; whatever is made again beyond that was repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ops.conductor.stored_writer import StoredWriter
from ops.config import Evaluation, Pool, Price, Prompting, Worker
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.registry import PROVIDERS, Provider
from ops.core.workspace import Workspace
from ops.evaluation.row_sorting import RowSorter
from ops.evaluation.runner import evaluate
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import summarize
from ops.results.table import concatenate_rows, iterate_rows, reprice_rows, scan_rows
from ops.spending.ledger import Ledger
from ops.store import Kind, ResponseCache, open_backend
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team
from tests.bench.curation import peak_gib
from tests.bench.row import Row, measured_alone, sized

KILLS = 5
BENCHMARKS = ("math500", "rlpr")
QUESTIONS = 20
"""The questions of a small evaluation; a larger one has at most 20,000."""
ROWS = (sized(4_000, 200), sized(40_000, 400))
TIMEOUT_S = 14_400.0
"""For the evaluation of a million rows."""
MARK = 8
"""Bytes per text or call in the files `texts` and `calls`."""
TEXT = Workflow.single(0).render()


def rows() -> list[Row]:
    """Compare the peak memory of ten times as many rows with that of fewer; no text or call may be repeated."""
    few, many = (measured_alone("tests.bench.evaluation", size, TIMEOUT_S) for size in ROWS)
    repeated = sum(each["repeated_texts"] + each["repeated_calls"] for each in (few, many))
    assert repeated == 0, f"{repeated:g} texts or calls were repeated"
    rate = many["rows"] / many["again_s"]
    print(f"  {ROWS[1]:,} rows read again: {rate:,.0f} rows a second, {many['again_mib']:.0f} MiB", flush=True)
    what = f"{ROWS[1]:,} rows of an evaluation that is killed {KILLS} times: peak memory"
    return [Row(what, many["mib"], f"{ROWS[0]:,} rows", few["mib"], 1.25, "MiB")]


class Measured(NamedTuple):
    """The figures of an evaluation with all its kills."""

    rows: int
    distinct_rows: int
    kills: int
    wall_s: float
    mib: float
    """The highest peak memory of its processes, in MiB."""
    texts: int
    calls: int
    repeated_texts: int
    repeated_calls: int
    lost_in_flight: int
    """Texts and calls that were not stored at a kill, by kill: so many may be made again."""
    accuracy: float
    again_s: float
    """Seconds of one more evaluation, which only reads the store."""
    again_mib: float
    """The peak memory of that evaluation, in MiB."""


def measure(rows: int, folder: Path, kills: int = KILLS) -> Measured:
    """Evaluate in `folder`, with a new process after each kill. Raises `CalledProcessError`."""
    began, killed, lost = time.monotonic(), 0, {"texts": 0, "calls": 0}
    while not _is_ended(rows, folder, killed, kills):
        killed += 1
        for what, stored in _stored(folder).items():
            lost[what] += len(set(_marks(folder / what))) - stored
    wall_s = time.monotonic() - began
    made = {what: _marks(folder / what) for what in lost}
    again = {what: max(0, len(marks) - len(set(marks)) - lost[what]) for what, marks in made.items()}
    files = [_scores(folder, name) for name in BENCHMARKS]
    scored = [file.read_bytes() for file in files]
    began_again = time.monotonic()
    assert _is_ended(rows, folder, kills, kills)
    again_s, again_mib = time.monotonic() - began_again, _peaks(folder)[-1]
    assert {what: _marks(folder / what) for what in lost} == made, "an evaluation of stored calls made one"
    assert [file.read_bytes() for file in files] == scored
    keys = [(row.problem_key, row.repeat) for file in files for row in iterate_rows(file)]
    accuracy = json.loads((folder / "accuracy.json").read_text(encoding="utf-8"))
    return Measured(
        len(keys), len(set(keys)), killed, wall_s, max(_peaks(folder)), len(made["texts"]), len(made["calls"]),
        again["texts"], again["calls"], sum(lost.values()), accuracy, again_s, again_mib,
    )  # fmt: skip


def _is_ended(rows: int, folder: Path, killed: int, kills: int) -> bool:
    """Evaluate in a process, which ends itself if it was killed less than `kills` times; return whether it did not."""
    due = rows * (killed + 1) // (kills + 1) if killed < kills else 0
    when = "row" if killed % 2 else "call"
    command = [sys.executable, "-m", "tests.bench.evaluation", str(rows), str(folder), str(due), when]
    code = subprocess.run(command, cwd=Workspace.find().root, timeout=TIMEOUT_S, check=False).returncode
    if code not in (0, -signal.SIGKILL):
        raise subprocess.CalledProcessError(code, command)
    return code == 0


def _peaks(folder: Path) -> list[float]:
    return list(map(float, (folder / "peaks").read_text(encoding="utf-8").split()))


def _stored(folder: Path) -> dict[str, int]:
    """Return the number of stored texts and responses."""
    store = open_backend(folder)
    counts = {"texts": store.count(Kind.COMPLETION), "calls": store.count(Kind.RESPONSE)}
    store.close()
    return counts


def _marks(file: Path) -> list[bytes]:
    marks = file.read_bytes()
    return [marks[start : start + MARK] for start in range(0, len(marks), MARK)]


def _scores(folder: Path, benchmark: str) -> Path:
    return folder / "scores" / f"{benchmark}.parquet"


# ── the process that is killed ───────────────────────────────────────────────


class Simulation:
    """A policy, its worker and the rows, with marks of what they did; `due` calls end the process."""

    def __init__(self, folder: Path, due: int, when: str) -> None:
        self._folder, self._due, self._when = folder, due, when
        self._files = {what: os.open(folder / what, os.O_CREAT | os.O_APPEND | os.O_WRONLY) for what in WHAT}
        self._calls = os.fstat(self._files["calls"]).st_size // MARK

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        """Write the same workflow for every prompt."""
        for prompt in prompts:
            self._mark("texts", prompt, seed)
        return [TEXT] * len(prompts)

    def answer(self, messages: Sequence[Mapping[str, str]], *, sample: int | Sample = 0, **_: Any) -> SimpleNamespace:
        """Answer as a worker, in the shape of OpenAI's chat completions."""
        self._mark("calls", messages, str(sample))
        self._calls += 1
        self._end_if_due("call")
        message = SimpleNamespace(content="\\boxed{7}")
        return SimpleNamespace(
            model="bench/echo",
            choices=[SimpleNamespace(finish_reason="stop", message=message)],
            usage=SimpleNamespace(prompt_tokens=20, completion_tokens=5),
        )

    def stored(self, rows: Sequence[OutcomeRow], _: object) -> None:
        """Be told that rows were made."""
        self._end_if_due("row")

    def note_peak(self) -> None:
        """Append the peak memory of this process, in MiB."""
        with (self._folder / "peaks").open("a", encoding="utf-8") as out:
            out.write(f"{peak_gib() * 2**10}\n")

    def _end_if_due(self, event: str) -> None:
        if self._due and self._when == event and self._calls >= self._due:
            self.note_peak()
            os.kill(os.getpid(), signal.SIGKILL)

    def _mark(self, what: str, *material: object) -> None:
        os.write(self._files[what], hashlib.sha256(json.dumps(material).encode()).digest()[:MARK])


WHAT = ("texts", "calls")


async def _evaluate(rows: int, folder: Path, simulation: Simulation) -> None:
    questions = min(20_000, max(QUESTIONS, rows // 50))
    problems = [
        Problem(f"{i:05}", name, "math", "test", f"Question {i} of {name}?", str(7 + i % 2), "math")
        for name in BENCHMARKS
        for i in range(questions // len(BENCHMARKS))
    ]
    worker = Worker(name="echo", model="bench/echo", price=Price(input=1.0, output=1.0), concurrency=512)
    ledger = Ledger(folder / "ledger.sqlite")
    client = WorkerClient(ResponseCache(folder), ledger, Account("run", "evaluation", 1e9))
    team = Team((worker,), client, Prompting(style="compact", few_shots="none"))
    settings = Evaluation(repeats=rows // questions, temperature=1.0, batch=16 if rows < 1000 else 128)
    origins = {name: (_scores(folder, name), {"policy": "simulated"}) for name in BENCHMARKS}
    with RowSorter() as sorter, closing(StoredWriter(simulation, "simulated", folder)) as writer:
        await evaluate(writer, problems, team, settings, on_executed=simulation.stored, add_rows=sorter.add)
        sorter.write(origins)


def main(rows: int, given: Sequence[str]) -> None:
    """Evaluate in a given folder; without one, measure such evaluations and print the figures as JSON."""
    if not given:
        with tempfile.TemporaryDirectory() as made:
            print(json.dumps(measure(rows, Path(made))._asdict()))
        return
    folder, due, when = Path(given[0]), int(given[1]), given[2]
    simulation = Simulation(folder, due, when)
    module = SimpleNamespace(NAMES=("echo",), answer=simulation.answer)
    sys.modules["tests.bench.simulated_worker"] = module  # type: ignore[assignment]
    PROVIDERS.entries["bench"] = Provider("bench", plugin="tests.bench.simulated_worker")
    asyncio.run(_evaluate(rows, folder, simulation))
    pool = Pool(name="bench", workers=(Worker(name="echo", model="bench/echo", price=Price(input=1.0, output=1.0)),))
    scored = summarize(reprice_rows(concatenate_rows(scan_rows(_scores(folder, name)) for name in BENCHMARKS), pool))
    (folder / "accuracy.json").write_text(str(scored[BENCHMARKS[0]].accuracy.mean), encoding="utf-8")
    simulation.note_peak()


PARTS = (rows,)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
