"""Programs: run on their tests in the sandbox, all or nothing, within limits that are scaled to this machine's
speed."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import lru_cache

from ops.core.problem import Grade, Problem, TestKind
from ops.grading import hidden_tests, sandbox, unit_tests
from ops.grading import program as programs
from ops.grading.grader import MAX_CHARACTERS, NO_REPORT, Grader, grade_failure
from ops.grading.hidden_tests import NumberedTest
from ops.grading.isolation import Libraries, program_libraries
from ops.grading.values import ProgramFailure, find_difference

REFERENCE_LOOP_S = 0.0070
"""The CPU seconds of `_reference_loop` in CPython 3.11 on one core of a 2.1 GHz Xeon (Sapphire Rapids) without other
load."""
MAX_SLOWNESS = 10.0
_ROUNDS = 5


@lru_cache(maxsize=1)
def measure_slowness() -> float:
    """Return this machine's CPU time for the reference loop ÷ that of the reference machine, from 1 to `MAX_SLOWNESS`.

    Measured once per process, in 40 ms. The minimum of several rounds counts, because disturbances only add time.
    """
    return min(max(min(_time_reference_loop() for _ in range(_ROUNDS)) / REFERENCE_LOOP_S, 1.0), MAX_SLOWNESS)


def _time_reference_loop() -> float:
    began = time.thread_time()
    _reference_loop()
    return time.thread_time() - began


def _reference_loop() -> int:
    """Compute as contest programs do: arithmetic, a table, a loop."""
    total, table = 0, {}
    for i in range(100_000):
        total = (total * 31 + i) % 65_521
        table[total & 255] = i
    return total + len(table)


class SharedExclusiveLock:
    """A lock that any number of threads hold together, or one thread exclusively.

    A thread that waits for exclusive use lets the present holders finish and makes later ones wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside, self._waiting, self._alone = 0, 0, False

    @contextmanager
    def hold_shared(self) -> Iterator[None]:
        """Hold the lock together with others."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._alone or self._waiting))
            self._beside += 1
        try:
            yield
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def hold_exclusive(self) -> Iterator[None]:
        """Hold the lock while nobody else does."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._alone or self._beside))
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


_GIB = 1 << 30
LIMITS: dict[str, sandbox.ProgramLimits] = {
    "call": sandbox.ProgramLimits(cpu_s=4, wall_s=10, memory_bytes=_GIB),
    "stdin": sandbox.ProgramLimits(cpu_s=8, wall_s=60, memory_bytes=_GIB),
    # Real libraries map much memory and may start helper processes.
    "unittest": sandbox.ProgramLimits(cpu_s=60, wall_s=150, memory_bytes=8 * _GIB, processes=16),
}
"""The limits of a program on the reference machine; a slower machine allows more."""
TEST_KINDS: tuple[TestKind, ...] = ("call", "stdin", "unittest")
RETRY_CPU_FACTOR = 1.5
"""A program that ran out of time beside others runs again by itself, with its CPU time multiplied by this factor."""
HIDDEN_TESTS_PER_RUN = 6
"""The number of hidden tests per run. LiveCodeBench gives each 6 s, and six times 8 CPU seconds fit the 60 s of a
"stdin" run."""
HIDDEN_CHARACTERS_PER_RUN = 8 << 20
"""The characters of expected output per run, which as JSON stay below `ProgramLimits.report_bytes`."""
_RUN_LOCK = SharedExclusiveLock()


def find_answer(problem: Problem, response: str) -> str:
    """Return the program: the last Python block that is not a usage example, or the response if it is a program."""
    return programs.extract_program(response, problem.tests, problem.hidden.names if problem.hidden else ())


def grade_answer(problem: Problem, program: str) -> Grade:
    """Run `program` on the problem's tests: 1.0 if all pass, otherwise 0.0 and the first reason.

    A program that runs out of time beside others runs again by itself. If it runs out of time again, the verdict is
    not final. Raises `OSError` when no process can be started, `ConfigError` when no isolation that the
    recipe accepts works on this machine, and `DataError` when hidden tests cannot be read.
    """
    if not program.strip():
        return Grade(0.0, "", "no program found")
    if len(program) > MAX_CHARACTERS:
        return Grade(0.0, program[:200], f"longer than {MAX_CHARACTERS} characters")
    if not problem.test_count:
        return Grade(0.0, program, "the problem has no tests")
    failure = _find_first_failure(problem, program, 1.0, _RUN_LOCK.hold_shared())
    if failure.is_timeout:
        failure = _find_first_failure(problem, program, RETRY_CPU_FACTOR, _RUN_LOCK.hold_exclusive())
    if not failure.reason:
        return Grade(1.0, program, f"passed {problem.test_count} tests")
    return grade_failure(program, failure.reason, is_timeout=failure.is_timeout, failed=failure.failed_test)


def _find_first_failure(
    problem: Problem, program: str, grace: float, turn: AbstractContextManager[None]
) -> ProgramFailure:
    with turn:
        for kind in TEST_KINDS:
            for batch in split_into_batches(_read_tests(problem, kind)):
                limits = _limits_of_batch(kind, batch, grace)
                if (failure := _run_batch(problem, program, batch, limits)).reason:
                    return failure
    return ProgramFailure("")


def _read_tests(problem: Problem, kind: TestKind) -> Iterator[NumberedTest]:
    """Yield the tests of a kind, public ones first; hidden ones are read as they are needed."""
    own = [NumberedTest(*pair) for pair in enumerate(problem.tests, 1) if pair[1].kind == kind]
    yield from sorted(own, key=lambda entry: entry.test.hidden)
    yield from hidden_tests.read_hidden_tests(problem, kind)


def split_into_batches(tests: Iterable[NumberedTest]) -> Iterator[list[NumberedTest]]:
    """Group tests by sandbox run, in order: public ones together, then hidden ones by `HIDDEN_TESTS_PER_RUN` and size.

    A benchmark hides dozens of tests, each with its own time limit and up to megabytes of output. In a single run, a
    slow but correct program would reach the limits that stop a hanging one.
    """
    batch: list[NumberedTest] = []
    for entry in tests:
        characters = sum(len(each.test.output) for each in (*batch, entry))
        full = entry.test.hidden and (len(batch) == HIDDEN_TESTS_PER_RUN or characters > HIDDEN_CHARACTERS_PER_RUN)
        if batch and (full or entry.test.hidden != batch[0].test.hidden):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def _limits_of_batch(kind: TestKind, batch: list[NumberedTest], grace: float) -> sandbox.ProgramLimits:
    limits = LIMITS[kind].scale(measure_slowness(), grace)
    if kind == "call" and batch[0].test.hidden:  # the CPU time is that of the whole run
        return replace(limits, cpu_s=limits.cpu_s * len(batch), wall_s=limits.wall_s * len(batch))
    return limits


def _run_batch(
    problem: Problem, program: str, batch: list[NumberedTest], limits: sandbox.ProgramLimits
) -> ProgramFailure:
    chosen, kind = program_libraries(problem.benchmark), batch[0].test.kind
    if kind == "unittest":
        return _run_unittest_batch(program, batch, limits, chosen)
    tests = [entry.test for entry in batch]
    keep = [len(test.output.encode()) + 65_536 for test in tests]
    run = sandbox.run(kind, program, [test.input for test in tests], limits, max_output_bytes=keep, libraries=chosen)
    if run.results is None:
        return ProgramFailure(run.error or NO_REPORT, run.has_timed_out)
    if len(run.results) > len(tests):
        return ProgramFailure("a malformed report")
    for place, (number, test) in enumerate(batch):
        reported = place < len(run.results)
        result = run.results[place] if reported else ["error", run.error or "no result"]
        if failed := find_difference(test, result, number, problem.test_count):
            # A later test that runs out of time does not change the result of an earlier, completed one.
            return ProgramFailure(str(failed), run.has_timed_out and (not reported or result[0] != "ok"), failed)
    return ProgramFailure("")


def _run_unittest_batch(
    program: str, batch: list[NumberedTest], limits: sandbox.ProgramLimits, chosen: Libraries
) -> ProgramFailure:
    for entry in batch:
        failure = unit_tests.run_unit_tests(program, entry.test.input, limits, chosen)
        if failure.reason:
            return failure
    return ProgramFailure("")


def _find_gold_error(problem: Problem) -> str:
    if not problem.test_count:
        return "there are no tests"
    if why := hidden_tests.find_damage(problem):
        return f"the file of the hidden tests {why}"
    if why := _find_syntax_error(problem.answer, "exec"):
        return f"the program is no Python ({why})"
    modes: dict[TestKind, str] = {"call": "eval", "unittest": "exec"}
    for kind, mode in modes.items():
        for number, test in _read_tests(problem, kind):
            if why := _find_syntax_error(test.input, mode):
                return f"test {number} is no Python ({why})"
    return ""


def _find_syntax_error(source: str, mode: str) -> str:
    try:
        programs.parse_program(source.strip() if mode == "eval" else source, mode)
    except programs.PARSE_ERRORS as error:
        return type(error).__name__
    return ""


def _normalize_program(program: str) -> str:
    """Return a program in a form in which comments, quotes and layout do not matter."""
    try:
        return ast.dump(programs.parse_program(program)) if program.strip() else ""
    except programs.PARSE_ERRORS:
        return "\n".join(line.rstrip() for line in program.splitlines() if line.strip())


GRADER = Grader(
    "code", "Give the complete program in one ```python block.", find_answer, grade_answer,
    find_gold_error=_find_gold_error, normalize=_normalize_program,
    gold_template="```python\n{}\n```", needs_gold=False, runs_programs=True,
)  # fmt: skip
