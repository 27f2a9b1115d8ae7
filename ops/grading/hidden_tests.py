"""Hidden tests of programs: one file per problem beside the raw data, of which grading reads one test at a time.

LiveCodeBench's hidden tests decode to gigabytes, so no row and no process holds them: a problem has a reference
(`Problem.hidden`). The file is a ZIP archive with one compressed entry per test, named by its number and kind. Entries
are read with seeks and not through a memory map, because truncating a mapped file kills the process that reads it.

The reference's digest covers the tests' texts and not the archive, so that it is the same with any version of zlib.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

from ops.core.atomic import remove_leftovers, replace_atomically
from ops.core.errors import DataError
from ops.core.problem import CodeTest, HiddenTests, Problem, TestKind
from ops.grading.program import find_tested_names

SUFFIX = ".zip"
_COMPRESSION_LEVEL = 1
"""Contest inputs are mostly random numbers: level 6 takes five times as long and saves a tenth."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAX_BYTES_PER_CHARACTER, _MAX_BYTES_PER_TEST = 12, 64
"""The maximum bytes of a character in JSON (two escaped surrogates), and of what stands around a test's texts."""


@dataclass
class _ProcessState:
    """What this process knows of hidden tests: the folder given to `configure`, and the files that were verified."""

    folder: Path | None = None
    verified: set[tuple[Path, int, int]] = field(default_factory=set)
    """The path, the time of modification (ns) and the bytes of files that were compared with their digests."""


_STATE = _ProcessState()


class NumberedTest(NamedTuple):
    """A test and its number among all tests of its problem, from 1; hidden tests follow the public ones."""

    number: int
    test: CodeTest


def hidden_tests_folder(root: Path) -> Path:
    """Return the project's folder of hidden tests, `data/raw/tests`, which is part of the output of the stage
    `raw_problems`."""
    return root / "data" / "raw" / "tests"


def configure(root: Path) -> None:
    """Read the hidden tests of the project in `root` in this process."""
    _STATE.folder = hidden_tests_folder(root)


def hidden_tests_file(folder: Path, problem: Problem) -> Path:
    """Return the file of a problem's hidden tests, `BENCHMARK/DIGEST.zip`. Raises `ValueError` if it has none."""
    if problem.hidden is None:
        raise ValueError(f"{problem.key} has no hidden tests")
    return folder / problem.benchmark / f"{problem.hidden.digest}{SUFFIX}"


# ── writing ──────────────────────────────────────────────────────────────────


def extract_hidden_tests(problem: Problem, folder: Path | None) -> Problem:
    """Move a problem's hidden tests into a file below `folder`; return the problem with a reference to them.

    Without a folder the tests are counted and not written. The file is replaced in one step, and left as it is if it is
    intact. Raises `OSError`.
    """
    hidden = [test for test in problem.tests if test.hidden]
    if not hidden:
        return problem
    public = tuple(test for test in problem.tests if not test.hidden)
    digest = hashlib.sha256()
    for test in hidden:
        digest.update(_encode_test(test))
    size = sum(len(test.input) + len(test.output) for test in hidden)
    names = tuple(sorted(find_tested_names(hidden) - find_tested_names(public)))
    apart = replace(problem, tests=public, hidden=HiddenTests(len(hidden), size, digest.hexdigest(), names))
    if folder is not None:
        try:
            _verify(hidden_tests_file(folder, apart), apart)
        except DataError:  # not written yet, or damaged
            _write(hidden_tests_file(folder, apart), hidden)
    return apart


def _write(file: Path, tests: Iterable[CodeTest]) -> None:
    with replace_atomically(file) as temporary, temporary.open("wb") as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL) as archive:
            for number, test in enumerate(tests, 1):
                entry = zipfile.ZipInfo(f"{number}.{test.kind}", _EPOCH)
                archive.writestr(entry, _encode_test(test), zipfile.ZIP_DEFLATED, _COMPRESSION_LEVEL)
        out.flush()
        os.fsync(out.fileno())


def _encode_test(test: CodeTest) -> bytes:
    return json.dumps([test.kind, test.input, test.output]).encode() + b"\n"


@contextmanager
def remove_new_files_on_error(folder: Path) -> Iterator[None]:
    """Remove the files that the block has added below `folder` if the block fails."""
    before = set(folder.rglob(f"*{SUFFIX}"))
    try:
        yield
    except BaseException:
        for file in set(folder.rglob(f"*{SUFFIX}")) - before:
            file.unlink(missing_ok=True)
        raise


def remove_unused_hidden_tests(
    folder: Path, benchmarks: Container[str], benchmark: str, problems: Iterable[Problem]
) -> None:
    """Remove the hidden tests of benchmarks that are not in `benchmarks`, and those of `benchmark` that no problem
    has."""
    used = {hidden_tests_file(folder, problem) for problem in problems if problem.hidden}
    remove_leftovers(folder)
    for file in folder.rglob(f"*{SUFFIX}"):
        owner = file.parent.name
        if owner not in benchmarks or (owner == benchmark and file not in used):
            file.unlink()


# ── reading ──────────────────────────────────────────────────────────────────


def read_hidden_tests(problem: Problem, kind: TestKind) -> Iterator[NumberedTest]:
    """Yield a problem's hidden tests of this kind one by one; none if the problem has none.

    Raises `DataError` for a file that is missing, damaged or of other tests.
    """
    if problem.hidden is None:
        return
    file = _locate_file(problem)
    _verify(file, problem)
    with _open_archive(file, problem) as archive:
        for number, entry in enumerate(archive.infolist(), len(problem.tests) + 1):
            if entry.filename.endswith(f".{kind}"):
                yield NumberedTest(number, _decode_test(archive.read(entry)))


def check_hidden_tests(problems: Iterable[Problem]) -> None:
    """Check that the files of hidden tests exist and are complete, without reading the tests. Raises `DataError`."""
    for problem in problems:
        if problem.hidden is not None:
            with _open_archive(_locate_file(problem), problem):
                pass


def are_hidden_tests_intact(folder: Path, problems: Iterable[Problem]) -> bool:
    """Return whether the hidden tests of these problems are in the folder as they were written."""
    try:
        for problem in problems:
            if problem.hidden is not None:
                _verify(hidden_tests_file(folder, problem), problem)
    except DataError:
        return False
    return True


def find_damage(problem: Problem) -> str:
    """Compare all of a problem's hidden tests with their digest; return what is wrong with their file, "" if nothing
    is."""
    if problem.hidden is None:
        return ""
    try:
        _verify(_locate_file(problem), problem)
    except DataError as error:
        return error.problem
    return ""


def _locate_file(problem: Problem) -> Path:
    if _STATE.folder is None:
        raise _make_error("data/raw/tests", problem, "is unknown to this process, which graded before `configure`")
    return hidden_tests_file(_STATE.folder, problem)


def _verify(file: Path, problem: Problem) -> None:
    """Compare the tests with their digest, once per process and version of the file. Raises `DataError`."""
    with _open_archive(file, problem) as archive:
        status = file.stat()
        version = (file, status.st_mtime_ns, status.st_size)
        if version in _STATE.verified:
            return
        digest = hashlib.sha256()
        for entry in archive.infolist():
            digest.update(archive.read(entry))
        if problem.hidden is None or digest.hexdigest() != problem.hidden.digest:
            raise _make_error(file, problem, "holds other tests than those of the problem")
        _STATE.verified.add(version)


@contextmanager
def _open_archive(file: Path, problem: Problem) -> Iterator[zipfile.ZipFile]:
    """Open a file with the expected number and size of tests; errors in the block that damage explains name the
    file."""
    hidden = problem.hidden
    assert hidden is not None
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            most = _MAX_BYTES_PER_CHARACTER * hidden.characters + _MAX_BYTES_PER_TEST * hidden.count
            if len(entries) != hidden.count or sum(entry.file_size for entry in entries) > most:
                raise _make_error(file, problem, "holds other tests than those of the problem")
            yield archive
    except FileNotFoundError:
        raise _make_error(file, problem, "does not exist") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _make_error(file, problem, f"is damaged ({type(error).__name__})") from None


def _make_error(file: Path | str, problem: Problem, what: str) -> DataError:
    return DataError(file, f"hidden tests of {problem.key}", what, "Load them again: `podium data raw RECIPE`")


def _decode_test(text: bytes) -> CodeTest:
    kind, given, wanted = json.loads(text)
    return CodeTest(cast("TestKind", kind), given, wanted, hidden=True)
