"""Lines of progress: few, with the phase, and with a remaining time that does not rise within it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from ops.core.progress import FIRST_LINE_S, LINE_INTERVAL_S, RemainingTime, format_duration, show_progress


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> RemainingTime:
    return RemainingTime(clock)


def test_a_slow_period_does_not_raise_the_remaining_time(clock: Clock, pace: RemainingTime) -> None:
    minutes = []
    for done in range(1, 100):
        clock.after(300.0 if 40 <= done < 50 else 6.0)
        left = pace.describe_remaining(done, 100)
        minutes += [int(found[1]) for found in [re.search(r"about (\d+) min", left)] if found]
    assert minutes[0] == 10
    assert minutes == sorted(minutes, reverse=True)
    assert pace.describe_remaining(100, 100) == ""


def test_a_stalled_operation_keeps_its_last_estimate(clock: Clock, pace: RemainingTime) -> None:
    for done in range(11):
        clock.after(6.0)
        pace.describe_remaining(done, 100)
    said = pace.describe_remaining(10, 100)
    clock.after(3600.0)
    assert pace.describe_remaining(10, 100) == said != ""


def test_work_before_the_start_does_not_count_for_the_pace(clock: Clock, pace: RemainingTime) -> None:
    assert pace.describe_remaining(500, 1000) == ""  # a checkpoint
    clock.after(600.0)
    assert pace.describe_remaining(600, 1000) == "about 40 min left"


def test_another_phase_begins_with_a_pace_of_its_own(clock: Clock, pace: RemainingTime) -> None:
    pace.describe_remaining(0, 100)
    clock.after(10.0)
    assert pace.describe_remaining(50, 100) == "less than a minute left"
    assert pace.describe_remaining(0, 500) == ""
    clock.after(60.0)
    assert pace.describe_remaining(50, 500) == "about 9 min left"


def test_a_line_early_in_a_phase_one_a_minute_and_one_at_its_end(clock: Clock, pace: RemainingTime) -> None:
    lines = []
    for second in range(301):
        lines.append((second, pace.next_line(second, 300, "workflows tried")))
        clock.after(1.0)
    spoken = [(second, line) for second, line in lines if line]
    assert [second for second, _ in spoken] == [FIRST_LINE_S, *range(65, 300, int(LINE_INTERVAL_S)), 300]
    assert spoken[1][1] == "65 of 300, about 4 min left: workflows tried"
    assert spoken[-1][1] == "300 of 300: workflows tried"
    assert pace.next_line(300, 300) is None


def test_a_stalled_operation_repeats_itself_seldom(clock: Clock, pace: RemainingTime) -> None:
    lines = []
    for _ in range(900):
        lines.append(pace.next_line(10, 100))
        clock.after(1.0)
    assert len([line for line in lines if line]) == 3


def test_a_short_phase_says_nothing(clock: Clock, pace: RemainingTime) -> None:
    for done in range(101):
        assert pace.next_line(done, 100) is None
        clock.after(0.04)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (2, "less than a minute left"), (61, "about 2 min left"), (1079, "about 18 min left"),
        (5401, "about 2 h left"), (9100, "about 3 h left"),
    ],
)  # fmt: skip
def test_a_duration_is_rounded(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


def test_a_piped_progress_bar_prints_few_lines() -> None:
    out = io.StringIO()
    with show_progress(Console(file=out, width=80)) as report:
        for done in range(1000):
            report(done, 1000, "rows")
    assert out.getvalue() == ""
