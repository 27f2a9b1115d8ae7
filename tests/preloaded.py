"""Test processes that are forked from one which has imported what most tests need.

`make test` gives pytest-xdist `python -m tests.preloaded` as its Python. The process that pytest-xdist starts sends its
input, its output and its code to the server, which the controlling pytest has started; a child of the server executes
the code. Without a server the process is an ordinary Python. The server imports the tests too, by collecting them: so
their assertions are rewritten once.

Tests start processes of their own in the same way, with `call`; under plain `pytest` the first one starts a server.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import pytest

SOCKET = "PODIUM_TEST_FORKS"
"""The environment variable that names the server's socket."""
_MODULES = (
    "dagster.components",
    "great_expectations",
    "litellm",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "mlflow.artifacts",
    "openai.resources",
    "ops.serving.http.access",
    "ops.training.cold_start.supervised",
    "ops.training.grpo",
    "pipelines.commands.main",
    "pipelines.dev",
    "scipy.stats",
    "sqlalchemy",
    "sympy",
)
_LONGEST_PATH = 100
"""Characters of a socket's path that every kernel takes."""
_LONGEST_S = 6 * 3600.0
"""Seconds that a session of tests may take."""
_NUMBER = 4
"""Bytes of each number that the server sends: a process's id, then its exit status."""


class Forked:
    """A process that the server forks and that executes `code`, with three open files of this process as its input,
    output and error output. Its attributes are those of `subprocess.Popen`.

    Raises `OSError` if no server answers.
    """

    def __init__(self, code: str, files: tuple[int, int, int] = (0, 1, 2)) -> None:
        self.returncode: int | None = None
        self._server = socket.socket(socket.AF_UNIX)
        try:
            self._server.connect(os.environ.get(SOCKET, ""))
            socket.send_fds(self._server, [code.encode()], files)
            self.pid = self._number()
        except OSError:
            self._server.close()
            raise

    def _number(self) -> int:
        read = self._server.recv(_NUMBER, socket.MSG_WAITALL)
        if len(read) < _NUMBER:
            raise ConnectionError("the server of test processes has ended")
        return int.from_bytes(read, signed=True)

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None:
            self._server.settimeout(timeout)
            try:
                self.returncode = self._number()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0) from None
            self._server.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.send_signal(signal.SIGKILL)


def call(function: Callable[..., object], *arguments: object) -> tuple[Forked, Connection]:
    """Start a process that calls `function(*arguments, connection)` in this process's environment and folder.

    Returns it and the other end of the connection.
    """
    if SOCKET not in os.environ:
        _start_own()
    ours, theirs = Pipe()
    with theirs:
        process = Forked("from tests.preloaded import answer; answer()", (theirs.fileno(), 1, 2))
    ours.send((str(Path.cwd()), dict(os.environ), pickle.dumps((function, arguments))))
    return process, ours


def answer() -> None:
    """Do what `call` asked for at this process's input, and end without taking the imported modules apart."""
    connection = Connection(os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    folder, environment, asked = connection.recv()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status: object = 1
    try:
        function, arguments = pickle.loads(asked)
        function(*arguments, connection)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status if isinstance(status, int) else 1)


_own: list[str] = []
"""The socket of the server that this process has started for itself."""


def _start_own() -> None:
    """Tests restore the environment that they found, so the address is kept here too."""
    if not _own:
        folder = tempfile.TemporaryDirectory(prefix="podium-forks-")
        server = start(f"{folder.name}/forks")
        assert server is not None, f"the path {folder.name} is too long for a socket: set TMPDIR to a shorter one"
        _own.append(os.environ[SOCKET])
        atexit.register(folder.cleanup)
        atexit.register(stop, server)
    os.environ[SOCKET] = _own[0]


def start(path: str) -> subprocess.Popen[bytes] | None:
    """Start the server, which ends with this process or when its input is closed."""
    if len(path) > _LONGEST_PATH:
        return None
    os.environ[SOCKET] = path
    with socket.socket(socket.AF_UNIX) as listener:  # here, so that a process which is early waits for the server
        listener.bind(path)
        listener.listen(128)
        command = [sys.executable, "-m", "tests.preloaded", "serve", str(listener.fileno())]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server; its children end with the input that pytest-xdist gave them."""
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        server.kill()


def serve(number: int) -> str:
    """Fork a process for each request at that listening socket, until the input is closed and all have ended.

    Returns the requested code, in a child of this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # imports make little garbage
    for name in _MODULES:
        importlib.import_module(name)
    pytest.main(["--collect-only", "-qqq", "--ignore", "tests/browser"])
    gc.collect()
    gc.freeze()
    gc.enable()
    running: dict[int, socket.socket] = {}
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    listener: socket.socket | None = socket.socket(fileno=number)
    while listener or running:
        ready = select.select([ended, *([listener, 0] if listener else [])], [], [])[0]
        if ended in ready:
            ended.recv(1 << 16)
            _tell_the_ended(running)
        elif 0 in ready and listener:
            listener.close()
            listener = None
        elif listener:
            request, _ = listener.accept()
            code, files, _, _ = socket.recv_fds(request, 1 << 16, 3)
            if child := os.fork():
                running[child] = request
                request.send(child.to_bytes(_NUMBER))
                for file in files:
                    os.close(file)
                continue
            signal.set_wakeup_fd(-1)
            for ending in (signal.SIGINT, signal.SIGCHLD):
                signal.signal(ending, signal.SIG_DFL)
            for other in (listener, ended, wake, request, *running.values()):
                other.close()
            for place, file in enumerate(files):
                os.dup2(file, place)
                os.close(file)
            return code.decode()
    raise SystemExit


def _tell_the_ended(running: dict[int, socket.socket]) -> None:
    """Send each ended process's status to the one that asked for it."""
    for child in list(running):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            with running.pop(child) as request, contextlib.suppress(OSError):
                request.send(os.waitstatus_to_exitcode(status).to_bytes(_NUMBER, signed=True))


def main() -> Any:
    """Be the server, one of its children, or the program that pytest-xdist starts; the code to execute, if any."""
    if sys.argv[1:2] == ["serve"]:
        code = serve(int(sys.argv[2]))
        sys.argv = ["-c"]
        return code
    try:
        process = Forked(sys.argv[sys.argv.index("-c") + 1])
    except (ValueError, OSError):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    with contextlib.suppress(ConnectionError):
        process.wait(_LONGEST_S)
    return ""


if __name__ == "__main__":
    exec(main())
