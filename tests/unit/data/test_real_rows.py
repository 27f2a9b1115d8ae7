"""Real benchmark rows beside the project: every file is read, gold answers hold, contamination is found."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource
from ops.curation.decontaminate import decontaminate
from ops.errors import DataError
from ops.problem import Problem, Split
from ops.quality import check_gold, check_problems
from ops.workspace import Workspace


def load(name: str, split: Split, file: Path) -> list[Problem]:
    source = BenchmarkSource(source="file", **{f"{split}_file": str(file)})
    return BENCHMARKS[name].load(split, source, Workspace(file.parent), 0)


@pytest.mark.parametrize(
    ("name", "split", "file", "rows"),
    [
        ("math500", "test", "math500", 500),
        ("mmlu", "train", "mmlu_dev", 285),
        ("mmlu", "train", "mmlu_val", 1531),
        ("mmlu", "test", "mmlu_test_part", 4000),
        ("rlpr", "train", "webinstruct_train", 1971),
        ("rlpr", "test", "webinstruct_test", 949),
        ("livecodebench", "train", "livecodebench_v1", 400),
        ("bigcodebench", "test", "bigcodebench_hard", 148),
    ],
)
def test_every_real_file_is_read(shared: Path, name: str, split: Split, file: str, rows: int) -> None:
    problems = load(name, split, shared / f"{file}.jsonl.gz")
    assert len(problems) == rows
    assert check_problems(problems).failures == []


def test_rows_without_a_gold_answer_are_refused_until_removed(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"math_train.*line 5342, column 'answer': is empty.*remove the row"):
        load("math500", "train", shared / "math_train.jsonl.gz")
    with gzip.open(shared / "math_train.jsonl.gz", "rt", encoding="utf-8") as lines:
        sound = [line for line in lines if json.loads(line)["answer"].strip()]
    (tmp_path / "math.jsonl").write_text("".join(sound), encoding="utf-8")
    problems = load("math500", "train", tmp_path / "math.jsonl")
    assert len(problems) == 7498
    assert Counter(problem.level for problem in problems)["5"] == 2302


def test_real_contamination_is_found(shared: Path) -> None:
    train = load("mmlu", "train", shared / "mmlu_val.jsonl.gz")
    test = load("mmlu", "test", shared / "mmlu_test_part.jsonl.gz")
    clean = decontaminate(train, test, 0.8)
    pairs = {(removed.problem, removed.other): removed.kind for removed in clean.removed}
    known = ("mmlu/mmlu-val-clinical_knowledge-8", "mmlu/mmlu-test-college_medicine-156")
    assert pairs[known] == "exact"
    assert 10 <= sum(removed.cause == "contamination" for removed in clean.removed) <= 40


def test_real_choices_and_formulas_grade_their_own_gold(shared: Path) -> None:
    choices = load("mmlu", "train", shared / "mmlu_dev.jsonl.gz")
    formulas = load("math500", "test", shared / "math500.jsonl.gz")[:60]
    assert check_gold([*choices, *formulas]).failures == []


def test_programs_without_a_reference_are_skipped(shared: Path) -> None:
    found = check_gold(load("livecodebench", "train", shared / "livecodebench_v1.jsonl.gz"))
    assert (found.checked, found.skipped, found.success) == (0, 400, True)
