"""Processes that are prepared, begin together, and can be killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

PRELOADED = [
    "litellm", "openai.resources", "tests.faults.limits_run", "tests.faults.precache_run", "tests.faults.spending_run",
]  # fmt: skip
"""Modules that take seconds to import, once for all processes of the file that starts the first one."""


class Process:
    """A prepared process: `live(order, end)` has sent "ready" and waits for a message."""

    def __init__(
        self, live: Callable[[Any, Connection], None], order: object, preloaded: Sequence[str] = PRELOADED
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(preloaded))
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(dict(os.environ), live, order, theirs))
        self._process.start()
        theirs.close()

    def wait_until_ready(self) -> None:
        assert self._end.recv() == "ready"

    def begin(self) -> None:
        self._end.send("go")

    def is_running(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> bool:
        """End it by SIGKILL; whether it was still running."""
        running = self._process.is_alive()
        self._process.kill()
        self._process.join(240)
        return running

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def said(self) -> Any:
        """Return its next message. Raises `EOFError` if it was killed."""
        return self._end.recv()

    def outcome(self) -> Any:
        """Return its last message. Raises `EOFError` if it was killed."""
        outcome = self.said()
        self._process.join(240)
        return outcome


def _run(
    environment: dict[str, str], live: Callable[[Any, Connection], None], order: object, end: Connection
) -> None:
    """Run `live` in the environment of the test, because the fork server has that of the first test that started a
    process."""
    os.environ.clear()
    os.environ.update(environment)
    live(order, end)
