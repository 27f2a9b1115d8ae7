"""Run an untrusted program with a fresh interpreter, limits, a deadline and a private report."""

from __future__ import annotations

import inspect
import json
import marshal
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ops.grading.folders import sandbox_folder
from ops.grading.isolation import (
    PROGRAM_FOLDER,
    Isolation,
    Libraries,
    build_bubblewrap_command,
    build_namespace_filter,
    choose_isolation,
    list_readable_paths,
    open_namespace_filter,
    podium_libraries,
)
from ops.grading.negative_controls import list_test_classes

Kind = Literal["stdin", "call", "unittest"]
_BOOT = """
import builtins, marshal, os, sys
data, left = b'', int.from_bytes(os.read(0, 8), 'little')
while len(data) < left: data += os.read(0, left - len(data))
parts, job = marshal.loads(data)
for name, code in parts:
    module = sys.modules[name] = type(os)(name)
    module.__builtins__ = dict(vars(builtins))
    exec(code, module.__dict__)
start = sys.modules['ops.grading.harness.start']
for name, _ in parts: del sys.modules[name]
start.main(module.run, job)
"""
"""The modules get their own builtins, which a program's changes do not reach, and leave `sys.modules`."""
_MIB = 1 << 20


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of one run. CPU time decides, so that a loaded machine does not change a verdict."""

    cpu_s: float
    """The CPU seconds of the whole run, or of each input of a "stdin" run."""
    wall_s: float
    """The seconds after which the whole run is killed, even if it sleeps or waits."""
    memory_bytes: int
    """The bytes of address space of each process."""
    file_bytes: int = 16 << 20
    """The size of the largest file in bytes, including the output."""
    processes: int = 0
    """The number of further processes that the program may start."""
    report_bytes: int = 32 << 20

    def scale(self, slowness: float, cpu_factor: float = 1.0) -> ProgramLimits:
        """Return the limits on a machine that is `slowness` times slower, with `cpu_factor` times the CPU time."""
        return replace(self, cpu_s=self.cpu_s * slowness * cpu_factor, wall_s=self.wall_s * slowness)


@dataclass(frozen=True)
class SandboxResult:
    """The result of a run: `results` as the harness reported them, or None and the `error` if there is no report."""

    results: list[Any] | None
    error: str
    seconds: float
    has_timed_out: bool = False
    """True if it ran out of CPU time or was killed by the wall clock, which may differ on a machine with less load."""


def run(
    kind: Kind,
    program: str,
    tests: Sequence[str],
    limits: ProgramLimits,
    *,
    max_output_bytes: Sequence[int] = (),
    libraries: Libraries | None = None,
) -> SandboxResult:
    """Run `program` on `tests` in a sandbox.

    The output for each input is kept up to the largest value in `max_output_bytes`. `libraries` are those that the
    program can import (default: Podium's own). Tests of kind "unittest" are one module, which gets a separate sandbox:
    no run sees the remains of an earlier one. Safe from any thread. Raises `OSError` if the machine cannot start a
    process, and `ConfigError` if the machine has no isolation that the recipe accepts.
    """
    nonce, wall, given = secrets.token_hex(16), choose_isolation(), libraries or podium_libraries()
    source = None
    if kind == "unittest":
        [module] = tests
        source = {"code": module, "classes": list_test_classes(module)}
    job: dict[str, Any] = {
        "program": program, "tests": [] if source else list(tests), "source": source, "nonce": nonce,
        # One bound for all, in whole MiB, because the program must not learn the length of an expected output.
        "keep": (max(max_output_bytes, default=0) // _MIB + 1) * _MIB,
        "cpu_s": limits.cpu_s, "wall_s": limits.wall_s, "memory": limits.memory_bytes, "file_bytes": limits.file_bytes,
        "report_bytes": limits.report_bytes // 4, "processes": limits.processes, "may_exec": limits.processes > 0,
        "user_processes": _count_threads_of_user(int(time.monotonic() / 20)) + 256,
        "path": list(given.folders), "shown": list(list_readable_paths(given)), "walled": wall == "bubblewrap",
        "filter": b"" if wall == "bubblewrap" else build_namespace_filter(),
    }  # fmt: skip
    try:
        message = marshal.dumps((_compile_harness(kind), job))
    except ValueError:  # lone surrogates and similar
        return SandboxResult(None, "the program is not valid text", 0.0)
    started, wall_s = time.monotonic(), limits.wall_s + (5 if source else 0)
    filtered = open_namespace_filter() if wall == "bubblewrap" else nullcontext(())
    with _program_folder(wall) as folder, tempfile.TemporaryFile() as stdin, filtered as filters:
        stdin.write(len(message).to_bytes(8, "little") + message)
        stdin.seek(0)
        command, environment = _build_command(wall, given, filters), _build_environment(folder, given)
        cwd = "/" if wall == "bubblewrap" else folder
        report, why, overran = _supervise(command, environment, cwd, (stdin.fileno(), *filters), limits, wall_s)
        if wall == "resource_limits":
            _kill_remaining_processes(folder)
    return _parse_report(report, nonce, why, time.monotonic() - started, overran)


def _program_folder(wall: Isolation) -> AbstractContextManager[str]:
    return nullcontext(PROGRAM_FOLDER) if wall == "bubblewrap" else sandbox_folder()


def _supervise(
    command: list[str],
    environment: dict[str, str],
    folder: str,
    descriptors: tuple[int, ...],
    limits: ProgramLimits,
    wall_s: float,
) -> tuple[bytes, str, bool]:
    """Start, read the report up to its bound or the deadline, kill the whole process group.

    The first of `descriptors` is the program's stdin, the others stay open in it.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=descriptors[0],
        pass_fds=descriptors[1:],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    deadline, parts, size, why = time.monotonic() + wall_s, [], 0, ""
    descriptor = process.stdout.fileno()
    try:
        while True:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                why = f"still running after {wall_s:g} s"
                break
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > limits.report_bytes:
                why = "reported too much"
                break
    finally:
        _kill(process)
        process.stdout.close()
    # Bubblewrap ends with 128 + the signal that ended the program.
    code = -process.returncode if process.returncode < 0 else process.returncode - 128
    if not why and code > 0:
        why = _SIGNALS.get(code, f"killed by signal {code}")
    return b"".join(parts), why, why.startswith(("still running", _OUT_OF_CPU_TIME))


_OUT_OF_CPU_TIME = "out of CPU time"
_SIGNALS: dict[int, str] = {
    signal.SIGXCPU: _OUT_OF_CPU_TIME,
    signal.SIGSEGV: "crashed",
    signal.SIGKILL: "out of CPU time or memory",
}


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:  # macOS: the group is already a zombie
        process.kill()
    process.wait()


def _kill_remaining_processes(folder: str) -> None:
    """Kill the remaining processes outside the process group: those in the program's own folder, or whose environment
    names it."""
    for _ in range(10):  # a process may start another one while the list is read
        found = [int(name) for name in _list_processes() if _belongs_to(folder, name)]
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return


def _list_processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (pathlib takes thrice as long)
    except FileNotFoundError:  # no /proc
        return []


def _belongs_to(folder: str, process: str) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb", buffering=0) as environment:  # noqa: PTH123
            named = f"TMPDIR={folder}".encode() in environment.read().split(b"\0")
        return named or os.readlink(f"/proc/{process}/cwd").startswith(folder)  # noqa: PTH115
    except OSError:  # it ended, or belongs to another user
        return False


def _parse_report(report: bytes, nonce: str, why: str, seconds: float, late: bool) -> SandboxResult:
    """Return the report as results if it is valid: the nonce, then one JSON list of [status, …], and nothing more."""
    if not report.startswith(nonce.encode()):
        return SandboxResult(None, why or "ended without an answer", seconds, late)
    try:
        results = json.loads(report[len(nonce) :])
    except (ValueError, RecursionError):
        results = None
    if not isinstance(results, list) or not all(_is_well_formed(result) for result in results):
        return SandboxResult(None, why or "a malformed report", seconds, late)
    if overruns := [what for status, what in results if status == "late"]:
        results = [["error", what] if status == "late" else [status, what] for status, what in results]
        return SandboxResult(results, overruns[0], seconds, True)
    return SandboxResult(results, why, seconds, late)


def _is_well_formed(result: Any) -> bool:
    if not isinstance(result, list) or len(result) != 2:
        return False
    status, what = result
    return status == "ok" or (status in ("ran", "error", "late") and isinstance(what, str))


# ── the command ──────────────────────────────────────────────────────────────


@lru_cache(maxsize=3)
def _compile_harness(kind: Kind) -> list[tuple[str, Any]]:
    """Return the modules of `harness` that a kind of test needs, compiled, in the order of their imports."""
    from ops.grading.harness import calls, cases, guard, mains, plain, start  # imported here: unittest takes 15 ms

    runner = {"call": calls, "stdin": mains, "unittest": cases}[kind]
    return [
        (module.__name__, compile(inspect.getsource(module), module.__name__, "exec", dont_inherit=True, optimize=2))
        for module in (guard, plain, start, runner)
    ]


@lru_cache(maxsize=1)
def _python_path() -> str:
    return os.path.realpath(sys.executable)


def _build_environment(folder: str, chosen: Libraries) -> dict[str, str]:
    """Return an environment without Podium's variables. The interpreter
    reads it (no -E), so that hashing is the same in every run.
    """
    return {
        "PATH": f"{chosen.command_folder}:/usr/local/bin:/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _build_command(wall: Isolation, chosen: Libraries, filters: tuple[int, ...]) -> list[str]:
    # -I but for -E, whose purpose the environment above serves. `-S` skips site and its .pth files, which cost
    # more than the interpreter.
    python = [_python_path(), "-s", "-P", "-S", "-c", _BOOT]
    return [*build_bubblewrap_command(chosen, filters), *python] if wall == "bubblewrap" else python


@lru_cache(maxsize=2)
def _count_threads_of_user(_epoch: int) -> int:
    """Return this user's threads, which the kernel counts against its process limit. Read again every 20 s."""
    count, user = 0, os.getuid()
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                try:
                    if entry.name.isdigit() and entry.stat().st_uid == user:
                        count += sum(1 for _ in Path(entry.path, "task").iterdir())
                except OSError:  # it ended meanwhile
                    continue
    except FileNotFoundError:  # no /proc: no such limit either
        return 4096
    return count
