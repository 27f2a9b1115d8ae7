"""Run tests of kind "stdin": the program runs as `__main__` once per input, and its output is sent."""

# ruff: noqa: BLE001, PTH108, SIM115
# Any exception of a program is its verdict; pathlib would cost milliseconds of every run.

from __future__ import annotations

import os
import sys

from ops.grading.harness.guard import install_guard, set_limits
from ops.grading.harness.plain import describe_error, make_module, quote_json

TYPE_CHECKING = False  # `typing` would take 7 ms of every run
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

_SIGKILL, _SIGXCPU = 9, 24  # signal itself imports enum: 3 ms
_MACHINE_FAULT = 2
MACHINE_FAULT_STATUS = f"exit status {_MACHINE_FAULT}"
"""The report on a program that lacked memory, a file, a process or a thread, perhaps on this machine only."""


def run(job: dict[str, Any]) -> str:
    """Run the program once per input, each in a separate fork; stop at the first one that fails."""
    try:
        code = compile(job["program"], "program.py", "exec", dont_inherit=True)
    except BaseException as error:  # any error of the program's text, MemoryError included
        return f'[["error", {quote_json(describe_error(error))}]]'
    results = []
    for text in job["tests"]:
        out = os.open("stdout", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        into = os.open("stdin", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        data = memoryview(text.encode())
        while data:
            data = data[os.write(into, data) :]
        os.lseek(into, 0, os.SEEK_SET)
        os.unlink("stdin")
        os.unlink("stdout")
        child = os.fork()
        if child == 0:
            os._exit(_run_as_main(job, code, into, out))
        os.close(into)
        _, status = os.waitpid(child, 0)
        os.lseek(out, 0, os.SEEK_SET)
        said = _read(out, job["keep"])
        os.close(out)
        if status:
            results.append(describe_exit(status))
            break
        results.append(f'["ok", {quote_json(said.decode("utf-8", "replace"))}]')
    return "[" + ", ".join(results) + "]"


def describe_exit(status: int) -> str:
    """Return the report on a child that failed; "late" means a lack of CPU time."""
    if not os.WIFSIGNALED(status):
        return f'["error", "exit status {1 if os.WEXITSTATUS(status) != _MACHINE_FAULT else _MACHINE_FAULT}"]'
    number = os.WTERMSIG(status)
    if number in (_SIGXCPU, _SIGKILL):  # the soft and the hard limit
        return '["late", "out of CPU time"]'
    return f'["error", "signal {number}"]'


def _read(descriptor: int, count: int) -> bytes:
    parts = []
    while count > 0 and (part := os.read(descriptor, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _run_as_main(job: dict[str, Any], code: CodeType, into: int, out: int) -> int:
    """Run the program as `__main__` in the child, with `into` as stdin and `out` as stdout; return its exit status."""
    os.dup2(into, 0)
    os.dup2(out, 1)
    os.close(job["report"])
    for spare in (into, out):
        if spare > 2:
            os.close(spare)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    set_limits(job, job["cpu_s"])
    install_guard(job)
    job.clear()
    status = 0
    try:
        exec(code, make_module("__main__").__dict__)
    except SystemExit as leaving:
        status = 0 if leaving.code in (None, 0) else 1
    except BaseException as error:  # the program's own failure
        status = _exit_status_of(error)
    try:
        _finish_interpreter()
    except Exception as error:  # of an exit function, the file limit, or a stdout that the program closed
        return status or _exit_status_of(error)
    return status


def _exit_status_of(error: BaseException) -> int:
    """Return the exit status after an exception: `_MACHINE_FAULT` for those of memory, files, processes and threads."""
    of_the_machine = isinstance(error, (MemoryError, OSError)) or "start new thread" in str(error)
    return _MACHINE_FAULT if of_the_machine else 1


def _finish_interpreter() -> None:
    """Do the interpreter's work at exit: wait for threads, call exit functions, flush."""
    if threading := sys.modules.get("threading"):
        threading._shutdown()
    if atexit := sys.modules.get("atexit"):
        atexit._run_exitfuncs()
    sys.stdout.flush()
