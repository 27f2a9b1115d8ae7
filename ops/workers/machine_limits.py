"""The limits of one worker over all processes of a machine: slots for calls in flight, and the time of the next
request.

Slots are locks of the operating system (flock), so that a killed process releases its slots. The library filelock is
not used, because each of its locks takes about a hundred times as many system calls, for each call to a worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from ops.config import Worker
from ops.config.base import digest

_TIMES = struct.Struct("<3d")
_MAX_AHEAD_S = 3600.0
"""A stored time that is more than this number of seconds in the future was written before the clock was set back."""
_FIRST_POLL_S, _HEAD_POLL_S, _LONGEST_POLL_S = 0.001, 0.01, 0.05


@dataclass
class RequestTimes:
    """The earliest times for the next request and the next token, and the end of the pause that the provider
    requested."""

    requests: float = 0.0
    tokens: float = 0.0
    not_before: float = 0.0


class MachineLimits:
    """The slots and times of one worker in `folder`. It may be used by several threads and tasks, and survives SIGKILL.

    Of all calls in all processes that wait for a slot, one is at the head of the queue and takes the next free slot.
    Then the next call that checks becomes the head. A process with one call therefore waits no longer than a process
    with many.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._held: set[int] = set()
        self._files: dict[str, int] = {}
        """Open files by name. They stay open, because opening a slot's file is much slower than locking it."""
        weakref.finalize(self, _close_files, self._files)
        self._head: object | None = None
        self._lock = threading.Lock()
        self._open_files()

    async def take_slot(self, slots: int) -> int:
        """Wait for one of the first `slots` slots and return its number.

        `release_slot` must be called afterwards. Cancelling the wait has no effect on the limits.
        """
        caller, pause = object(), _FIRST_POLL_S
        try:
            while (slot := self._try_take_slot(slots, caller)) is None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, _HEAD_POLL_S if self._head is caller else _LONGEST_POLL_S)
        finally:
            self._leave_head(caller)
        return slot

    def release_slot(self, slot: int) -> None:
        """Release a slot."""
        with self._lock:
            self._held.remove(slot)
            fcntl.flock(self._open_file(_slot_file(slot)), fcntl.LOCK_UN)

    @contextmanager
    def locked_times(self) -> Iterator[RequestTimes]:
        """Yield the times for exclusive use by this process. Changes that the block makes are stored."""
        with self._lock:
            self._after_fork()
            fcntl.flock(self._state, fcntl.LOCK_EX)
            try:
                times = self.known_times()
                yield times
                os.pwrite(self._state, _TIMES.pack(*astuple(times)), 0)
            finally:
                fcntl.flock(self._state, fcntl.LOCK_UN)

    def known_times(self) -> RequestTimes:
        """Return the stored times."""
        content = os.pread(self._state, _TIMES.size, 0)
        if len(content) < _TIMES.size:
            return RequestTimes()
        farthest = self.now() + _MAX_AHEAD_S
        return RequestTimes(*(at if at < farthest else 0.0 for at in _TIMES.unpack(content)))

    def now(self) -> float:
        """Return the time of the clock that all processes share, in seconds since the epoch. It survives a restart of
        the machine."""
        return time.time()

    def _try_take_slot(self, slots: int, caller: object) -> int | None:
        """Return a free slot if `caller` is at the head of the queue, or becomes its head; None if there is no such
        slot."""
        with self._lock:
            self._after_fork()
            if self._head is None:
                if not _try_lock(self._queue):
                    return None
                self._head = caller
            elif self._head is not caller:
                return None
            for slot in range(slots):
                if slot not in self._held and self._try_lock_slot(slot):
                    return slot
            return None

    def _try_lock_slot(self, slot: int) -> bool:
        if locked := _try_lock(self._open_file(_slot_file(slot))):
            self._held.add(slot)
        return locked

    def _leave_head(self, caller: object) -> None:
        with self._lock:
            if self._head is caller:
                self._head = None
                fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _open_files(self) -> None:
        self._pid = os.getpid()
        self._queue, self._state = self._open_file("queue"), self._open_file("times")

    def _open_file(self, name: str) -> int:
        if (file := self._files.get(name)) is None:
            file = self._files[name] = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        return file

    def _after_fork(self) -> None:
        """Open new files in a child process, because a child shares the open files of its parent, and thereby their
        locks."""
        if self._pid != os.getpid():
            _close_files(self._files)
            self._held, self._head = set(), None
            self._open_files()


def open_machine_limits(folder: Path, worker: Worker) -> MachineLimits:
    """Return the limits of a worker, which all processes with the same `folder` share.

    The worker is identified by its name, model and endpoint.
    """
    place = digest([worker.name, worker.model, worker.api_base])
    return MachineLimits(folder / f"{re.sub(r'[^-.A-Za-z0-9]', '_', worker.name)}-{place}")


def _slot_file(slot: int) -> str:
    return f"slot-{slot:03}"


def _close_files(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
