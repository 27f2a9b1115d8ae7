"""Turns of programs: many at a time, or one by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Any number `beside_others`, or one `alone`, which waits for those and keeps further ones waiting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside, self._waiting, self._alone = 0, 0, False

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """A turn that others may share."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._alone or self._waiting))
            self._beside += 1
        try:
            yield
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A turn that is shared with no other."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._alone or self._beside))
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
