"""The figures of a leaderboard from its rows: 7 systems × 7
benchmarks × 10,000 rows, beside pandas on the same files; and the way of
all rows from score files through leaderboard, outcome table, report and the
registry's metrics, at growing numbers of rows.

Each number of rows runs in a process of its own, so that its peak memory is its own:
`python -m tests.bench.summary ROWS`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pandas as pd
import psutil

from ops.config import Setup
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.comparison import write_outcome_table
from ops.release.new_version import compute_content_key, compute_metrics
from ops.reports.evidence import Evidence, RunInfo, System
from ops.reports.exhibit import make_exhibits
from ops.results.leaderboard import build_leaderboard, build_tables
from ops.results.outcome_rows import CallUsage, OutcomeRow
from ops.results.statistics import compute_contrasts
from ops.results.summary import accuracy_by_question, summarize
from ops.results.table import Rows, concatenate_rows, reprice_rows, save_rows, scan_rows, write_rows
from tests.bench.curation import peak_gib
from tests.bench.row import Row, measured_alone, sized

SYSTEMS, BENCHMARKS, QUESTIONS, REPEATS = 7, 7, sized(2500, 50), 4
TURNS = 3
BY_PANDAS = "read and grouped by pandas"
ROW = OutcomeRow(
    benchmark="", problem_id="", repeat=0, domain="", correct=0, format_ok=True, failure="", status="answered",
    steps=2, workers=("a", "b"), tokens=300, cost_usd=0.01, latency_s=1.0, completion="", answer="",
    unscorable=False, shape="chain", pattern="0←1",
    usage=(CallUsage("a", Usage(100, 50)), CallUsage("b", Usage(100, 50))),
)  # fmt: skip
COLUMNS = ("benchmark", "problem_id", "correct", "unscorable", "tokens", "cost_usd", "latency_s", "steps", "format_ok")
Files = Mapping[str, Path]
ROWS = tuple(sized(whole, small) for whole, small in ((10_000, 500), (100_000, 1000), (1_000_000, 2000)))
"""Numbers of evaluation rows, smallest first."""
SCORED = ("conductor", "cold_start", *(f"worker {number}" for number in range(7)))
"""The systems whose rows a leaderboard reads."""


def _growth() -> list[Row]:
    """Compare each number of rows with the next smaller one, multiplied to the same number."""
    measured = {rows: measured_alone("tests.bench.summary", rows, 900) for rows in ROWS}
    made = []
    for few, many in pairwise(ROWS):
        for what, unit, most in (("cpu_s", "CPU s", 1.25), ("mib", "MiB", 1.25)):
            name = "peak memory" if unit == "MiB" else "CPU"
            ours, reference = measured[many][what], measured[few][what] * many / few
            against = f"{many // few} × {few:,} rows"
            made.append(Row(f"{many:,} evaluation rows: {name}", ours, against, reference, most, unit))
    return made


def main(rows: int) -> None:
    """Measure the steps for one number of rows, and print CPU seconds and peak memory as JSON."""
    setup = Setup.read(Workspace.find(), "quickstart")
    cpu: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        _steps(setup, 0, Path(folder), {})  # imports
        empty = psutil.Process().memory_info().rss
        _steps(setup, rows // len(SCORED), Path(folder), cpu)
    memory = {"mib": (peak_gib() * 2**30 - empty) / 2**20}
    print(json.dumps({"rows": rows, "cpu_s": sum(cpu.values()), **memory, "steps": cpu}))


def _steps(setup: Setup, per_system: int, folder: Path, cpu: dict[str, float]) -> None:
    """Store the rows of every system by benchmark, as an evaluation does; then read them as the later assets do."""
    benchmarks = list(setup.recipe.benchmarks)
    files = {system: [folder / f"{system}-{name}.parquet" for name in benchmarks] for system in SCORED}
    for own in files.values():
        for name, file in zip(benchmarks, own, strict=True):
            with _timed(cpu, "store"):
                write_rows(_answers(name, per_system // len(benchmarks)), file)

    def read(system: str) -> Rows:
        return concatenate_rows(reprice_rows(scan_rows(file), setup.pool) for file in files[system])

    with _timed(cpu, "leaderboard"):
        baselines = {system: summarize(read(system)) for system in SCORED[2:]}
        build_tables(build_leaderboard(read(SCORED[0]), baselines, read(SCORED[1])))
    with _timed(cpu, "outcome table"):
        write_outcome_table(setup, ((system, read(system)) for system in SCORED), {}, folder / "outcomes.parquet")
    with _timed(cpu, "report"):
        systems = {name: System.from_rows(name, name, _KINDS.get(name, "worker"), read(name)) for name in SCORED}  # type: ignore[arg-type]
        make_exhibits(Evidence(RunInfo("quickstart", 1, "policy", "quickstart"), systems, read(SCORED[0])))
    with _timed(cpu, "registry"):
        own = read(SCORED[0])
        compute_metrics(own)
        compute_content_key(folder / "policy", setup.pool, own)
        save_rows(own, folder / "scores.parquet", texts=False)


_KINDS = {"conductor": "Conductor", "cold_start": "cold start"}


@contextmanager
def _timed(cpu: dict[str, float], step: str) -> Iterator[None]:
    began = time.process_time()
    yield
    cpu[step] = cpu.get(step, 0.0) + time.process_time() - began


def _answers(benchmark: str, count: int) -> Iterator[OutcomeRow]:
    chance = random.Random(benchmark)
    for number in range(count):
        right = int(chance.random() < 0.5)
        usage = tuple(CallUsage(name, Usage(100 + chance.randrange(50), 50)) for name in ("algebraist", "librarian"))
        yield replace(
            ROW, benchmark=benchmark, domain=benchmark, problem_id=str(number // REPEATS), repeat=number % REPEATS,
            correct=right, usage=usage, completion=f"model_id = [0, 1] {number:04}" * 8, answer=str(number),
        )  # fmt: skip


def _figures() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        files = _systems(Path(folder))
        ours, reference = summarize(scan_rows(files["system 0"]))["benchmark 0"].accuracy, _grouped(files)
        assert abs(ours.standard_error - reference.loc[("system 0", "benchmark 0"), "sem"]) < 1e-9, "the same numbers"
        ways: tuple[Callable[[Files], object], ...] = (_summarized, _compared, _grouped)
        taken = [[_cpu_s(way, files) for way in ways] for _ in range(TURNS)]
    summarized, compared, grouped = (median(times) for times in zip(*taken, strict=True))
    what = f"{SYSTEMS} systems × {BENCHMARKS} benchmarks × {QUESTIONS * REPEATS:,} rows"
    return [
        Row(f"{what}, summarised", summarized, BY_PANDAS, grouped, 1.5, "CPU s"),
        Row(f"{what}, summarised and compared", summarized + compared, BY_PANDAS, grouped, 8.0, "CPU s"),
    ]


def _cpu_s(way: Callable[[Files], object], files: Files) -> float:
    started = time.process_time()
    way(files)
    return time.process_time() - started


def _summarized(files: Files) -> object:
    return {name: summarize(scan_rows(file)) for name, file in files.items()}


def _compared(files: Files) -> object:
    return compute_contrasts({name: accuracy_by_question(scan_rows(file)) for name, file in files.items()}, "system 0")


def _grouped(files: Files) -> pd.DataFrame:
    """Compute the same means and standard errors over questions with pandas: the reference."""
    frames = [pd.read_parquet(file, columns=list(COLUMNS)).assign(system=name) for name, file in files.items()]
    frame = pd.concat(frames)
    scored, groups = frame[~frame["unscorable"]], ["system", "benchmark"]
    accuracy = scored.groupby([*groups, "problem_id"])["correct"].mean().groupby(groups).agg(["mean", "sem", "size"])
    usage = scored.groupby(groups)[["tokens", "cost_usd", "latency_s", "steps"]].mean()
    return accuracy.join(usage).join(frame.groupby(groups)["format_ok"].mean())


def _systems(folder: Path) -> Files:
    chance = random.Random(1)
    difficulty = [[chance.random() for _ in range(QUESTIONS)] for _ in range(BENCHMARKS)]
    files = {f"system {number}": folder / f"{number}.parquet" for number in range(SYSTEMS)}
    for file in files.values():
        write_rows((
            replace(ROW, benchmark=f"benchmark {b}", problem_id=str(q), repeat=r, correct=int(chance.random() < rate))
            for b, rates in enumerate(difficulty)
            for q, rate in enumerate(rates)
            for r in range(REPEATS)
        ), file)  # fmt: skip
    return files


PARTS = (_figures, _growth)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
