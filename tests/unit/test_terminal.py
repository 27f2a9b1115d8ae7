"""Output on a terminal, 80 columns wide: a plan, progress, and what a step prints, which is in its file too."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from ops.config import Setup
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.machine import detect_machine
from ops.planning.plan_text import format_plan
from ops.planning.recipe_plan import make_plan
from ops.planning.requirements import find_missing
from ops.workers.client import CallCounts
from pipelines.commands.output import WarningPrinter, wrap_text
from pipelines.terminal import Terminal


@pytest.mark.parametrize(("recipe", "gpus"), [("quickstart", "0"), ("paper", "8x80")])
def test_a_plan_fits_80_columns_and_wide_shows_all_of_it(recipe: str, gpus: str) -> None:
    workspace = Workspace(resources_folder())
    plan = make_plan(Setup.read(workspace, recipe), detect_machine(workspace, gpus))
    lines = wrap_text(format_plan(plan, find_missing(plan), 80), 80).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    left_out = [line.partition(": ")[2].split("; ") for line in lines if line.startswith("  --wide also shows: ")]
    everything = format_plan(plan, find_missing(plan))
    assert all(name in everything for names in left_out for name in names) and "--wide" not in everything
    assert bool(left_out) is (recipe == "paper")


def test_prose_wraps_beside_its_label_and_a_row_of_a_table_stays_whole() -> None:
    row = "  whole run  3,934,464 to 6,074,176  7,144.11 to 105,190.37  18,330.38"
    text = f"pool          one, two, three\n  - one two three\n{row}"
    assert wrap_text(text, 22) == (
        "pool          one,\n              two,\n              three\n  - one two three\n" + row
    )


def test_a_warning_wraps_like_other_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    WarningPrinter().emit(logging.makeLogRecord({"msg": "%s was graded " + "again " * 20, "args": ("mmlu",)}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("mmlu was graded") and len(lines) > 1 and max(map(len, lines)) <= 40


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


def test_the_terminal_shows_steps_calls_and_failed_checks() -> None:
    @dg.asset
    def numbers(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        terminal.begin_progress(context)(1, 2, "half")
        terminal.count_calls(context, CallCounts(live=3, cached=4, usd=0.5))
        return dg.MaterializeResult()

    @dg.asset_check(asset=numbers)
    def even() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description="3 [sic] is odd")

    @dg.asset_check(asset=numbers)
    def small() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description="3 is not small")

    out = io.StringIO()
    terminal = Terminal(Console(file=out, width=100))
    definitions = dg.Definitions(
        assets=[numbers], asset_checks=[even, small], loggers={"terminal": terminal.make_logger()}
    )
    with terminal:
        definitions.resolve_implicit_global_asset_job_def().execute_in_process(run_config={"loggers": {"terminal": {}}})
    shown = out.getvalue()
    assert "✓ numbers" in shown
    assert "3 calls, 4 cached, $0.50" in shown
    assert "✗ even: 3 [sic] is odd" in shown
    assert "! small: 3 is not small" in shown
    assert terminal.total == CallCounts(live=3, cached=4, usd=0.5)


def test_checks_of_an_asset_that_is_left_out_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    @dg.asset(output_required=False)
    def mix() -> Iterator[dg.MaterializeResult]:
        yield from ()

    @dg.asset_check(asset=mix, blocking=True)
    def fit() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset(deps=[mix])
    def trained() -> None: ...

    job = dg.Definitions(assets=[mix, trained], asset_checks=[fit]).resolve_implicit_global_asset_job_def()
    with Terminal(Console(file=io.StringIO())):
        job.execute_in_process()
    assert "Blocking asset check" not in caplog.text


ROOT = Path(__file__).parents[2]
PRINTS = """
import os, sys
import psutil
from pipelines.step_output import StepOutput
output = StepOutput(base_dir=sys.argv[1])
with output.capture_logs(["run", "compute_logs", "outer"]):
    os.system("echo of a child >&2")
    with output.capture_logs(["run", "compute_logs", "inner"]):
        print("early", file=sys.stderr, flush=True)
        sys.stdin.readline()
        print("late", file=sys.stderr, flush=True)
        print("children:", len(psutil.Process().children()), flush=True)
print("after")
"""


@pytest.fixture
def process(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRINTS, str(tmp_path)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_output_is_shown_while_the_step_runs_and_kept(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stderr is not None
    assert [process.stderr.readline(), process.stderr.readline()] == ["of a child\n", "early\n"]  # the step still runs
    printed, rest = process.communicate("\n", timeout=120)
    assert (process.returncode, printed, rest) == (0, "children: 0\nafter\n", "late\n")
    kept = tmp_path / "run" / "compute_logs"
    assert (kept / "inner.err").read_text("utf-8") == "early\nlate\n"
    assert (kept / "outer.err").read_text("utf-8") == "of a child\nearly\nlate\n"
    assert (kept / "inner.complete").is_file() and (kept / "outer.complete").is_file()


def test_a_terminal_that_is_closed_ends_no_step(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdin is not None and process.stderr is not None and process.stdout is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdin.write("\n")
    process.stdin.close()
    printed = process.stdout.read()
    assert (process.wait(120), printed) == (0, "children: 0\nafter\n")
    assert (tmp_path / "run" / "compute_logs" / "inner.err").read_text("utf-8") == "early\nlate\n"
