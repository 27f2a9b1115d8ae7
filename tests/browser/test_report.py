"""The report in a browser: its first screen on a desk and on a telephone, and as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS, MadeExhibit
from ops.reports.page import render_page as written
from ops.reports.summary import ReleaseInfo
from tests.unit.reports.conftest import evidence, made

__all__ = ["evidence", "made"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def report(tmp_path: Path, evidence: Evidence, made: list[MadeExhibit]) -> str:
    file = tmp_path / "report.html"
    known = ReleaseInfo("2026-01-02 03:04 UTC", "0123abc", "7", "7", "promoted")
    file.write_text(written(evidence, made, known), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)], ids=["desk", "telephone"])
def test_the_result_is_on_the_first_screen(chromium: Any, report: str, width: int, height: int, tmp_path: Path) -> None:
    with chromium.new_context(viewport={"width": width, "height": height}) as context:
        page = context.new_page()
        page.goto(report)
        last = page.locator("header .said").last.bounding_box()
        assert last is not None and last["y"] + last["height"] <= height
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_each_exhibit_is_printed_on_a_page_of_its_own(chromium: Any, report: str) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(report)
        printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1 + len(EXHIBITS)
