"""Output for a terminal of 80 columns: a plan, and the line of progress."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ops.config import Setup
from ops.core.installation import resources
from ops.core.workspace import Workspace
from ops.planning.machine import this_machine
from ops.planning.plan import make_plan
from ops.planning.requirements import missing
from ops.planning.text import report
from pipelines.commands.shown import wrapped
from pipelines.terminal import Terminal


@pytest.mark.parametrize(("recipe", "gpus"), [("quickstart", "0"), ("paper", "8x80")])
def test_a_plan_fits_80_columns_but_for_the_memory_of_gpus(recipe: str, gpus: str) -> None:
    workspace = Workspace(resources())
    plan = make_plan(Setup.read(workspace, recipe), this_machine(workspace, gpus))
    lines = wrapped(report(plan, missing(plan)), 80).splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("memory, GiB a GPU")), len(lines))
    money = next(at for at, line in enumerate(lines) if line.startswith("calls and USD"))
    assert [line for line in [*lines[:start], *lines[money:]] if len(line) > 80] == []


def test_prose_wraps_beside_its_label_and_a_row_of_a_table_stays_whole() -> None:
    row = "  whole run  3,934,464 to 6,074,176  7,144.11 to 105,190.37  18,330.38"
    text = f"pool          one, two, three\n  - one two three\n{row}"
    assert wrapped(text, 22) == (
        "pool          one,\n              two,\n              three\n  - one two three\n" + row
    )


def test_progress_names_the_phase_and_its_remaining_time_at_80_columns() -> None:
    out = io.StringIO()
    terminal = Terminal(Console(file=out, width=80, force_terminal=True, color_system=None))
    terminal._bars.add_task(
        "workflows tried", total=9600, completed=5240, asset="adaptive_conductor", left="less than a minute left"
    )
    terminal.console.print(terminal._bars.get_renderable())
    line = out.getvalue().splitlines()[0]
    for part in ("adaptive_conductor", "workflows tried", "5240/9600", "less than a minute left"):
        assert part in line, line
