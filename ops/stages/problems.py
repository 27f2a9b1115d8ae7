"""The data stage `raw_problems`: one file per benchmark and split in `data/raw`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.base import Loaded
from ops.benchmarks.quarantine import judge, quarantine
from ops.benchmarks.raw import SPLITS, raw_files
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import write_problems
from ops.config import Recipe, Setup
from ops.core.errors import DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace


class Raw(NamedTuple):
    """What one benchmark gave: its problems by split (empty where it has none) and the files they lie in.

    `quarantined` malformed rows were left out; `quarantine` are the files that name them.
    """

    train: list[Problem]
    test: list[Problem]
    files: list[Path]
    quarantined: int = 0
    quarantine: tuple[Path, ...] = ()


def materialize_raw(setup: Setup, benchmark: str) -> Raw:
    """Load `benchmark` as the recipe says and write its splits; files of benchmarks the recipe lacks go.

    A file source without a test file gives no test questions (and the other way round for benchmarks
    that are not trained on). Malformed rows are quarantined. Raises `DataError` (too many of them,
    or a source that cannot be used) and `ConfigError`; then nothing in `data/raw` has changed.
    """
    workspace, recipe = setup.workspace, setup.recipe
    entry, source = BENCHMARKS[benchmark], recipe.benchmarks[benchmark]
    named = raw_files(workspace, recipe, benchmark)
    loaded: dict[Split, Loaded] = {split: entry.read(split, source, workspace, recipe.seed) for split in named}
    listed = {split: quarantine(workspace, entry, split, part) for split, part in loaded.items()}
    for split, part in loaded.items():
        judge(entry, split, part, source.max_malformed_share, listed[split])
    by_split = {split: loaded[split].problems if split in loaded else [] for split in SPLITS}
    if entry.releases and source.source != "embedded":
        _disjoint(benchmark, by_split)
    files = []
    for split, problems in by_split.items():
        if problems:
            files.append(named[split])
            write_problems(files[-1], problems)
    _forget_others(workspace, recipe, benchmark, files)
    quarantined = sum(len(part.rejected) for part in loaded.values())
    return Raw(by_split["train"], by_split["test"], files, quarantined, tuple(filter(None, listed.values())))


def _disjoint(benchmark: str, by_split: dict[Split, list[Problem]]) -> None:
    # Releases of one benchmark name the same question alike, so a shared id is a release used twice.
    train, test = ([problem.id.rpartition("/")[2] for problem in by_split[split]] for split in SPLITS)
    held_out = set(test)
    if shared := [name for name in train if name in held_out]:
        problem = f"share {len(shared):,} questions, {', '.join(shared[:3])} among them"
        remedy = "Give each split the questions of its own release; cumulative releases hold the earlier ones"
        raise DataError(benchmark, "train and test split", problem, remedy)


def _forget_others(workspace: Workspace, recipe: Recipe, benchmark: str, written: list[Path]) -> None:
    """Remove what other recipes left: benchmarks that this one lacks, and other splits of `benchmark`."""
    for file in (workspace.data / "raw").glob("*.jsonl"):
        owner = file.stem.partition("-")[0]
        if owner not in recipe.benchmarks or (owner == benchmark and file not in written):
            file.unlink()
