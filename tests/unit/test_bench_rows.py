"""A benchmark's row is a ratio to a named reference of the same run, and a row beyond its bound is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.row import Row, report


def test_a_bound_on_the_ratio_is_kept_or_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = Row("quick", 2.0, "by hand", 4.0, 1.1, "µs"), Row("late", 6.0, "by hand", 4.0, 1.1, "µs")
    file = tmp_path / "made" / "bench.json"
    assert report([fast], file)
    assert not report([fast, slow], file)
    assert capsys.readouterr().out.count("✗") == 1
    assert [(row["ratio"], row["holds"]) for row in json.loads(file.read_text(encoding="utf-8"))] == [
        (0.5, True),
        (1.5, False),
    ]


@pytest.mark.parametrize(("against", "reference"), [("", 4.0), ("by hand", 0.0), ("by hand", float("nan"))])
def test_a_row_without_a_reference_is_refused(against: str, reference: float) -> None:
    with pytest.raises(ValueError, match="no ratio"):
        Row("alone", 2.0, against, reference, 1.1, "µs")
