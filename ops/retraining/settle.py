"""Debouncing: an edit takes effect when no other edit has followed it for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Settling:
    """The last content read, and the time (seconds since the epoch) since which it is unchanged."""

    read: str = ""
    since: float = 0.0

    def after(self, read: str, now: float) -> Self:
        """The state after reading `read` at time `now`. If the clock went back, the wait restarts."""
        same = read == self.read and now >= self.since
        return type(self)(read, self.since if same else now)

    def waits(self, settle_s: float, now: float) -> float:
        """Seconds until the content counts as settled; 0: it is settled."""
        return max(0.0, settle_s - (now - self.since))
