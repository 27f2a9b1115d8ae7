"""How a command ends after Ctrl-C, after SIGTERM, and after an error of the machine such as a full disk."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from ops.core.errors import PodiumError, iterate_causes

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes after Ctrl-C and after SIGTERM."""
TRACEBACK_VARIABLE = "PODIUM_TRACEBACK"
"""The environment variable that shows the traceback of such an error."""
_CAN_CONTINUE = "Stopped. The same command goes on from here; what was paid for is kept."
_MACHINE_ERRORS = {
    errno.ENOSPC: "Make room on that disk and run the same command again",
    errno.EDQUOT: "Make room within the quota and run the same command again",
    errno.EROFS: "Make the file system writable",
    errno.EACCES: "Give this user the permission",
    errno.EPERM: "Give this user the permission",
    errno.EIO: "Check the disk",
    errno.EMFILE: "Raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "Close other programs' files",
    errno.ENOENT: "Restore it and run the same command again",
    errno.ENOTDIR: "Put a folder in place of the file",
    errno.EISDIR: "Move the folder away and run the same command again",
    errno.EEXIST: "Move the other file away",
    errno.ELOOP: "Correct the symbolic links",
    errno.ENAMETOOLONG: "Use a shorter name or folder",
}
"""Errors of files that are not defects of the program, with their remedies."""
_STORES = ("mlflow", "sqlalchemy")
_pipe: list[int] = []
"""Read end of a pipe into which the interpreter writes signal numbers, regardless of the handlers."""
_received: list[int] = []
"""Signal numbers read from the pipe."""
_INTERRUPTS = ("KeyboardInterrupt", "DagsterExecutionInterruptedError")
"""Exceptions raised by handlers of SIGINT and SIGTERM, including Dagster's during a run."""


def raise_on_sigterm() -> None:
    """Make SIGTERM and SIGINT raise `KeyboardInterrupt` in this process, even if a shell started it in the background
    with SIGINT ignored."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)


def record_signals() -> None:
    """Turn SIGINT and SIGTERM into `KeyboardInterrupt`, and record which of them arrived.

    While Dagster executes a run, it replaces the handlers and does not report the signal. The interpreter therefore
    also writes each signal into a pipe.
    """
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _pipe[:] = [reading]
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
    sys.unraisablehook = _resend_signal
    os.register_at_fork(after_in_child=_clear_signals)


def end_at_next_signal() -> None:
    """Let further signals end the process at once and without a traceback, while the interpreter exits."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.SIG_DFL)


def exit_stopped(message: str = "Stopped.") -> NoReturn:
    """End the command after a signal, with the exit code of that signal."""
    code = get_signal_exit_code()
    click.echo(message, err=True)
    sys.exit(code)


def exit_interrupted() -> NoReturn:
    """End an interrupted command that continues from where it stopped; see `exit_stopped`."""
    exit_stopped(_CAN_CONTINUE)


def get_signal_exit_code() -> int:
    """Return 143 if the last signal was SIGTERM, else 130."""
    return TERMINATED if find_received_signal() == signal.SIGTERM else INTERRUPTED


def find_received_signal() -> int | None:
    """Return the last SIGINT or SIGTERM since `record_signals`, or None."""
    try:
        content = os.read(_pipe[0], 65_536) if _pipe else b""
    except BlockingIOError:
        content = b""
    _received.extend(number for number in content if number in (signal.SIGINT, signal.SIGTERM))
    return _received[-1] if _received else None


def explain_error(error: BaseException) -> str | None:
    """Return a one-line message with a remedy for an error of the machine; None for any other error."""
    if os.environ.get(TRACEBACK_VARIABLE):
        return None
    for each in iterate_causes(error, drivers=True):
        if isinstance(each, PodiumError):
            return str(each)
        if isinstance(each, sqlite3.DatabaseError) and not isinstance(each, _DEFECT_ERRORS):
            return _explain_database_error(each, error)
        if isinstance(each, OSError) and each.errno in _MACHINE_ERRORS:
            # A temporary file could not replace the second file, which is a folder.
            said = each.filename2 if each.errno == errno.EISDIR and each.filename2 else each.filename
            named = os.fsdecode(said) if isinstance(said, str | bytes) else _find_file_in_use(error)
            where = f"{named}: " if named else ""
            return f"{where}{os.strerror(each.errno)}. {_MACHINE_ERRORS[each.errno]}"
    for each in iterate_causes(error, drivers=True):
        if type(each).__module__.partition(".")[0] in _STORES:
            said = next((line for line in str(each).splitlines() if line.strip()), type(each).__name__)
            return f"{said.strip()}. Check the store that it names; {TRACEBACK_VARIABLE}=1 shows where this arose"
    return None


_DEFECT_ERRORS = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.NotSupportedError)
"""Exceptions that only a defect of the program raises."""


_DATABASE_REMEDIES = {
    "full": "Make room on that disk and run the same command again",
    "locked": "End the other process that holds it",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Make the file and its folder readable and writable for this user",
}
"""Words of SQLite's messages → remedy."""
_DAGSTER = "dagster"
"""The folder of Dagster's databases below `.podium`, which no backup holds."""
_BEGIN_HISTORY = (
    "Put the file back from a copy of yours; without one, move it away and run the same command again. Dagster then "
    "begins a new list of runs; results, responses and costs are kept"
)
_RESTORE = "Restore it from a backup (`podium restore FILE`), or move the file away so that a new one is begun"


def _explain_database_error(cause: sqlite3.DatabaseError, error: BaseException) -> str:
    """Return the message about a database that SQLite names in no error; `error` has `cause` among its causes."""
    file, said = _find_database_in_use(error), str(cause)
    if file is not None and file.is_dir():
        remedy = _BEGIN_HISTORY if _DAGSTER in file.parent.parts else f"Move it away. {_RESTORE}"
        return f"{file}: is a folder, and a database belongs there. {remedy}"
    beside = (file.with_name(f"{file.name}{ending}") for ending in ("-wal", "-shm", "-journal")) if file else ()
    if folder := next((each for each in beside if each.is_dir()), None):
        return f"{folder}: is a folder, and SQLite keeps a file there. Move it away and run the same command again"
    if not isinstance(cause, sqlite3.OperationalError) or "malformed" in said:
        named = [file] if file is not None else [*_find_damaged_databases()]
        if named:
            is_dagsters = all(_DAGSTER in each.parent.parts for each in named)
            return f"{', '.join(map(str, named))}: {said}. {_BEGIN_HISTORY if is_dagsters else _RESTORE}"
    remedy = next((remedy for words, remedy in _DATABASE_REMEDIES.items() if words in said), "Check the file's disk")
    return f"{file or _state_folder() / '*.db'}: {said}. {remedy}"


def _iterate_frames(error: BaseException) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give module and local variables of each function that the error and its causes left, the innermost last."""
    for each in reversed([*iterate_causes(error, drivers=True)]):
        trace = each.__traceback__
        while trace is not None:
            yield str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_frame.f_locals
            trace = trace.tb_next


def _find_database_in_use(error: BaseException) -> Path | None:
    """Return the file that SQLAlchemy, or a function of Podium, had open or was opening."""
    found = None
    for module, variables in _iterate_frames(error):
        if module.startswith("sqlalchemy."):
            engines = (getattr(variables.get(name), "engine", None) for name in ("self", "connection", "bind"))
            named = [getattr(getattr(engine, "url", None), "database", None) for engine in engines]
            arguments = variables.get("cargs")
            named += arguments[:1] if isinstance(arguments, list | tuple) else []
            found = next((Path(name) for name in named if isinstance(name, str) and "/" in name), found)
        elif module.startswith(_OWN_PACKAGES):
            paths = [value for value in variables.values() if isinstance(value, Path)]
            found = next((path for path in paths if path.suffix in (".db", ".sqlite")), found)
    return found


def _find_file_in_use(error: BaseException) -> Path | None:
    """Return the innermost file or folder that a function of Podium was given, for an error that names none."""
    found = None
    for module, variables in _iterate_frames(error):
        if module.startswith(_OWN_PACKAGES):
            found = next((value for value in reversed(variables.values()) if isinstance(value, Path)), found)
    return found


_OWN_PACKAGES = ("ops.", "assets.", "pipelines.")


def _state_folder() -> Path:
    from ops.core.workspace import Workspace

    try:
        return Workspace.find().state
    except (PodiumError, OSError):
        return Path(".podium")


def _find_damaged_databases() -> Iterator[Path]:
    """Return the workspace's database files that are no databases."""
    state = _state_folder()
    for file in sorted((*state.rglob("*.db"), *state.glob("**/*.sqlite"))):
        try:
            with file.open("rb") as opened:
                head = opened.read(16)
        except OSError:
            yield file
            continue
        if head and head != b"SQLite format 3\0":
            yield file


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _resend_signal(unraisable: Any) -> None:
    """Send a signal again a moment later, because an exception raised in a destructor or a callback is lost."""
    if unraisable.exc_type.__name__ not in _INTERRUPTS:
        sys.__unraisablehook__(unraisable)
        return
    again = threading.Timer(0.05, os.kill, (os.getpid(), find_received_signal() or signal.SIGINT))
    again.daemon = True
    again.start()


def _clear_signals() -> None:
    """Forget the parent's signals in a forked child."""
    _pipe.clear()
    _received.clear()
    signal.set_wakeup_fd(-1)
    for ending in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(ending) is _interrupt:
            signal.signal(ending, signal.default_int_handler if ending == signal.SIGINT else signal.SIG_DFL)
