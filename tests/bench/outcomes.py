"""Process real outcomes with profiles, forecast and replay (`python -m tests.bench.outcomes`), into docs/reference.

The outcomes are in `../shared`, which a user's machine does not have; the program then reports this and ends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource, Replay, Worker
from ops.core.documents import MEASUREMENTS, replace_marked_text
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.curation.training_signal import estimate_group_signals
from ops.precaching.precache import precache_worker
from ops.precaching.profiles import find_best_worker, profile_workers, score_oracle, tally_responses
from ops.precaching.replay import RecordedResponses, ReplayClient
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.live_call import Account
from tests.bench.real_data import json_lines
from tests.loading import sound_problems

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
MATRIX = SHARED / "outcomes" / "livecodebench_leaderboard_2024-02.json.gz"
O1 = SHARED / "outcomes" / "livecodebench_v1_o1-preview.jsonl.gz"
STATEMENTS = "benchmarks/livecodebench_v1.jsonl.gz"
MARK = "<!-- made by `python -m tests.bench.outcomes` -->"
SAMPLES = 10
"""Number of samples per question, because the matrix gives pass@1 in tenths."""


def matrix_rows() -> list[ResponseRow]:
    """Return the published pass rates as ten graded responses each; tokens and prices were not published."""
    with gzip.open(MATRIX, "rt", encoding="utf-8") as file:
        cells = json.load(file)["performances"]
    return [
        _row(cell["model"], str(cell["question_id"]), sample, score=float(sample * 100 < cell["pass@1"] * SAMPLES))
        for cell in cells
        for sample in range(SAMPLES)
    ]


def _row(worker: str, problem: str, sample: int, *, score: float = 0.0, text: str = "") -> ResponseRow:
    response = Response(text, Usage(), 0.0, 0.0, "stop")
    return ResponseRow(worker, "livecodebench", problem, sample, "ok", response, score)


class ReplayedGrade(NamedTuple):
    """The grades of one response of o1-preview: on the public tests here, and as published on the hidden tests."""

    problem: str
    public: bool
    hidden: bool
    same_program: bool


def replayed_verdicts(every: int = 1) -> list[ReplayedGrade]:
    """Grade o1-preview's responses (each `every`th) with replay, the program extraction and the grader."""
    outcomes = {str(row["question_id"]): row for row in json_lines(O1)}
    problems = [problem for problem in statements() if problem.id.removeprefix("lcb-") in outcomes][::every]
    texts = {problem.id: outcomes[problem.id.removeprefix("lcb-")] for problem in problems}
    rows = [_row("o1-preview", name, 0, text=row["output_list"][0]) for name, row in texts.items()]
    worker = Worker(name="o1-preview", model="openai/o1-preview")
    with tempfile.TemporaryDirectory() as folder:
        client = ReplayClient(
            ResponseCache(Path(folder)), Ledger(Path(folder) / "ledger.sqlite"), Account("run", "rehearsal", 1.0),
            replay=Replay(match="problem"), recorded=RecordedResponses(rows, problems),
        )  # fmt: skip
        graded = asyncio.run(precache_worker(problems, worker, client))
    return [
        ReplayedGrade(
            row.problem_id,
            row.score >= 1.0,
            bool(texts[row.problem_id]["graded_list"][0]),
            row.extracted.strip() == texts[row.problem_id]["code_list"][0].strip(),
        )
        for row in graded
    ]


def statements() -> list[Problem]:
    """Load LiveCodeBench V1 with its public tests through the file source."""
    source = BenchmarkSource.model_validate({"source": "file", "train_file": STATEMENTS})
    return list(sound_problems(BENCHMARKS["livecodebench"], "train", source, Workspace(SHARED), 0))


# ── tables ───────────────────────────────────────────────────────────────────


def report(rows: Sequence[ResponseRow], verdicts: Sequence[ReplayedGrade]) -> str:
    """Return both tables in Markdown."""
    return f"{_matrix(rows)}\n\n{_replay(verdicts)}\n"


def _matrix(rows: Sequence[ResponseRow]) -> str:
    workers, best = profile_workers(rows), find_best_worker(rows)
    [best_of_each] = score_oracle(rows).values()
    cells = len({(row.worker, row.problem_id) for row in rows})
    lines = [
        f"{len(workers)} models × {best_of_each.n} problems of LiveCodeBench ({cells:,} cells of {SAMPLES} samples):",
        "",
        "| | accuracy in % ± standard error |",
        "| --- | ---: |",
    ]
    ranked = sorted(workers, key=lambda worker: -worker.overall.accuracy)
    named = [(f"best single worker ({best.worker})", best.overall)]
    named += [("best worker of each problem (oracle)", best_of_each)]
    named += [(worker.worker, worker.overall) for worker in ranked[1:4]]
    named += [(f"… {ranked[-1].worker}", ranked[-1].overall)]
    lines += [f"| {name} | {100 * score.accuracy:.1f} ± {100 * score.se:.1f} |" for name, score in named]
    lines += ["", "| rollouts a question | groups whose rewards differ, forecast | … without chains of workers |"]
    lines += ["| ---: | ---: | ---: |"]
    counts = tally_responses(rows)
    for group in (8, 16, 64):
        shares = (fmean(estimate_group_signals(counts, group, **options).values()) for options in _OPTIONS)
        lines.append(f"| {group} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return "\n".join(lines)


_OPTIONS: tuple[dict[str, Any], ...] = ({}, {"second": None})


def _replay(verdicts: Sequence[ReplayedGrade]) -> str:
    def count(public: bool, hidden: bool) -> int:
        return sum((verdict.public, verdict.hidden) == (public, hidden) for verdict in verdicts)

    wrong = [verdict.problem for verdict in verdicts if verdict.hidden and not verdict.public]
    failures = count(False, False) + len(wrong)
    same = sum(verdict.same_program for verdict in verdicts)
    lines = [
        f"{len(verdicts)} responses of o1-preview, replayed through extraction and grader:",
        f"{same} of the extracted programs are the published ones to the letter.",
        "",
        "| public tests, here | hidden tests, published | responses |",
        "| --- | --- | ---: |",
        f"| pass | pass | {count(True, True)} |",
        f"| fail | fail | {count(False, False)} |",
        f"| pass | fail | {count(True, False)} |",
        f"| fail | pass | {len(wrong)} |",
        "",
        f"Public tests suffice to tell only where they fail ({failures} responses): "
        "then the hidden ones must fail too. "
        + (f"Disagreements: {', '.join(wrong)}." if wrong else "There is no disagreement."),
    ]
    return "\n".join(lines)


def main() -> int:
    """Write the tables into files of docs/reference."""
    if not MATRIX.is_file():
        print(f"{MATRIX.parent.name}/ is not beside the project: nothing to do")
        return 0
    text = report(matrix_rows(), replayed_verdicts())
    replace_marked_text(ROOT / MEASUREMENTS, MARK, text)
    print(f"{text}\nwritten to {MEASUREMENTS.with_suffix('')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
