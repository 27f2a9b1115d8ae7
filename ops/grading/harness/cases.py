"""Run tests of kind "unittest" in a fork, because tests and program share a process.

The process that reports loads neither of them.
"""

# ruff: noqa: BLE001
# Any exception of a program is its verdict; pathlib and contextlib would cost milliseconds of every run.

from __future__ import annotations

import builtins
import os
import select
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from ops.grading.harness.guard import install_guard, redirect_standard_streams, set_limits
from ops.grading.harness.plain import describe_error, make_module, quote_json

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
_DUMPABLE = 4
_SIGKILL = 9
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1


def run(job: dict[str, Any]) -> str:
    """Run the module of tests in a fork and return its report unchanged."""
    _block_inspection(True)
    _join_new_keyring()
    return f"[{_run_in_fork(job, job.pop('source'))}]"


def _block_inspection(hidden: bool) -> None:
    """Prevent other processes of the same user from reading this process's memory and descriptors, or allow it
    again."""
    import ctypes

    if prctl := getattr(ctypes.CDLL(None), "prctl", None):  # Linux
        prctl(_DUMPABLE, int(not hidden), 0, 0, 0)


def _join_new_keyring() -> None:
    """Use a new keyring for this run, because the kernel would keep a key in the inherited one for the next run."""
    import ctypes

    if number := _KEYCTL.get(os.uname().machine):
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)


def _run_in_fork(job: dict[str, Any], source: dict[str, Any]) -> str:
    """Return ["ran", what the fork wrote], or ["late" or "error", the reason]."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        os.close(job.pop("report"))
        redirect_standard_streams()
        _block_inspection(False)
        left = memoryview(_run_tests(job, source).encode())
        while left:
            left = left[os.write(writing, left) :]
        os._exit(0)
    os.close(writing)
    text, in_time = _read_until_end(reading, child, job["wall_s"], job["report_bytes"])
    for kill, who in ((os.killpg, child), (os.kill, child)):
        try:
            kill(who, _SIGKILL)
        except OSError:  # it ended
            continue
    _, status = os.waitpid(child, 0)
    os.close(reading)
    if not in_time:
        return f'["late", "still running after {job["wall_s"]:g} s"]'
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (24, _SIGKILL) and not text:
        return '["late", "out of CPU time"]'
    if os.WIFSIGNALED(status) and not text:
        return f'["error", "killed by signal {os.WTERMSIG(status)}"]'
    return f'["ran", {quote_json(text.decode("utf-8", "replace"))}]'


def _read_until_end(descriptor: int, child: int, seconds: float, bound: int) -> tuple[bytes, bool]:
    """Return the child's output until its end, and whether it ended in time; a remaining process may hold the pipe
    open."""
    parts: list[bytes] = []
    deadline, size, ended = time.monotonic() + seconds, 0, False
    while (left := deadline - time.monotonic()) > 0 and size <= bound:
        ready, _, _ = select.select([descriptor], [], [], 0 if ended else min(left, 0.2))
        if ready:
            part = os.read(descriptor, 1 << 16)
            if not part:
                return b"".join(parts), True
            parts.append(part)
            size += len(part)
        elif ended:
            return b"".join(parts), True
        else:  # output from before its end is read in the next iterations
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return b"".join(parts), size > bound


# ── within a fork ────────────────────────────────────────────────────────────


class RecordingResult(unittest.TestResult):
    """A test result that records one line for each test: name, result, reason."""

    def __init__(self, changed: Callable[[], str]) -> None:
        super().__init__()
        self._changed = changed
        self.lines: dict[str, tuple[str, str]] = {}
        self.tampered = ""

    def _record(self, test: unittest.TestCase, status: str, why: str = "") -> None:
        name = f"{type(test).__qualname__}.{getattr(test, '_testMethodName', '')}"
        if self.lines.get(name, ("ok", ""))[0] == "ok":  # the first failure is reported
            self.lines[name] = status, why

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Check after every test that unittest and the tests are unchanged."""
        self.tampered = self.tampered or self._changed()
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Record a test that ran to its end."""
        self._record(test, "ok")

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        """Record a test whose assertion failed."""
        self._record(test, "failed", describe_error(err[1]) if err[1] else "")

    def addError(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        """Record a test that raised an exception; an error of `setUpClass` counts as a test."""
        self._record(test, "failed", describe_error(err[1]) if err[1] else "")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Error | None) -> None:  # noqa: N802
        """Record a part of a test; a failed part fails the test."""
        if err is not None:
            self._record(test, "failed", describe_error(err[1]) if err[1] else "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """Record a skipped test, which counts as failed."""
        self._record(test, "skipped", str(reason))

    def addExpectedFailure(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        """Record a failed test that is marked as an expected failure."""
        self._record(test, "expected")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Record a passed test that is marked as an expected failure."""
        self._record(test, "failed", "unexpected success")


def _run_tests(job: dict[str, Any], source: dict[str, Any]) -> str:
    """Return the report of one module of tests as JSON: [[name, status, reason] …], and what the program changed."""
    loader, suite, watch = unittest.TestLoader(), unittest.TestSuite(), TamperDetector()
    set_limits(job, job["cpu_s"])
    install_guard(job)
    program, classes, text = job["program"], source["classes"], source["code"]
    job.clear()
    source.clear()
    made = make_module("solution")
    try:
        exec(compile(program, "program.py", "exec", dont_inherit=True), made.__dict__)
        tampered = watch.find_any_change()
        exec(compile(text, "test_program.py", "exec", dont_inherit=True), made.__dict__)
        result = RecordingResult(watch.find_change)
        for name in classes:
            watch.watch_class(made.__dict__[name])
            suite.addTest(loader.loadTestsFromTestCase(made.__dict__[name]))
        (suite if classes else loader.loadTestsFromModule(made)).run(result)
    except BaseException as error:  # SystemExit too
        return f'["stopped", {quote_json(describe_error(error))}]'
    rows = (
        f"[{quote_json(name)}, {quote_json(status)}, {quote_json(why[:200])}]"
        for name, (status, why) in result.lines.items()
    )
    return f'["tests", [{", ".join(rows)}], {quote_json(tampered or result.tampered or watch.find_any_change())}]'


class TamperDetector:
    """Detects changes of unittest and of the tests by the program; it records their state before the program is
    loaded."""

    def __init__(self) -> None:
        self._modules = [unittest, unittest.case, unittest.suite, unittest.result, unittest.loader]
        self._names = [(m, dict(vars(m))) for m in self._modules]
        self._builtins = {name: value for name, value in vars(builtins).items() if name != "_"}
        self._judges = [(name, held, _snapshot_member(held)) for name, held in _list_unittest_members(self._modules)]
        self._tests: list[tuple[type, dict[str, Any]]] = []

    def watch_class(self, case: type) -> None:
        """Also watch the methods of a test class."""
        self._tests.append((case, _snapshot_methods(case)))

    def find_change(self) -> str:
        """Return the first part of unittest or of the tests that was changed; "" if none was."""
        for owner, names in self._names:
            if sys.modules.get(owner.__name__) is not owner:
                return f"sys.modules[{owner.__name__!r}]"
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    return f"{owner.__name__}.{name}"
        for name, held, state in self._judges:
            if _snapshot_member(held) != state:
                return name
        for case, methods in self._tests:
            if _snapshot_methods(case) != methods:
                return f"the methods of {case.__name__}"
        return "sys.settrace" if sys.gettrace() or sys.getprofile() else ""

    def find_any_change(self) -> str:
        """Return the first change like `find_change`, and also changes of builtins, which honest tests replace
        temporarily."""
        for name, value in self._builtins.items():
            if vars(builtins).get(name) is not value:
                return f"builtins.{name}"
        return self.find_change()


def _list_unittest_members(modules: list[ModuleType]) -> Iterator[tuple[str, Any]]:
    """Yield the names and objects of unittest's classes and functions, and the class that collects results here."""
    seen: dict[int, Any] = {}
    for held in (RecordingResult, *(value for m in modules for value in vars(m).values())):
        judges = isinstance(held, type | FunctionType) and held.__module__.startswith(("unittest", __name__))
        if judges and id(held) not in seen:
            seen[id(held)] = held
            yield f"{held.__module__}.{held.__qualname__}", held


def _snapshot_member(held: Any) -> Any:
    """Return the compared state of a class or function: names, identities, code, defaults."""
    if isinstance(held, FunctionType):
        return held.__code__, held.__defaults__, id(held.__kwdefaults__), id(held.__globals__)
    return held.__bases__, {name: id(value) for name, value in vars(held).items()}, _snapshot_methods(held)


def _snapshot_methods(held: type) -> dict[str, Any]:
    members = {name: getattr(value, "__func__", value) for name, value in vars(held).items()}
    return {
        name: (id(value), _snapshot_member(value)) for name, value in members.items() if isinstance(value, FunctionType)
    }
