"""The page of a verdict: texts of persons and workers stay text, and nothing is loaded."""

from __future__ import annotations

import re
from dataclasses import replace

from ops.release.dossier import MEAN, Dossier, Opponent, Pairing
from ops.release.promotion import Check, GateDecision
from ops.reports.verdict import Fate, verdict_page

HOSTILE = '--><script src="http://example.org/x.js">alert(1)</script>'


def page(text: str = "plain", **fate: str) -> str:
    pair = Pairing(MEAN, 10, 0.7, 0.6, -0.1, 0.3, 3, 2, 0.002, 0.001, 1.5, 1.0)
    opponents = (
        Opponent(f"champion, {text}", {"policy": text}, (pair, replace(pair, benchmark=text)), text),
        Opponent("best single worker", {}, ()),
    )
    dossier = Dossier("2", "2026-01-01 00:00:00", {"recipe": text}, {"mmlu": text}, {"x": text}, 0.975, opponents)
    decision = GateDecision(False, (Check(text, 1.0, 2.0, False, text),), analysis=3, against="1")
    return verdict_page("2", decision, dossier, Fate("not promoted; failed checks: cost", **fate))


def test_text_from_others_stays_text() -> None:
    made = page(HOSTILE, override=HOSTILE, rolled_back=HOSTILE)
    assert "<script" not in made and "&lt;script" in made
    shown = re.sub(r"<!--.*?-->", "", made, flags=re.DOTALL)  # matplotlib also writes texts there
    assert "<script" not in shown
    assert re.findall(r'(?:src|href)="(?!#)', shown) == []


def test_it_says_what_became_of_the_version_and_why() -> None:
    made = page()
    assert "<title>Conductor version 2: not promoted</title>" in made
    parts = ("3 against that champion", "97.5 %", "+10.0", "-10.0 … +30.0", "0.002000",
             "No question was scored by both")
    for part in parts:
        assert part in made, part
    assert "promoted by override" in page(override="Ada: why")
    assert "rolled back" in page(rolled_back="Ada: why")
