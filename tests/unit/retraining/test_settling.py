"""Debouncing, on a simulated clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.retraining.sensor import Settling

SETTLE_S = 60.0


def test_ten_edits_in_a_minute_are_one_change() -> None:
    seen, acted = Settling(), []
    for second in range(0, 200, 6):
        seen = seen.after(f"edit {min(second // 6, 10)}", second)
        if not seen.waits(SETTLE_S, second):
            acted.append(second)
    assert acted[0] == 120  # the last edit is seen at 60
    assert {seen.read} == {"edit 10"}


def test_an_undone_edit_restarts_the_wait() -> None:
    seen = Settling().after("a", 0).after("b", 50).after("a", 55)
    assert seen.waits(SETTLE_S, 70) == 45


def test_a_clock_that_goes_back_restarts_the_wait() -> None:
    seen = Settling().after("a", 1000).after("a", 10)
    assert seen.waits(SETTLE_S, 10) == SETTLE_S
    assert seen.after("a", 70).waits(SETTLE_S, 70) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 40)), min_size=1))
def test_it_settles_only_after_reading_the_same_for_so_long(reads: list[tuple[str, float]]) -> None:
    seen, now, since = Settling(), 0.0, 0.0
    before = ""
    for read, pause in reads:
        now += pause
        since = since if read == before else now
        before, seen = read, seen.after(read, now)
        assert (seen.waits(SETTLE_S, now) == 0) == (now - since >= SETTLE_S)
