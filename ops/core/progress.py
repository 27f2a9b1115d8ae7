"""Show the progress and remaining time of a long operation: a progress bar on a terminal, and occasional lines
elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

FIRST_LINE_S, LINE_INTERVAL_S = 5.0, 60.0
"""Without a progress bar, the first line is printed after `FIRST_LINE_S` seconds, further ones every `LINE_INTERVAL_S`
seconds and one at the end of each phase."""
STALLED_S = 300.0
"""Seconds after which a line is printed again although there was no progress."""
MIN_SHARE_FOR_ESTIMATE = 0.02
"""The share of a phase that must be completed before a remaining time is shown."""


class RemainingTime:
    """Estimates the remaining time of an operation that has one or more phases. Within a phase the estimate never
    rises.

    A new phase begins when the total changes or when the number of completed items falls.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total, self._done, self._first = -1, 0, 0
        self._began = self._said = clock()
        self._spoke: int | None = None
        self._left_s = math.inf

    def describe_remaining(self, done: int, total: int) -> str:
        """Return the remaining time, for example "about 18 min left"; "" at the end or if too little is done for an
        estimate."""
        now = self._clock()
        if total != self._total or done < self._done:
            self._total, self._first, self._began, self._said = total, done, now, now
            self._spoke, self._left_s = None, math.inf
        self._done = done
        completed = done - self._first
        if done < total and completed >= max(5, MIN_SHARE_FOR_ESTIMATE * total):
            self._left_s = min(self._left_s, (now - self._began) / completed * (total - done))
        return format_duration(self._left_s) if done < total and math.isfinite(self._left_s) else ""

    def next_line(self, done: int, total: int, note: str = "") -> str | None:
        """Return a line with the progress for a log if one is due now, otherwise None."""
        left = self.describe_remaining(done, total)
        now = self._clock()
        pause = FIRST_LINE_S if self._spoke is None else STALLED_S if self._spoke == done else LINE_INTERVAL_S
        ended = self._spoke is not None and self._spoke < done >= total
        if now - self._said < pause and not ended:
            return None
        self._said, self._spoke = now, done
        return ", ".join([f"{done:,} of {total:,}", *([left] if left else [])]) + (f": {note}" if note else "")


def format_duration(seconds: float) -> str:
    """Return the remaining time in words. Minutes are rounded up, and more than 90 minutes are given in half hours."""
    if seconds < 60:
        return "less than a minute left"
    if seconds <= 90 * 60:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {math.ceil(seconds / 1800) / 2:g} h left"


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function of (done, total, note) that shows the progress and the remaining time on the console."""
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
