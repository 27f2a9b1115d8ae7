"""Stored verdicts of programs: what is kept, what is never kept, and what makes a program run again."""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops import grading
from ops.config import FunctionGrader
from ops.core.errors import DataError
from ops.core.problem import CodeTest, Grade, Problem
from ops.grading import configure, find_available_isolation, grade, grade_many, sandbox, verdicts
from ops.grading.graders import code
from ops.grading.isolation import Libraries
from ops.store import Kind
from ops.store.admin import verify_entries
from ops.store.entries import compute_checksum
from ops.store.sqlite_file import SqliteBackend
from tests.builders import fenced, make_code_problem, make_problem, make_unit_test

ROOT = Path(__file__).resolve().parents[3]
CALL = CodeTest("call", "f(2)", "4")
PROBLEM = make_code_problem(CALL)
RIGHT, WRONG = "def f(x):\n    return x * x", "def f(x):\n    return x + 7"
SECRET = "90210"


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Path:
    """A workspace's store of verdicts, which another process has not used before."""
    configure(ROOT, find_available_isolation(), verdicts=tmp_path)
    another_process()
    return tmp_path / "responses.sqlite"


def another_process() -> None:
    grading._MEMO.clear()


Graded = Callable[..., tuple[Grade, int]]


@pytest.fixture
def graded(runs: list[Any]) -> Graded:
    """Grades as another process would: the verdict and the number of programs that ran."""

    def graded(program: str, problem: Problem = PROBLEM, **options: Any) -> tuple[Grade, int]:
        another_process()
        before = len(runs)
        [verdict] = grade_many([(problem, fenced(program))], **options)
        return verdict, len(runs) - before

    return graded


@pytest.mark.parametrize(
    ("test", "program", "score"),
    [
        (CALL, RIGHT, 1.0),
        (CALL, WRONG, 0.0),
        (CALL, "def f(x):\n    return 1 / 0", 0.0),
        (CodeTest("stdin", "2\n", "4\n"), "print(int(input()) ** 2)", 1.0),
        (CodeTest("stdin", "2\n", "4\n"), "raise ValueError", 0.0),
    ],
)
def test_a_program_runs_once_and_its_verdict_is_the_same(
    test: CodeTest, program: str, score: float, graded: Graded, runs: list[Any]
) -> None:
    problem = make_code_problem(test)
    first, ran = graded(program, problem)
    assert (first.score, ran) == (score, 1)
    assert graded(program, problem) == (first, 0)
    another_process()
    assert grade(problem, fenced(program)) == first
    assert len(runs) == 1


def test_a_users_function_runs_once_for_a_problem_and_an_answer(runs: list[Any], tmp_path: Path) -> None:
    own = FunctionGrader(file="own.py", source="def grade(problem, answer):\n    return len(answer) / 4")
    other = own.model_copy(update={"source": "def grade(problem, answer):\n    return 1"})
    configure(
        ROOT,
        find_available_isolation(),
        verdicts=tmp_path,
        graders=[own, other],
    )
    problem = make_problem(grader="function", grading=own.version)
    asked = replace(problem, question="Another question, which the function sees?")

    def ran(problem: Problem, answer: str) -> tuple[float, int]:
        another_process()
        before = len(runs)
        return grade(problem, answer).score, len(runs) - before

    assert [ran(problem, "yes"), ran(problem, "yes")] == [(0.75, 1), (0.75, 0)]
    assert ran(problem, "no") == (0.5, 1)
    assert ran(asked, "yes") == (0.75, 1)
    assert ran(replace(problem, grading=other.version), "yes") == (1.0, 1)


def test_without_a_store_every_process_runs_the_program(graded: Graded) -> None:
    configure(ROOT, find_available_isolation())
    assert [graded(RIGHT)[1] for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    ("program", "hidden", "again"),
    [(RIGHT, True, 0), (WRONG, True, 1), (WRONG, False, 0)],
    ids=["right", "failed a hidden test", "failed a public test"],
)
def test_a_program_that_failed_hidden_tests_alone_runs_again_where_its_reasons_are_asked_for(
    program: str, hidden: bool, again: int, graded: Graded
) -> None:
    problem = make_code_problem(replace(CALL, hidden=hidden))
    first, _ = graded(program, problem)
    assert graded(program, problem, rerun_failures=True) == (first, again)


@pytest.mark.parametrize("changed", ["program", "test", "hidden", "grader", "python", "libraries", "isolation"])
def test_any_change_of_what_a_verdict_depends_on_runs_the_program_again(
    changed: str, graded: Graded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem, program = PROBLEM, RIGHT
    graded(program)
    match changed:
        case "program":
            program += "\n# the same function"
        case "test":
            problem = make_code_problem(CodeTest("call", "f(3)", "9"))
        case "hidden":
            problem = make_code_problem(replace(CALL, hidden=True))
        case "grader":
            monkeypatch.setattr(verdicts, "grader_version", lambda *_: "another")
        case "python":
            monkeypatch.setattr(sys, "version", "3.99")
        case "libraries":
            (tmp_path / "new_library-1.0.dist-info").mkdir()
            own = verdicts.program_libraries(problem.benchmark)
            more = Libraries((*own.folders, str(tmp_path)), own.command_folder, own.environment)
            monkeypatch.setattr(verdicts, "program_libraries", lambda _: more)
        case "isolation":
            monkeypatch.setattr(verdicts, "choose_isolation", lambda: "another wall")
    assert graded(program, problem)[1] == 1


@pytest.mark.parametrize(
    "result",
    [
        sandbox.SandboxResult(None, "", 0.0),
        sandbox.SandboxResult(None, "killed by signal 7", 0.0),
        sandbox.SandboxResult(None, "still running after 10 s", 10.0, has_timed_out=True),
        sandbox.SandboxResult([["error", "out of CPU time"]], "out of CPU time", 4.0, has_timed_out=True),
        sandbox.SandboxResult([["error", "MemoryError: "]], "", 0.0),
        sandbox.SandboxResult([["error", "BlockingIOError: [Errno 11] Resource temporarily unavailable"]], "", 0.0),
        sandbox.SandboxResult([["error", "RuntimeError: can't start new thread"]], "", 0.0),
        sandbox.SandboxResult([["error", "exit status 2"]], "", 0.0),
    ],
    ids=lambda result: result.error or str(result.results),
)
def test_what_a_machine_may_have_caused_is_not_kept(
    result: sandbox.SandboxResult, monkeypatch: pytest.MonkeyPatch, graded: Graded
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(code.sandbox, "run", lambda *_, **__: result)
        assert graded(RIGHT)[0].score == 0.0
    verdict, ran = graded(RIGHT)
    assert (verdict.score, ran) == (1.0, 1)


def test_a_sandbox_that_cannot_start_raises_and_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    def no_process(*_: Any, **__: Any) -> Any:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(code.sandbox, "run", no_process)
        with pytest.raises(OSError, match="no more processes"):
            grade(PROBLEM, fenced(RIGHT))
    assert rows(store) == []
    assert grade(PROBLEM, fenced(RIGHT)).correct


@pytest.mark.parametrize(
    "program", ["raise MemoryError", "raise OSError", 'raise RuntimeError("can\'t start new thread")']
)
def test_a_program_that_ends_for_lack_of_something_of_the_machine_runs_again(program: str, graded: Graded) -> None:
    problem = make_code_problem(CodeTest("stdin", "", "4\n"))
    assert [(verdict.score, ran) for verdict, ran in (graded(program, problem) for _ in range(2))] == [(0.0, 1)] * 2


NO_VERDICTS = ("[0.5, 'half', null]", "[1.0, 5, null]", "[1.0]", "{}", '[0.0, "no", [1, 2]]', '[true, "yes", null]')


@pytest.mark.parametrize(
    "damage",
    [
        "value = '[1.0,\"passed\",null]'",
        "key = 'another', value = value",
        "checksum = ''",
        "value = CAST(x'FF' AS TEXT)",
        *(f"value = $text, checksum = proper_checksum(key, $text) -- {text}" for text in NO_VERDICTS),
    ],
)
def test_a_row_that_is_damaged_or_no_verdict_is_replaced(damage: str, store: Path, graded: Graded) -> None:
    first, _ = graded(WRONG)
    with sqlite3.connect(store) as connection:
        connection.create_function(
            "proper_checksum", 2, lambda key, text: compute_checksum(Kind.VERDICT, key, text.encode())
        )
        connection.execute(f"UPDATE entries SET {damage}", {"text": damage.partition(" -- ")[2]})
    assert graded(WRONG) == (first, 1)
    assert graded(WRONG) == (first, 0)


def test_the_verdict_of_one_program_is_not_that_of_another(store: Path, graded: Graded) -> None:
    graded(RIGHT)
    graded(WRONG)
    with sqlite3.connect(store) as connection:  # as a poisoned store would have it
        query = "SELECT key, value, checksum FROM entries ORDER BY value DESC"
        (good, right, checksum), (bad, _, _) = connection.execute(query)
        assert "passed" in right and good != bad
        values = (right, checksum, bad)
        connection.execute("UPDATE entries SET value = ?, checksum = ? WHERE key = ?", values)
    assert graded(WRONG)[0].score == 0.0


def test_a_file_that_is_no_database_is_repaired_by_a_person(store: Path, graded: Graded) -> None:
    graded(RIGHT)
    configure(ROOT, find_available_isolation())
    for file in store.parent.glob(f"{store.name}-*"):
        file.unlink()
    store.write_bytes(b"no database" * 1000)
    configure(ROOT, find_available_isolation(), verdicts=store.parent)
    with pytest.raises(DataError, match="podium cache verify --repair"):
        graded(RIGHT)
    verify_entries(SqliteBackend(store.parent), repair=True)
    assert [graded(RIGHT)[1], graded(RIGHT)[1]] == [1, 0]


@pytest.mark.parametrize(
    "tests",
    [
        (CALL, CodeTest("call", f"f({SECRET})", SECRET, hidden=True)),
        (make_unit_test(f"self.assertEqual(f(2), {SECRET})"), replace(CALL, hidden=True)),
    ],
    ids=["a hidden call", "a test case"],
)
def test_no_text_of_hidden_tests_and_no_program_is_in_the_file(
    tests: tuple[CodeTest, ...], store: Path, graded: Graded
) -> None:
    problem = make_code_problem(*tests)
    first, _ = graded(RIGHT, problem)
    assert SECRET in first.reason
    again, ran = graded(RIGHT, problem)
    assert (again.score, again.extracted, ran) == (0.0, first.extracted, 0)
    assert first.failed is not None and again.failed is not None
    assert again.failed.label == first.failed.label
    assert SECRET not in again.reason
    [kept] = map(str, rows(store))
    assert SECRET not in kept and "return" not in kept


def rows(store: Path) -> list[tuple[str, ...]]:
    if not store.exists():
        return []
    with sqlite3.connect(store) as connection:
        return connection.execute("SELECT * FROM entries").fetchall()


def grade_in_another(folder: Path, program: str) -> float:
    configure(ROOT, find_available_isolation(), verdicts=folder)
    return grade(PROBLEM, fenced(program)).score


def test_two_processes_use_one_store_at_once(store: Path) -> None:
    programs = [f"{text}\n# {number}" for number in range(6) for text in (RIGHT, WRONG)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        given = [(store.parent, program) for program in (*programs, *programs)]
        assert pool.starmap(grade_in_another, given, chunksize=1) == [1.0, 0.0] * 12
    assert len(rows(store)) == len(programs)
