"""The keys of the graders that grade a set of questions, and the responses that the present graders have graded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from ops.benchmarks.problem_files import read_problems
from ops.benchmarks.registry import BENCHMARKS
from ops.config import Recipe, Setup
from ops.core.checked_files import set_aside_if_damaged
from ops.core.errors import DataError
from ops.core.once import Key, read_key
from ops.core.problem import Problem
from ops.core.response_rows import REMEDY, ResponseRow, load_responses
from ops.grading import configure
from ops.grading.grader import GRADERS
from ops.grading.isolation import program_libraries_in
from ops.grading.version import grader_version

log = logging.getLogger(__name__)

REGRADE_NOTICE = "the answers are graded again, and no worker is paid for an answer that is stored"
GRADER_KEY = "grader"
"""The field of a table's key that names the graders."""


def configure_grading(recipe: Recipe, root: Path, verdicts: Path | None = None) -> None:
    """Apply a recipe's grading settings and its benchmarks' own graders in this process (see
    `ops.grading.configure`)."""
    configure(root, recipe.grading.isolation, recipe.grading.environments, verdicts, recipe.own_graders)


def graders_key(questions: Iterable[Problem], setup: Setup | None = None) -> str:
    """Return the graders of these questions with their versions, such as `math:1f2e3d4c5b6a7980 text:…`.

    The version of a benchmark's own grader also covers what the recipe says about it. With `setup` the version of a
    grader that runs programs covers the libraries that the benchmark's programs can import. Without it the key is the
    same on every machine with the same libraries for grading, as the files of `data/` need it.
    """
    return " ".join(sorted({_format_grader_key(*part, setup) for part in _list_key_parts(questions)}))


def _list_key_parts(questions: Iterable[Problem]) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (each.grader, each.benchmark if GRADERS[each.grader].runs_programs else "", each.grading) for each in questions
    )


def graders_key_of_file(problems: Path) -> str:
    """Return the key of the graders of the problems in a file.

    Returns "" for a file that is not readable, which the stage that reads the problems reports. Raises `OSError` for a
    missing file.
    """
    status = problems.stat()
    parts = _list_key_parts_of_file(problems, status.st_ino, status.st_size, status.st_mtime_ns)
    return " ".join(sorted({_format_grader_key(*part, None) for part in parts}))


@lru_cache(maxsize=16)
def _list_key_parts_of_file(problems: Path, *_: int) -> frozenset[tuple[str, str, str]]:
    """Read a file once for each state of it, which the last arguments describe."""
    try:
        return _list_key_parts(read_problems(problems))
    except DataError:
        return frozenset()


def _format_grader_key(grader: str, benchmark: str, own: str, setup: Setup | None) -> str:
    programs = None
    if setup is not None and benchmark:
        programs = program_libraries_in(setup.recipe.grading.environments, setup.workspace.root, benchmark)
    return ":".join(filter(None, (grader, grader_version(grader, programs), own)))


def default_graders_key(benchmarks: Iterable[str]) -> str:
    """Return the key of the default graders of these benchmarks, in their present version."""
    names = {BENCHMARKS[name].grader for name in benchmarks if name in BENCHMARKS}
    return " ".join(sorted(_format_grader_key(name, "", "", None) for name in names))


def is_graded_by_current_graders(key: Key) -> bool:
    """Return whether a table with this key was graded by the present versions of its graders."""
    if GRADER_KEY not in key:
        return False
    keys = [part.split(":") for part in key[GRADER_KEY].split()]
    return all(name in GRADERS and grader_version(name) == version for name, version, *_ in keys)


def prepare_tables(tables: Mapping[Path, Key]) -> None:
    """Examine the existing tables of these keys before they are made again.

    Damaged tables are renamed, and one warning names the tables that another version of a grader has graded. Raises
    `DataError` for a file that this user may not read.
    """
    others = []
    for file, key in tables.items():
        set_aside_if_damaged(file)
        if file.is_file() and read_key(file, REMEDY).get(GRADER_KEY) != key.get(GRADER_KEY):
            others.append(file)
    if others:
        names = ", ".join(str(file) for file in others[:3]) + (f" and {len(others) - 3} more" if others[3:] else "")
        log.warning("Another version of the grader judged %s: %s", names, REGRADE_NOTICE)


def read_graded_responses(folder: Path) -> list[ResponseRow]:
    """Return all precached responses below a folder (or of one file), sorted.

    Raises `DataError` for a file that is not such a table, or that another version of a grader has graded.
    """
    for file in [folder] if folder.is_file() else sorted(folder.rglob("*.parquet")):
        if not is_graded_by_current_graders(read_key(file, REMEDY)):
            raise DataError(file, "", "was graded by another version of the grader", REMEDY)
    return load_responses(folder)
