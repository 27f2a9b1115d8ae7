"""Measure a real language model on real rows (`python -m
tests.bench.real_rows`, `make real-rows`), into docs/reference.

The model is SmolLM2-135M-Instruct, the worker of the pool `local-llm`, served by vLLM on this machine. It is called
alone, as in precaching, through the client and the checkout's response cache, and graded by the usual graders.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.base import EVALUATION_SEED, sample_problems
from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource, Setup, Worker
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.local_models.vllm_server import serve_pool
from ops.precaching.client_setup import open_client
from ops.precaching.precache import precache_worker
from ops.quality.gold import grade_gold
from ops.results.leaderboard import format_accuracy
from ops.results.statistics import estimate_accuracy
from ops.workers.client import WorkerClient
from tests.bench.real_data import ROWS

MARK = "<!-- made by `make real-rows` -->"
POOL, WORKER = "local-llm", "smollm2-135m"
QUESTIONS, SAMPLES = 100, 3


class Rows(NamedTuple):
    """A file of rows, and the benchmark whose test split it belongs to."""

    benchmark: str
    file: str


SETS = {"MMLU test": Rows("mmlu", "mmlu_test_part"), "WebInstruct subset, test": Rows("rlpr", "webinstruct_test")}


class Answers(NamedTuple):
    """A worker's graded answers to one set, and the seconds of its calls."""

    rows: Sequence[ResponseRow]
    seconds: float

    @property
    def speed(self) -> float | None:
        """Tokens generated per second while calls were made; None if all answers came from the cache."""
        written = sum(row.response.completion_tokens for row in self.rows if not row.response.cached)
        return written / self.seconds if written else None


def questions(folder: Path, rows: Rows, count: int = QUESTIONS) -> list[Problem]:
    """Return a sample of a file's rows, the same for every run, without rows whose gold answer the grader rejects.

    Raises `DataError` if the file cannot be read.
    """
    source = BenchmarkSource(source="file", test_file=str((folder / f"{rows.file}.jsonl.gz").resolve()))
    problems = BENCHMARKS[rows.benchmark].load("test", source, Workspace(folder), EVALUATION_SEED).problems
    grades = grade_gold(problems)
    sound = [problem for problem, grade in zip(problems, grades, strict=True) if grade.score == 1]
    return sample_problems(sound, count, EVALUATION_SEED)


def ask(problems: Sequence[Problem], worker: Worker, client: WorkerClient, samples: int = SAMPLES) -> Answers:
    """Ask every question at every sample index, within the worker's concurrency limit."""
    began = time.monotonic()
    rows = asyncio.run(precache_worker(problems, worker, client, samples, _progress(len(problems) * samples)))
    return Answers(rows, time.monotonic() - began)


def table(sets: dict[str, Answers], worker: Worker) -> str:
    """Return the table with a line per set: percentages, and errors
    over questions, each of which has several answers.
    """
    head = (
        "rows", "questions", "answers", "right, %", f"cut at {worker.max_tokens} tokens, %", "no answer found, %",
        "unscorable", "tokens an answer", "tokens/s",
    )  # fmt: skip
    return format_markdown_table(head, [(name, *_cells(answers)) for name, answers in sets.items()])


def _cells(answers: Answers) -> tuple[str, ...]:
    by_question: dict[str, list[ResponseRow]] = defaultdict(list)
    for row in answers.rows:
        by_question[row.problem_key].append(row)
    reached = [row for row in answers.rows if row.status != "unreachable"]

    def share(of: Callable[[ResponseRow], float]) -> str:
        answers = [[of(row) for row in own if row.status != "unreachable"] for own in by_question.values()]
        return format_accuracy(estimate_accuracy([fmean(own) for own in answers if own]))

    return (
        str(len(by_question)),
        str(len(answers.rows)),
        share(lambda row: row.score),
        share(lambda row: row.response.finish_reason == "length"),
        share(lambda row: not row.extracted),
        str(len(answers.rows) - len(reached)),
        f"{fmean(row.response.completion_tokens for row in reached):.0f}" if reached else "–",
        "–" if answers.speed is None else f"{answers.speed:.0f}",
    )


def _progress(total: int) -> Callable[[ResponseRow], None]:
    done = 0

    def count(_: ResponseRow) -> None:
        nonlocal done
        done += 1
        if done % 50 == 0 or done == total:
            print(f"{done} of {total} answers", flush=True)

    return count


def main() -> int:
    """Ask, print the table and write it between its markers; exit code 1 without rows."""
    workspace = Workspace.find()
    folder = (workspace.root / ROWS).resolve()
    if not folder.is_dir():
        print(f"error: no real benchmark rows at {folder}", file=sys.stderr)
        return 1
    configure(workspace.root)
    asked = {name: questions(folder, rows) for name, rows in SETS.items()}
    setup = Setup.read(workspace, POOL)
    pool = setup.pool.model_copy(update={"workers": (setup.pool.worker(WORKER),)})
    client = open_client(setup, "evaluation")
    with serve_pool(pool, workspace):
        sets = {name: ask(own, pool.worker(WORKER), client) for name, own in asked.items()}
    text = table(sets, pool.worker(WORKER))
    replace_marked_text(workspace.root / MEASUREMENTS, MARK, text)
    print(f"{text}\nwritten to {MEASUREMENTS}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
