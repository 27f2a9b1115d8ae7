"""Problems as files of JSON lines, the format between stages, and the files of `data/raw`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from ops.benchmarks.files import read_rows
from ops.benchmarks.registry import BENCHMARKS, describe_graded_tests, training_benchmarks
from ops.benchmarks.source_rows import Row, check_unique_ids
from ops.config import Recipe, digest
from ops.core.atomic import sha256_of, write_text
from ops.core.digests import check_digest
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace

_MAKE_AGAIN = "Make it again: `podium run RECIPE`"


def write_problems(file: Path, problems: Iterable[Problem]) -> None:
    """Write one JSON object per line, in order, with sorted keys, so that equal problems give equal bytes."""
    lines = (json.dumps(p.as_row(), ensure_ascii=False, sort_keys=True) for p in problems)
    write_text(file, "".join(f"{line}\n" for line in lines))


def read_problems(file: Path) -> list[Problem]:
    """Read a file of `write_problems`; an id is unique within its benchmark. Raises `DataError`."""
    if not file.is_file():
        raise _no_file(file)
    return [
        _parse_problem(row) for row in check_unique_ids(map(_mark_confidential, read_rows(file)), scope="benchmark")
    ]


def hash_problems(file: Path) -> str:
    """Return the SHA-256 of a file of problems in hex digits, for the keys of what is made from it.

    Raises `DataError` if the file is missing, or is not what was written there: with the hash of a damaged training
    mix, a trained policy would be looked for under another key and not be found.
    """
    _check_written(file)
    return sha256_of(file)


def _check_written(file: Path) -> None:
    """Raise `DataError` unless the file exists and, if it has a digest, is what a stage wrote there."""
    if not file.is_file():
        raise _no_file(file)
    check_digest(file, _MAKE_AGAIN, missing="accepted")


def _no_file(file: Path) -> DataError:
    problem = "is a folder in the place of a file" if file.is_dir() else "does not exist"
    return DataError(file, "", problem, _MAKE_AGAIN)


def _read_raw(file: Path) -> list[Problem]:
    """Read a file of `data/raw` that a stage has finished. Raises `DataError` if it is not what was written there."""
    _check_written(file)
    return read_problems(file)


def find_problem(files: Iterable[Path], key: str) -> Problem | None:
    """Return the problem with this key in those of the files that exist; None if none has it. Raises `DataError`."""
    existing = (file for file in files if file.is_file())
    return next((problem for file in existing for problem in read_problems(file) if problem.key == key), None)


def group_by_benchmark(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    """Return benchmark → its problems, in order."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.benchmark, []).append(problem)
    return groups


def _mark_confidential(row: Row) -> Row:
    """Veil a row whose benchmark is confidential or missing, so that no message shows its values."""
    entry = BENCHMARKS.get(str(row.values.get("benchmark")))
    return replace(row, is_confidential=entry is None or entry.is_confidential)


def _parse_problem(row: Row) -> Problem:
    try:
        problem = Problem.from_row(dict(row.values))
        if any(test.hidden for test in problem.tests):
            raise TypeError("hidden tests in the row")
        return problem
    except (TypeError, KeyError) as error:
        remedy = "The file was written by another version: materialize it again"
        reason = "" if row.is_confidential else f" ({error})"
        raise DataError(row.place, f"line {row.line}", f"is not a problem row{reason}", remedy) from None


SPLITS: tuple[Split, ...] = ("train", "test")


def raw_file(workspace: Workspace, recipe: Recipe, benchmark: str, split: Split) -> Path:
    """Return the file of a split, `data/raw/BENCHMARK-SPLIT.jsonl`, or `BENCHMARK-RELEASE-SPLIT.jsonl` for a release.

    The release is in the name, so that one release is never read in place of another. Raises `ConfigError`.
    """
    release = BENCHMARKS[benchmark].release(split, recipe.benchmarks[benchmark])
    return workspace.data / "raw" / f"{'-'.join(filter(None, (benchmark, release, split)))}.jsonl"


def raw_files(workspace: Workspace, recipe: Recipe, benchmark: str) -> dict[Split, Path]:
    """Return the file of each split that the recipe has for `benchmark`, whether it exists or not."""
    source = recipe.benchmarks[benchmark]
    splits = [
        split
        for split in BENCHMARKS[benchmark].splits
        if split == "train" or source.source != "file" or source.files("test")
    ]
    return {split: raw_file(workspace, recipe, benchmark, split) for split in splits}


def read_training_candidates(workspace: Workspace, recipe: Recipe) -> list[Problem]:
    """Read the training candidates in `data/raw`, benchmark by benchmark, without those of unseen subjects.

    Raises `DataError` and `ConfigError`.
    """
    unseen = draw_unseen_subjects(workspace, recipe)
    return [problem for problem in _read_train_splits(workspace, recipe) if not _has_subject_among(problem, unseen)]


def draw_unseen_subjects(workspace: Workspace, recipe: Recipe) -> dict[str, frozenset[str]]:
    """Return training benchmark → the subjects that are left out of training, drawn by the recipe's seed.

    `curation.unseen_subjects` is their number. Raises `DataError` without the raw problems, and `ConfigError` if a
    benchmark would keep no subject.
    """
    count, drawn = recipe.curation.unseen_subjects, dict[str, frozenset[str]]()
    if not count:
        return drawn
    for name, own in group_by_benchmark(_read_train_splits(workspace, recipe)).items():
        subjects = sorted({problem.subject for problem in own})
        if len(subjects) <= count:
            problem = f"is {count}, and {name} has {len(subjects)} subjects: none would be left to train on"
            raise ConfigError(f"recipe {recipe.name!r}", "curation.unseen_subjects", problem, "Lower it")
        drawn[name] = frozenset(Random(f"{recipe.seed} {name}").sample(subjects, count))
    return drawn


def find_untrained_questions(workspace: Workspace, recipe: Recipe, questions: Iterable[Problem]) -> frozenset[str]:
    """Return the keys of the questions whose subject is left out of training. Raises as `draw_unseen_subjects`."""
    unseen = draw_unseen_subjects(workspace, recipe)
    return frozenset(question.key for question in questions if _has_subject_among(question, unseen))


def _has_subject_among(problem: Problem, subjects: Mapping[str, frozenset[str]]) -> bool:
    return problem.subject in subjects.get(problem.benchmark, ())


def _read_train_splits(workspace: Workspace, recipe: Recipe) -> list[Problem]:
    names = training_benchmarks(recipe.benchmarks)
    if not names:
        remedy = f"Add one of {', '.join(training_benchmarks())}"
        raise ConfigError(f"recipe {recipe.name!r}", "benchmarks", "has no benchmark with training problems", remedy)
    files = [raw_file(workspace, recipe, name, "train") for name in names]
    return [problem for file in files for problem in _read_raw(file)]


def read_evaluation_questions(workspace: Workspace, recipe: Recipe) -> dict[str, list[Problem]]:
    """Return benchmark → the test questions that the evaluation asks: all of the recipe's, or the number that it sets.

    Raises `DataError`.
    """
    every = read_test_questions(workspace, recipe)
    return {name: select_evaluated_questions(questions, recipe, name) for name, questions in every.items()}


def select_evaluated_questions(questions: Sequence[Problem], recipe: Recipe, benchmark: str) -> list[Problem]:
    """Return the test questions of a benchmark that the evaluation asks, in order.

    They are drawn by their keys, so that a larger set contains a smaller one.
    """
    most = recipe.evaluation.for_benchmark(benchmark).max_questions
    if most is None or len(questions) <= most:
        return list(questions)
    drawn = {question.key for question in sorted(questions, key=lambda question: digest(question.key))[:most]}
    return [question for question in questions if question.key in drawn]


def read_test_questions(workspace: Workspace, recipe: Recipe) -> dict[str, list[Problem]]:
    """Return benchmark → all of its test questions, which training must not use; benchmarks without a test split are
    left out.

    Raises `DataError`.
    """
    named = {name: raw_files(workspace, recipe, name) for name in recipe.benchmarks}
    return {name: _read_raw(files["test"]) for name, files in named.items() if "test" in files}


def describe_evaluation_tests(workspace: Workspace, recipe: Recipe, benchmark: str) -> str:
    """Return which tests grade the benchmark's evaluation, in words; "" if it hides no tests. Raises `DataError`."""
    if not BENCHMARKS[benchmark].has_hidden_tests or recipe.benchmarks[benchmark].source == "embedded":
        return ""
    files = raw_files(workspace, recipe, benchmark)
    return describe_graded_tests(_read_raw(files["test"])) if "test" in files else ""


def questions_key(questions: Sequence[Problem]) -> str:
    """Return a hash (12 hex digits) of questions with their gold answers and tests."""
    return digest([question.as_row() for question in questions])
