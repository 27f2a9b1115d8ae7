"""Hidden tests by reference: graded from their files as from memory, never held at once, and never half-written."""

from __future__ import annotations

import random
import signal
import string
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ops import grading
from ops.benchmarks.problem_files import write_problems
from ops.core.errors import DataError
from ops.core.problem import CodeTest, Grade, Problem
from ops.grading import grade, grade_many, hidden_tests
from ops.grading.graders import code
from ops.planning.memory import HIDDEN_TESTS_RATIO, TEST_BATCH_BYTES_PER_CHARACTER
from tests.builders import fenced, make_code_problem, make_unit_test

ROOT = Path(__file__).resolve().parents[3]
SECRET = "90210"
SQUARE = "def f(n):\n    return n * n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a project's hidden tests, from which this process grades."""
    hidden_tests.configure(tmp_path)
    grading._MEMO.clear()
    return hidden_tests.hidden_tests_folder(tmp_path)


def squares(*numbers: int, hidden: bool = False) -> list[CodeTest]:
    return [CodeTest("call", f"f({n})", str(n * n), hidden) for n in numbers]


def stored(folder: Path) -> tuple[Problem, Path]:
    problem = hidden_tests.extract_hidden_tests(make_code_problem(*squares(1), *squares(2, 3, hidden=True)), folder)
    return problem, hidden_tests.hidden_tests_file(folder, problem)


UNIT = make_unit_test("self.assertEqual(f(2), 4)", hidden=True)
ECHO = [CodeTest("stdin", f"{n}\n", f"{n} é\n", hidden=n > 1) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        (squares(1) + squares(*range(2, 10), hidden=True), SQUARE),
        (squares(1) + squares(*range(2, 10), hidden=True), "def f(n):\n    return n * n if n < 9 else 0"),
        (squares(1, 2) + squares(3, hidden=True), "def f(n):\n    return n"),
        (ECHO, "print(input(), 'é')"),
        (ECHO, "n = input()\nprint(n, 'é' if n < '3' else 'e')"),
        ([*squares(1), UNIT, *squares(3, hidden=True)], "def f(n):\n    return n * n if n != 2 else 0"),
        ([UNIT], f"{SQUARE}\n```\n```python\nprint(f(2))"),
    ],
)
def test_verdicts_are_those_of_tests_in_memory(
    folder: Path, runs: list[Any], tests: list[CodeTest], program: str
) -> None:
    problem, response = make_code_problem(*tests), fenced(program)
    before = grade(problem, response)
    held, runs[:] = [run.tests for run in runs], []
    apart = hidden_tests.extract_hidden_tests(problem, folder)
    assert not any(test.hidden for test in apart.tests)
    assert grade(apart, response) == before
    if UNIT not in tests:  # a test case and its control run in random order, up to the first that fails
        assert [run.tests for run in runs] == held
    assert code.find_answer(apart, response) == code.find_answer(problem, response)


# ── files that cannot be read ────────────────────────────────────────────────


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-30])


def flip(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        place = archive.infolist()[1].header_offset + len("2.call") + 30
    data = bytearray(file.read_bytes())
    data[place + 3] ^= 0xFF
    file.write_bytes(bytes(data))


def rewrite(text: str, file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in (1, 2):
            archive.writestr(f"{number}.call", text)


@pytest.mark.parametrize(
    ("damage", "found", "seen_early"),
    [
        (Path.unlink, "does not exist", True),
        (cut, "is damaged", True),
        (partial(rewrite, " " * 1_000_000), "other tests", True),
        (flip, "is damaged", False),
        (partial(rewrite, '["call", "f(0)", "0"]\n'), "other tests", False),
    ],
    ids=["absent", "cut", "swollen", "flipped", "exchanged"],
)
def test_a_damaged_file_is_one_clear_error(
    folder: Path, damage: Callable[[Path], None], found: str, seen_early: bool
) -> None:
    problem, file = stored(folder)
    hidden_tests.check_hidden_tests([problem])
    damage(file)
    if seen_early:
        with pytest.raises(DataError, match=found):
            hidden_tests.check_hidden_tests([problem])
    with pytest.raises(DataError) as error:
        grade(problem, fenced(SQUARE))
    message = str(error.value)
    assert "\n" not in message
    assert found in message
    assert all(words in message for words in (str(file), problem.key, "`podium data raw RECIPE`"))
    assert found in hidden_tests.find_damage(problem)
    hidden_tests.extract_hidden_tests(make_code_problem(*squares(1), *squares(2, 3, hidden=True)), folder)
    assert grade(problem, fenced(SQUARE)).correct, "loading the benchmark again repairs the file"
    assert hidden_tests.find_damage(problem) == ""


def test_a_stored_verdict_needs_no_file_and_quotes_no_hidden_test(folder: Path, tmp_path: Path) -> None:
    hidden = CodeTest("call", f"f({SECRET})", SECRET, hidden=True)
    problem = hidden_tests.extract_hidden_tests(make_code_problem(*squares(1), hidden), folder)
    grading.configure(tmp_path, grading.find_available_isolation(), verdicts=tmp_path)
    first = grade(problem, fenced(SQUARE))
    assert SECRET in first.reason
    hidden_tests.hidden_tests_file(folder, problem).unlink()
    grading._MEMO.clear()
    again = grade(problem, fenced(SQUARE))
    assert (again.score, again.failed and again.failed.number) == (0.0, 2)
    assert SECRET not in f"{again.reason} {again.failed}"
    other = replace(problem, hidden=replace(problem.hidden, digest="0" * 64))  # type: ignore[type-var]
    with pytest.raises(DataError, match="does not exist"):
        grade(other, fenced(SQUARE))


def test_threads_grade_from_one_file_at_once(folder: Path) -> None:
    problem = hidden_tests.extract_hidden_tests(make_code_problem(*squares(*range(9), hidden=True)), folder)
    programs = [f"def f(n):\n    return n * n + (n == {n})" for n in range(4)]
    verdicts: list[Grade] = grade_many([(problem, fenced(program)) for program in programs], workers=4)
    assert [verdict.failed and verdict.failed.number for verdict in verdicts] == [1, 2, 3, 4]


# ── processes ────────────────────────────────────────────────────────────────


IMPORTS = """
import os, signal, sys, tracemalloc
from pathlib import Path
from ops.benchmarks.problem_files import read_problems
from ops.core.problem import CodeTest
from ops.grading import configure, find_available_isolation, grade, hidden_tests
from tests.builders import fenced, make_code_problem
root = Path(sys.argv[1])
"""


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPORTS + script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


MEMORY = """
tracemalloc.start()
hidden_tests.configure(root)
problems = read_problems(root / "mix.jsonl")
hidden_tests.check_hidden_tests(problems)
loaded = tracemalloc.get_traced_memory()[1]
tests = sum(1 for problem in problems for _ in hidden_tests.read_hidden_tests(problem, "stdin"))
print(loaded, tracemalloc.get_traced_memory()[1], tests)
"""


def test_a_process_holds_one_test_at_a_time(folder: Path, tmp_path: Path) -> None:
    """Sixty megabytes of hidden tests; compressible, so that they are written fast."""
    size, problems = 1_500_000, []
    for name in range(10):
        tests = [CodeTest("stdin", f"{name} {n} ".ljust(size), "1\n", hidden=True) for n in range(4)]
        problems.append(
            hidden_tests.extract_hidden_tests(make_code_problem(*squares(1), *tests, id=f"p{name}"), folder)
        )
    write_problems(tmp_path / "mix.jsonl", problems)
    assert (tmp_path / "mix.jsonl").stat().st_size < size / 100
    reader = child(MEMORY, tmp_path)
    said, errors = reader.communicate(timeout=100)
    assert reader.returncode == 0, errors
    loaded, peak, tests = map(int, said.split())
    assert tests == 40
    assert loaded < size / 2, "loading a mix reads no hidden test"
    assert peak < 10 * size, "one of forty tests is in memory, with its copies"


def test_the_plan_counts_what_is_stored_and_held(folder: Path) -> None:
    text = "".join(random.Random(1).choices(string.ascii_lowercase, k=1_000_000))
    tests = [CodeTest("stdin", text[n:], text[n:], hidden=True) for n in range(4)]
    problem = hidden_tests.extract_hidden_tests(make_code_problem(*tests), folder)
    assert problem.hidden is not None
    size = problem.hidden.characters
    # Equal texts are too far apart for zlib to see.
    assert hidden_tests.hidden_tests_file(folder, problem).stat().st_size <= size / HIDDEN_TESTS_RATIO
    tracemalloc.start()
    try:
        assert grade(problem, fenced("print(input())")).correct
        assert tracemalloc.get_traced_memory()[1] <= TEST_BATCH_BYTES_PER_CHARACTER * size
    finally:
        tracemalloc.stop()


GRADE = """
configure(root, find_available_isolation())
[problem] = read_problems(root / "mix.jsonl")
print([grade(problem, sys.argv[2]).score, grade(problem, fenced("f = abs")).failed.number])
"""


def test_two_processes_grade_from_one_file_at_once(folder: Path, tmp_path: Path) -> None:
    problem, _ = stored(folder)
    write_problems(tmp_path / "mix.jsonl", [problem])
    graders = [child(GRADE, tmp_path, fenced(SQUARE)) for _ in range(2)]
    assert [grader.communicate(timeout=100)[0] for grader in graders] == ["[1.0, 2]\n"] * 2


WRITE = """
def killed(test, real=hidden_tests._encode_test, seen=[]):
    seen.append(test)
    if len(seen) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(test)
hidden_tests._encode_test = killed
tests = [CodeTest("call", f"f({n})", str(n * n), True) for n in (2, 3, 4)]
hidden_tests.extract_hidden_tests(make_code_problem(*tests), root)
"""


def test_a_kill_while_writing_leaves_nothing_that_is_read(folder: Path) -> None:
    writer = child(WRITE, folder)
    writer.communicate(timeout=100)
    assert writer.returncode == -signal.SIGKILL
    assert list(folder.rglob("*.zip")) == []
    assert len(list(folder.rglob(".*.tmp"))) == 1
    problem = hidden_tests.extract_hidden_tests(make_code_problem(*squares(2, 3, 4, hidden=True)), folder)
    assert [path.name for path in (folder / "livecodebench").iterdir()] == [
        hidden_tests.hidden_tests_file(folder, problem).name
    ], "the next writer removes what the killed one left"
    assert grade(problem, fenced(SQUARE)).correct
