"""Test processes that are forked from one which has imported what most tests need.

`make test` gives pytest-xdist `python -m tests.preloaded` as its Python. The process that pytest-xdist starts sends its
input, its output and its code to the server, which the controlling pytest has started; a child of the server executes
the code. Without a server the process is an ordinary Python. The server imports the tests too, by collecting them: so
their assertions are rewritten once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys

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


def start(path: str) -> subprocess.Popen[bytes] | None:
    """Start the server, which ends with this process or when its input is closed."""
    if len(path) > _LONGEST_PATH:
        return None
    os.environ[SOCKET] = path
    with socket.socket(socket.AF_UNIX) as listener:  # here, so that a process which is early waits for the server
        listener.bind(path)
        listener.listen()
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
    """Accept requests at that listening socket until the input is closed. Returns the requested code, in a child of
    this process.
    """
    with socket.socket(fileno=number) as listener:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # imports make little garbage
        for name in _MODULES:
            importlib.import_module(name)
        pytest.main(["--collect-only", "-qqq", "--ignore", "tests/browser"])
        gc.collect()
        gc.freeze()
        gc.enable()
        while 0 not in select.select([listener, 0], [], [])[0]:
            request, _ = listener.accept()
            code, files, _, _ = socket.recv_fds(request, 1 << 16, 3)
            if os.fork() == 0:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                request.send(b"+")
                request.detach()  # stays open as long as this process lives
                return code.decode()
            request.close()
            for file in files:
                os.close(file)
    with contextlib.suppress(ChildProcessError):
        while True:  # their CPU seconds count as this process's
            os.waitpid(-1, 0)
    raise SystemExit


def forked(code: str) -> None:
    """Let the server execute the code with this process's input and output, and wait for its end.

    Raises `OSError` where no server answers.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET])
        socket.send_fds(server, [code.encode()], [0, 1, 2])
        if not server.recv(1):
            raise ConnectionError("the server ended before it accepted the code")
        with contextlib.suppress(ConnectionError):
            server.recv(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _code = serve(int(sys.argv[2]))
        sys.argv = ["-c"]
        exec(_code)
    else:
        try:
            forked(sys.argv[sys.argv.index("-c") + 1])
        except (KeyError, OSError):
            os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
