"""A progress bar on a terminal; without one, a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_EVERY_S = 20.0


def time_left(elapsed_s: float, done: int, total: int) -> str:
    """" (37 s left)" at the pace so far; "" while too little is done to tell, and at the end."""
    if done < max(5, total // 50) or done >= total:
        return ""
    return f" ({elapsed_s / done * (total - done):.0f} s left)"


@contextmanager
def bar(console: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function of (done, total, note) that shows how far it is, what is left (s) and the note."""
    console = console or Console(highlight=False, stderr=True)
    columns = (BarColumn(bar_width=28), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    last = began = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)

        def report(done: int, total: int, note: str) -> None:
            nonlocal last
            bars.update(task, completed=done, total=total, description=note)
            now = time.monotonic()
            if not console.is_terminal and now - last >= PLAIN_EVERY_S:
                last = now
                console.print(f"{done} of {total}{time_left(now - began, done, total)}: {note}", markup=False)

        yield report
