"""The data stage `raw_problems`: one file per benchmark and split in `data/raw`.

What belongs here: the function that both the DVC stage and the Dagster asset call.
What does not: choosing among the problems (`ops.curation.stage`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import read_problems, write_problems
from ops.config import TRAINING_BENCHMARKS, Recipe
from ops.problem import Problem, Split
from ops.workspace import Workspace


class Raw(NamedTuple):
    """What one benchmark gave: its problems by split (empty where it has none) and the files they lie in."""

    train: list[Problem]
    test: list[Problem]
    files: list[Path]


def raw_file(workspace: Workspace, benchmark: str, split: Split) -> Path:
    """`data/raw/BENCHMARK-SPLIT.jsonl`."""
    return workspace.data / "raw" / f"{benchmark}-{split}.jsonl"


def materialize_raw(workspace: Workspace, recipe: Recipe, benchmark: str) -> Raw:
    """Load `benchmark` as the recipe says and write its splits; files of benchmarks the recipe lacks go.

    A file source without a test file gives no test questions (and the other way round for benchmarks
    that are not trained on). Raises `DataError`; then nothing of this benchmark has been written.
    """
    entry, source = BENCHMARKS[benchmark], recipe.benchmarks[benchmark]
    by_split: dict[Split, list[Problem]] = {"train": [], "test": []}
    for split in entry.splits:
        if split == "test" and source.source == "file" and source.test_file is None:
            continue
        by_split[split] = entry.load(split, source, workspace, recipe.seed)
    files = []
    for split, problems in by_split.items():
        if problems:
            write_problems(raw_file(workspace, benchmark, split), problems)
            files.append(raw_file(workspace, benchmark, split))
        else:
            raw_file(workspace, benchmark, split).unlink(missing_ok=True)
    _forget_others(workspace, recipe)
    return Raw(by_split["train"], by_split["test"], files)


def training_candidates(workspace: Workspace, recipe: Recipe) -> list[Problem]:
    """Every training candidate in `data/raw`, benchmark by benchmark. Raises `DataError`."""
    names = [name for name in TRAINING_BENCHMARKS if name in recipe.benchmarks]
    return [problem for name in names for problem in read_problems(raw_file(workspace, name, "train"))]


def evaluation_questions(workspace: Workspace, recipe: Recipe) -> dict[str, list[Problem]]:
    """Benchmark → its test questions, where the recipe gives any. Raises `DataError`."""
    files = {name: raw_file(workspace, name, "test") for name in recipe.benchmarks if _tests(recipe, name)}
    return {name: read_problems(file) for name, file in files.items()}


def _tests(recipe: Recipe, benchmark: str) -> bool:
    source = recipe.benchmarks[benchmark]
    return source.source != "file" or source.test_file is not None


def _forget_others(workspace: Workspace, recipe: Recipe) -> None:
    for file in (workspace.data / "raw").glob("*.jsonl"):
        if file.stem.rpartition("-")[0] not in recipe.benchmarks:
            file.unlink()
