"""What a process holds at a server for a while, and goes on holding as long as it lives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Leases(Generic[K, V]):
    """Values by key, and a thread that hands all of them to `renew` every `every_s` seconds while there are any.

    The child of a fork holds nothing: what its parent holds is the parent's to keep. What `renew` raises ends the
    renewing; an error that will pass is its own to expect.
    """

    def __init__(self, name: str, every_s: float, renew: Callable[[dict[K, V]], object]) -> None:
        self._name, self._every_s, self._renew = name, every_s, renew
        self._held: dict[K, V] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @contextmanager
    def held(self) -> Iterator[dict[K, V]]:
        """All of them, for this thread alone while in the block: what is put in is renewed from then on, what is
        taken out no more."""
        if self._pid != os.getpid():  # neither the thread is here nor whoever may have had the lock
            self._held, self._thread, self._lock, self._pid = {}, None, threading.Lock(), os.getpid()
        with self._lock:
            try:
                yield self._held
            finally:
                if self._held and self._thread is None:
                    self._thread = threading.Thread(target=self._keep, name=self._name, daemon=True)
                    self._thread.start()

    def _keep(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._every_s):
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                held = dict(self._held)
            self._renew(held)
