"""The report in a browser: its first screen on a desk and on a telephone, and as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS, MadeExhibit
from ops.reports.page import render_page as written
from ops.reports.report_head import ReleaseInfo
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
        picture = page.locator("header figure").bounding_box()
        assert picture is not None and (picture["y"] + picture["height"] <= height or width < 640)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_dark_system_gets_a_dark_page_with_pictures_on_a_light_plate(chromium: Any, report: str) -> None:
    def colour_of(page: Any, selector: str) -> str:
        found = f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
        return str(page.evaluate(found))

    with chromium.new_context(color_scheme="dark") as context:
        page = context.new_page()
        page.goto(report)
        assert colour_of(page, "body") == "rgb(20, 25, 31)"
        assert colour_of(page, "figure") == "rgb(255, 255, 255)"


def test_a_printed_report_has_the_folded_tables(chromium: Any, report: str) -> None:
    with chromium.new_context(color_scheme="dark") as context:
        page = context.new_page()
        page.goto(report)
        page.emulate_media(media="print")
        folded = page.locator("details .scroll")
        assert folded.count() > 3
        assert all((folded.nth(place).bounding_box() or {"height": 0})["height"] > 0 for place in range(folded.count()))
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        printed = page.pdf(prefer_css_page_size=True)
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", printed)) <= 1 + len(EXHIBITS)
