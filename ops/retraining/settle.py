"""Debouncing: an edit is acted upon when no other has followed it for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Settling:
    """What was read last, and since when (seconds of the epoch) it has read the same."""

    read: str = ""
    since: float = 0.0

    def after(self, read: str, now: float) -> Self:
        """What is known when `read` is seen at `now`. A clock that went back starts the wait anew."""
        same = read == self.read and now >= self.since
        return type(self)(read, self.since if same else now)

    def waits(self, settle_s: float, now: float) -> float:
        """Seconds until it has settled; 0: it has."""
        return max(0.0, settle_s - (now - self.since))
