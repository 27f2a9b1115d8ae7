"""Progress and remaining time of a long operation: a bar on a terminal, elsewhere occasional lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

FIRST_LINE_S, LINE_INTERVAL_S = 5.0, 60.0
"""Without a bar, a phase prints a line after `FIRST_LINE_S`, one every `LINE_INTERVAL_S` and one at its end."""
STALLED_S = 300.0
"""Seconds before a line is repeated without progress."""
MIN_SHARE_FOR_ESTIMATE = 0.02
"""The share of a phase that must be done before a remaining time is shown."""


class RemainingTime:
    """The remaining time of one phase after another; within a phase it never rises.

    A phase ends when its total changes or when less is done than before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total, self._done, self._first = -1, 0, 0
        self._began = self._said = clock()
        self._spoke: int | None = None
        self._left_s = math.inf

    def describe_remaining(self, done: int, total: int) -> str:
        """Return “about 18 min left”; empty if too little is done for an estimate, and at the end."""
        now = self._clock()
        if total != self._total or done < self._done:
            self._total, self._first, self._began, self._said = total, done, now, now
            self._spoke, self._left_s = None, math.inf
        self._done = done
        made = done - self._first
        if done < total and made >= max(5, MIN_SHARE_FOR_ESTIMATE * total):
            self._left_s = min(self._left_s, (now - self._began) / made * (total - done))
        return format_duration(self._left_s) if done < total and math.isfinite(self._left_s) else ""

    def next_line(self, done: int, total: int, note: str = "") -> str | None:
        """Return a line for a log if one is due."""
        left = self.describe_remaining(done, total)
        now = self._clock()
        pause = FIRST_LINE_S if self._spoke is None else STALLED_S if self._spoke == done else LINE_INTERVAL_S
        ended = self._spoke is not None and self._spoke < done >= total
        if now - self._said < pause and not ended:
            return None
        self._said, self._spoke = now, done
        return ", ".join([f"{done:,} of {total:,}", *([left] if left else [])]) + (f": {note}" if note else "")


def format_duration(seconds: float) -> str:
    """Return a remaining time in words: minutes are rounded up, hours to halves."""
    if seconds < 60:
        return "less than a minute left"
    if seconds <= 90 * 60:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {math.ceil(seconds / 1800) / 2:g} h left"


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Give a function of (done, total, note) that shows all three and the remaining time."""
    console = console or Console(highlight=False, stderr=True)
    columns = (BarColumn(bar_width=28), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
               TextColumn("{task.description}"))  # fmt: skip
    pace = RemainingTime()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None, left="")

        def report(done: int, total: int, note: str) -> None:
            if console.is_terminal:
                bars.update(
                    task, completed=done, total=total, description=note, left=pace.describe_remaining(done, total)
                )
            elif line := pace.next_line(done, total, note):
                console.print(line, markup=False)

        yield report
