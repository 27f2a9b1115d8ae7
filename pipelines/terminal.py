"""Terminal output during a pipeline run: stages, progress bars, worker calls."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

import dagster as dg
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
)
from rich.table import Column

from assets.last_result import UNCHANGED
from assets.resources import OnProgress
from ops.core.progress import RemainingTime
from ops.planning.estimate import Cost
from ops.spending.bookings import format_usd
from ops.workers.client import CallCounts

MIN_BAR_WIDTH = 100
"""Columns from which a terminal shows a bar beside the numbers."""
UNCUT_COLUMN = Column(no_wrap=True, min_width=0)
"""A column that is never cut; the phase's name wraps if there is no room."""


class Terminal:
    """A `Reporter` for the terminal, and the Dagster logger that reports the current step."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.total = CallCounts()
        self._bars = Progress(
            TextColumn("  … {task.fields[asset]}", table_column=UNCUT_COLUMN),
            *([BarColumn(bar_width=28)] if console.width >= MIN_BAR_WIDTH else []),
            TextColumn("{task.description}", style="dim"),
            MofNCompleteColumn(table_column=UNCUT_COLUMN),
            TextColumn("{task.fields[left]}", table_column=UNCUT_COLUMN),
            console=console,
            transient=True,
        )
        self._bar: TaskID | None = None
        self._own: TextIO | None = None
        self._began: dict[str, float] = {}
        self._note: dict[str, str] = {}

    def __enter__(self) -> Terminal:
        if self.console.file is sys.stdout and (own := _copy_stdout()) is not None:
            self._own = self.console.file = own
        # The library warns on every machine without a GPU, at any log level.
        logging.getLogger("DeepSpeed").addFilter(_is_error)
        # Dagster warns of the checks of each asset that a run leaves out because nothing has to be trained.
        logging.getLogger("dagster._core.execution.plan.active").addFilter(_is_error)
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()
        if self._own is not None:
            self.console.file = sys.stdout
            self._own.close()

    def begin_progress(self, context: dg.AssetExecutionContext) -> OnProgress:
        """Show a bar that disappears when the asset is done; write lines in the run's log, and on standard output
        without a terminal."""
        self._remove_bar()
        self._bar = self._bars.add_task("", total=None, asset=context.asset_key.path[-1], left="")
        pace = RemainingTime()

        def report(done: int, total: int, note: str = "", /) -> None:
            if self._bar is None:
                return
            self._bars.update(
                self._bar, completed=done, total=total, description=note, left=pace.describe_remaining(done, total)
            )
            if line := pace.next_line(done, total, note):
                context.log.info(line)  # for the page of the run
                if not self.console.is_terminal:
                    self.console.print(f"    {line}", style="dim", markup=False)

        return report

    def count_calls(self, context: dg.AssetExecutionContext, calls: CallCounts) -> None:
        """Add to the run's total and show the sum beside the asset."""
        self.total = self.total + calls
        if replace(calls, retries=0) == CallCounts():  # a retry is not a call
            return
        replayed = f", {calls.replayed:,} replayed" if calls.replayed else ""
        note = f"{calls.live:,} calls, {calls.cached:,} cached{replayed}, {format_usd(calls.usd)}"
        self._note[context.asset_key.to_python_identifier()] = note  # the same name as the step

    def report_estimate(self, context: dg.AssetExecutionContext, estimate: Cost) -> None:
        """Print a line before the first call; nothing if no call will be paid."""
        if estimate.paid_calls:
            self.console.print(f"    {estimate}", style="dim", markup=False)

    def make_logger(self) -> dg.LoggerDefinition:
        """Return the Dagster logger that shows only steps and warnings."""

        @dg.logger(description="Stages on the terminal")
        def terminal(_: dg.InitLoggerContext) -> logging.Logger:
            logger = logging.Logger("podium.terminal", logging.DEBUG)
            logger.addHandler(_Steps(self._show_event))
            return logger

        return terminal

    def _show_event(self, event: dg.DagsterEvent) -> None:
        name = str(event.step_key)
        if event.event_type == dg.DagsterEventType.STEP_START:
            self._began[name] = time.monotonic()
        elif event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            if not check.passed:
                mark, style = ("!", "yellow") if check.severity == dg.AssetCheckSeverity.WARN else ("✗", "red")
                self.console.print(f"  {mark} {check.check_name}: {check.description}", style=style, markup=False)
        elif event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
            if same := event.step_materialization_data.materialization.metadata.get(UNCHANGED):
                self._note[name] = f"unchanged {same.value}"
        elif event.event_type == dg.DagsterEventType.STEP_SUCCESS:
            took = time.monotonic() - self._began.get(name, time.monotonic())
            self._remove_bar()
            note = self._note.pop(name, "")
            self.console.print(f"  [green]✓[/green] {name:<32} [dim]{took:5.1f} s  {note}[/dim]")

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self._bars.remove_task(self._bar)
            self._bar = None


def _copy_stdout() -> TextIO | None:
    """Return a copy of standard output.

    During a run Dagster redirects standard output to a file: it is then no terminal, and lines are lost that have not
    been copied when the run ends.
    """
    try:
        copy = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):  # a stream of a test
        return None
    return os.fdopen(copy, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


class _Steps(logging.Handler):
    def __init__(self, report: Callable[[dg.DagsterEvent], None]) -> None:
        super().__init__()
        self.report = report

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "dagster_event", None)
        if isinstance(event, dg.DagsterEvent) and event.is_step_event:
            self.report(event)
