"""The end of pytest's output."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import report
from tests.conftest import UNIT, pytest_collection_modifyitems

pytest_plugins = ["pytester"]


def test_skips_are_counted_by_reason() -> None:
    reasons = Counter({"redis-server is not installed": 43, "no vLLM": 14})
    assert report.skipped_lines(reasons) == ["43 skipped: redis-server is not installed", "14 skipped: no vLLM"]


def test_a_failure_shows_the_command_that_repeats_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(UNIT.parents[1]))
    pytester.makepyfile(
        test_two="""
        import pytest

        @pytest.mark.parametrize("words", ["two words"])
        def test_fails(words):
            assert words == "one"

        def test_is_skipped():
            pytest.skip("no chromium")
        """
    )
    result = pytester.runpytest_subprocess("-p", "tests.report", f"--rootdir={pytester.path}")
    printed = result.stdout.str()
    assert "1 skipped: no chromium" in printed
    assert "-m pytest -m '' 'test_two.py::test_fails[two words]'" in printed


def test_the_order_of_files(pytester: pytest.Pytester) -> None:
    class Item:
        def __init__(self, path: Path, **markers: float | None) -> None:
            self.path, self.markers = path, markers

        def get_closest_marker(self, name: str) -> object:
            return SimpleNamespace(args=(self.markers[name],)) if name in self.markers else None

    items = [
        Item(UNIT / "training" / "test_long.py", timeout=600), Item(UNIT / "training" / "test_slow.py", slow=None),
        Item(UNIT / "cache" / "test_quick.py"), Item(UNIT / "test_architecture.py"),
    ]  # fmt: skip
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.path.name for item in items] == [
        "test_architecture.py", "test_quick.py", "test_long.py", "test_slow.py"
    ]  # fmt: skip
