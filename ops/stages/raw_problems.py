"""The data stage `raw_problems`, which writes one file per benchmark and split into `data/raw`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.base import Benchmark, LoadedSplit
from ops.benchmarks.problem_files import SPLITS, raw_files, write_problems
from ops.benchmarks.quarantine import check_malformed_share, quarantine_rows
from ops.benchmarks.registry import BENCHMARKS, describe_graded_tests
from ops.benchmarks.source_rows import Row, RowError
from ops.config import BenchmarkSource, Recipe, Setup
from ops.core.digests import DIGEST_SUFFIX
from ops.core.errors import DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.grading.hidden_tests import hidden_tests_folder, remove_new_files_on_error, remove_unused_hidden_tests
from ops.quality.gold import GoldGrade, grade_gold


class RawProblems(NamedTuple):
    """The problems of one benchmark by split, and the files that hold them; a split that the benchmark lacks is empty.

    `quarantined` is the number of malformed rows that were left out, and `failing_gold` the number of rows that were
    left out because the grader rejects their gold answer. `quarantine` are the files that list these rows.
    """

    train: list[Problem]
    test: list[Problem]
    files: list[Path]
    quarantined: int = 0
    quarantine: tuple[Path, ...] = ()
    failing_gold: int = 0

    @property
    def graded_on(self) -> str:
        """The tests that each split is graded on, if the benchmark hides some of its tests; otherwise ""."""
        notes = {"train": describe_graded_tests(self.train), "test": describe_graded_tests(self.test)}
        return "; ".join(f"{split}: {note}" for split, note in notes.items() if note)


def materialize_raw(setup: Setup, benchmark: str) -> RawProblems:
    """Load a benchmark from its source and write its splits to `data/raw`; delete files of benchmarks outside the
    recipe.

    A file source may omit its test file, or its training file if the benchmark is not trained on. Malformed rows, and a
    limited share of rows with failing gold answers, are quarantined. Raises `DataError` for too many malformed rows or
    an unusable source, and `ConfigError`; `data/raw` is unchanged then.
    """
    workspace, recipe = setup.workspace, setup.recipe
    entry, source = BENCHMARKS[benchmark], recipe.benchmarks[benchmark]
    named = raw_files(workspace, recipe, benchmark)
    loaded: dict[Split, LoadedSplit] = {}
    tests = hidden_tests_folder(workspace.root)
    with remove_new_files_on_error(tests / benchmark):
        for split in named:
            read = entry.load(split, source, workspace, recipe.seed, tests)
            loaded[split] = _remove_failing_gold(entry, split, read, source)
        listed = {split: quarantine_rows(workspace, entry, split, part) for split, part in loaded.items()}
        for split, part in loaded.items():
            check_malformed_share(entry, split, part, source.max_malformed_share, listed[split])
        by_split = {split: loaded[split].problems if split in loaded else [] for split in SPLITS}
        if entry.releases and source.source != "embedded":
            _check_disjoint(benchmark, by_split)
    files = []
    for split, problems in by_split.items():
        if problems:
            files.append(named[split])
            write_problems(files[-1], problems)
    remove_other_files(workspace, recipe, benchmark, files)
    remove_unused_hidden_tests(tests, recipe.benchmarks, benchmark, [*by_split["train"], *by_split["test"]])
    quarantined = sum(len(part.rejected) for part in loaded.values())
    failing = sum(len(part.failing_gold) for part in loaded.values())
    return RawProblems(
        by_split["train"], by_split["test"], files, quarantined, tuple(filter(None, listed.values())), failing
    )


def _remove_failing_gold(entry: Benchmark, split: Split, loaded: LoadedSplit, source: BenchmarkSource) -> LoadedSplit:
    """Leave out the rows whose gold answer the grader rejects; change nothing if they exceed the permitted share.

    Embedded answers are correct by construction, so a failing one is a defect of Podium and is not left out. Reference
    programs are checked later, before their use.
    """
    if source.source == "embedded" or entry.grader_name(source) == "code":
        return loaded
    grades = grade_gold(loaded.problems)
    given = sum(grade.score is not None for grade in grades)
    failing = [grade.score not in (None, 1) for grade in grades]
    if not any(failing) or sum(failing) > source.max_failing_gold_share * given:
        return loaded
    errors = [
        _make_gold_error(f"{entry.name} {split}", number, problem, grade)
        for number, (problem, grade, fails) in enumerate(zip(loaded.problems, grades, failing, strict=True), 1)
        if fails
    ]
    sound = [problem for problem, fails in zip(loaded.problems, failing, strict=True) if not fails]
    return loaded._replace(problems=sound, failing_gold=errors)


def _make_gold_error(place: str, number: int, problem: Problem, grade: GoldGrade) -> RowError:
    row = Row(place, number, problem.as_row(), unit="problem")
    why = f"is rejected by the grader {grade.grader}: it scores {grade.score:g} ({grade.reason})"
    return row.make_error("answer", why, "Correct the answer, or the grader if the answer is right")


def _check_disjoint(benchmark: str, by_split: dict[Split, list[Problem]]) -> None:
    # Releases of one benchmark use the same id for a question, so a shared id means that a release is used twice.
    train, test = ([problem.id.rpartition("/")[2] for problem in by_split[split]] for split in SPLITS)
    held_out = set(test)
    if shared := [name for name in train if name in held_out]:
        problem = f"share {len(shared):,} questions, {', '.join(shared[:3])} among them"
        remedy = "Give each split the questions of its own release; cumulative releases hold the earlier ones"
        raise DataError(benchmark, "train and test split", problem, remedy)


def remove_other_files(workspace: Workspace, recipe: Recipe, benchmark: str, written: list[Path]) -> None:
    """Delete the files in `data/raw` of benchmarks that the recipe lacks, and of splits of `benchmark` that were not
    written."""
    for file in (workspace.data / "raw").glob("*.jsonl"):
        owner = file.stem.partition("-")[0]
        if owner not in recipe.benchmarks or (owner == benchmark and file not in written):
            file.unlink()
            file.with_name(file.name + DIGEST_SUFFIX).unlink(missing_ok=True)
