"""Processes that are prepared, begin together, and can be killed at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests import preloaded

_END_S = 240.0


class Process:
    """A prepared process: `live(order, end)` has sent "ready" and waits for a message."""

    def __init__(self, live: Callable[[Any, Connection], None], order: object) -> None:
        self._process, self._end = preloaded.call(live, order)

    def wait_until_ready(self) -> None:
        assert self._end.recv() == "ready"

    def begin(self) -> None:
        self._end.send("go")

    def send(self, message: object) -> None:
        self._end.send(message)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> bool:
        """End it by SIGKILL; whether it was still running."""
        running = self.is_running()
        self._process.kill()
        self._process.wait(_END_S)
        return running

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> Any:
        """Return its next message. Raises `EOFError` if it was killed."""
        return self._end.recv()

    def outcome(self) -> Any:
        """Return its last message, when it has ended. Raises `EOFError` if it was killed."""
        outcome = self.said()
        assert self._process.wait(_END_S) == 0
        return outcome


@contextmanager
def running(live: Callable[[Any, Connection], None], *orders: object) -> Iterator[list[Process]]:
    """Give a process for each order, all of them ready to begin; kill the remaining ones in the end."""
    processes: list[Process] = []
    try:
        processes.extend(Process(live, order) for order in orders)
        for process in processes:
            process.wait_until_ready()
        yield processes
    finally:
        for process in processes:
            process.kill()


def begin(*processes: Process) -> None:
    for process in processes:
        process.begin()


def outcomes(*processes: Process) -> list[Any]:
    """Return the last message of each."""
    return [process.outcome() for process in processes]
