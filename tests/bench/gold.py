"""Grade the gold answers of the real rows (`make gold`, `python -m tests.bench.gold`) and write docs/reference."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.base import LoadedSplit
from ops.benchmarks.registry import BENCHMARKS, describe_graded_tests
from ops.config import BenchmarkSource
from ops.core.documents import MEASUREMENTS, replace_marked_text
from ops.core.problem import Split
from ops.core.workspace import Workspace
from ops.grading import configure, find_available_isolation
from ops.quality.gold import GoldGrades, grade_gold, render_gold_report
from tests.bench.real_data import ROWS

MARK = "<!-- made by `make gold` -->"


class Rows(NamedTuple):
    """One file of rows, and the benchmark and split that it belongs to."""

    benchmark: str
    split: Split
    file: str


SETS = {
    "MATH train": Rows("math500", "train", "math_train"),
    "MATH500": Rows("math500", "test", "math500"),
    "MMLU dev": Rows("mmlu", "test", "mmlu_dev"),
    "MMLU val": Rows("mmlu", "test", "mmlu_val"),
    "MMLU test, 4,000": Rows("mmlu", "test", "mmlu_test_part"),
    "WebInstruct subset, train": Rows("rlpr", "train", "webinstruct_train"),
    "WebInstruct subset, test": Rows("rlpr", "test", "webinstruct_test"),
    "LiveCodeBench V1": Rows("livecodebench", "train", "livecodebench_v1"),
    "BigCodeBench hard": Rows("bigcodebench", "test", "bigcodebench_hard"),
}


def load_set(folder: Path, name: str) -> LoadedSplit:
    """Load one set through the file source, as a recipe does."""
    benchmark, split, file = SETS[name]
    path = str((folder / f"{file}.jsonl.gz").resolve())
    source = BenchmarkSource(source="file", train_file=path if split == "train" else None,
                             test_file=path if split == "test" else None)  # fmt: skip
    return BENCHMARKS[benchmark].load(split, source, Workspace(folder), 0)


def grade_set(folder: Path, name: str) -> GoldGrades:
    """Load one set and grade its gold answers."""
    loaded = load_set(folder, name)
    began = time.monotonic()
    verdicts = grade_gold(loaded.problems)
    return GoldGrades(verdicts, len(loaded.rejected), time.monotonic() - began, describe_graded_tests(loaded.problems))


def main() -> int:
    """Grade every set, print the report and write it between its markers; exit code 1 without rows."""
    root = Workspace.find().root
    folder = root / ROWS
    configure(root)
    if not folder.is_dir():
        print(f"error: no real benchmark rows at {folder.resolve()}", file=sys.stderr)
        return 1
    sets = {}
    for name in SETS:
        print(f"grading {name} …", flush=True)
        sets[name] = grade_set(folder, name)
    text = render_gold_report(sets, find_available_isolation())
    replace_marked_text(root / MEASUREMENTS, MARK, text)
    print(f"{text}\nwritten to {MEASUREMENTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
