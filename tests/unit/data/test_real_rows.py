"""Real benchmark rows beside the project: every file is read, gold answers hold, contamination is found."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ops.benchmarks.quarantine import quarantine_file
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import evaluation_questions, training_candidates
from ops.config import BenchmarkSource, load_recipe
from ops.core.errors import DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.curation.decontaminate import decontaminate
from ops.quality import check_gold, check_problems
from ops.stages.problems import materialize_raw
from tests.loading import sound_problems
from tests.setups import without_workers

CONFIG = Path(__file__).resolve().parents[3] / "config"


def load(name: str, split: Split, *files: Path) -> list[Problem]:
    source = BenchmarkSource(source="file", **{f"{split}_file": tuple(map(str, files))})
    return sound_problems(BENCHMARKS[name], split, source, Workspace(files[0].parent), 0)


def test_all_nine_files_are_covered(shared: Path) -> None:
    recipe = (CONFIG / "recipes" / "files.yaml").read_text(encoding="utf-8")
    assert {file.name for file in shared.glob("*.gz")} == set(re.findall(r"benchmarks/(\w+\.jsonl\.gz)", recipe))


@pytest.mark.long
def test_the_files_recipe_loads_them_and_quarantines_two_rows(shared: Path, workspace: Workspace) -> None:
    shutil.copytree(CONFIG, workspace.config)
    (workspace.root / "benchmarks").symlink_to(shared)
    recipe = load_recipe(workspace.config, "files")
    raw = {name: materialize_raw(without_workers(workspace, recipe), name) for name in recipe.benchmarks}
    assert {name: (len(splits.train), len(splits.test), splits.quarantined) for name, splits in raw.items()} == {
        "math500": (7498, 500, 2),
        "mmlu": (1816, 4000, 0),
        "rlpr": (1971, 949, 0),
        "livecodebench": (400, 0, 0),
        "bigcodebench": (0, 148, 0),
    }
    for splits in raw.values():
        for problems in (splits.train, splits.test):
            assert not problems or check_problems(problems[:300]).failures == []
    listed = quarantine_file(workspace, "math500", "train").read_text(encoding="utf-8").splitlines()
    assert [(entry["line"], entry["column"], entry["reason"]) for entry in map(json.loads, listed)] == [
        (5342, "answer", "is empty"),
        (5344, "answer", "is empty"),
    ]
    assert Counter(problem.level for problem in raw["math500"].train)["5"] == 2302
    assert {problem.source.partition(" via")[0] for problem in raw["livecodebench"].train} == {
        "LiveCodeBench release_v1"
    }
    assert len(training_candidates(workspace, recipe)) == 7498 + 1816 + 1971 + 400
    assert sum(map(len, evaluation_questions(workspace, recipe).values())) == 500 + 4000 + 949 + 148


def test_v1_rows_cannot_be_held_out_as_v6(shared: Path) -> None:
    with pytest.raises(DataError, match=r"400 of 400 rows: .*is 'v1', but the test split is of 'v6'"):
        load("livecodebench", "test", shared / "livecodebench_v1.jsonl.gz")


@pytest.mark.long
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
    report = check_gold(load("livecodebench", "train", shared / "livecodebench_v1.jsonl.gz"))
    assert (report.checked, report.skipped, report.success) == (0, 400, True)
