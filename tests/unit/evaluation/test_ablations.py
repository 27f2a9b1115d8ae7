"""What one change to a recipe did: a row a change, paired by question with the recipe as it is."""

from __future__ import annotations

import pytest

from ops.evaluation.ablations import AS_IT_IS, HEAD, Outcome, findings, table
from ops.evaluation.rows import ScoreRow


def row(benchmark: str, problem: int, correct: int, *, valid: bool = True, unscorable: bool = False) -> ScoreRow:
    status = "answered" if valid else "no_workflow"
    return ScoreRow(
        benchmark, str(problem), 0, "math", correct, valid, "", status, 1, ("ada",), 10, 0.002, 0.1, "", "", unscorable,
        pattern="0" if problem % 2 else "1",
    )  # fmt: skip


def rows(seen: str, unseen: str) -> list[ScoreRow]:
    """`1` right, `0` wrong, `-` no workflow."""
    marks = {"math500": seen, "aime25": unseen}
    questions = [(name, at, mark) for name, own in marks.items() for at, mark in enumerate(own)]
    return [row(name, at, int(mark == "1"), valid=mark != "-") for name, at, mark in questions]


BASE = Outcome(rows("1000", "1000"), rows("1100", "1100"), 200.0)
OTHER = Outcome(rows("1000", "1000"), rows("111-", "1000"), 100.0)


def test_a_row_holds_both_policies_and_their_differences() -> None:
    made = table({AS_IT_IS: [BASE], "wider": [OTHER]})
    assert made.head == HEAD and len(set(HEAD)) == len(HEAD)
    as_it_is, wider = (dict(zip(made.head, line, strict=True)) for line in made.rows)
    assert as_it_is["minus as it is, points"] == as_it_is["unseen minus as it is, points"] == ""
    assert (as_it_is["cold start, %"], as_it_is["Conductor, %"], as_it_is["s of GRPO"]) == ("25.0", "50.0", "200")
    assert wider["Conductor, %"] == "75.0" and str(wider["GRPO adds, points"]).startswith("50.0 ± ")
    assert str(wider["minus as it is, points"]).startswith("25.0 ± ")
    assert str(wider["unseen minus as it is, points"]).startswith("-25.0 ± ")
    assert wider["right if valid, %"] == "57.1 %"  # 4 of 7
    assert wider["USD a question"] == "0.002000" and wider["entropy, bits"] == "0.99"


def test_seeds_are_repeats_of_a_question() -> None:
    same = table({AS_IT_IS: [BASE, BASE], "wider": [OTHER, OTHER]}).rows
    assert same == table({AS_IT_IS: [BASE], "wider": [OTHER]}).rows
    mixed = table({AS_IT_IS: [BASE, BASE], "wider": [BASE, OTHER]}).rows[1]
    assert str(mixed[4]).startswith("12.5 ± ") and float(str(mixed[2])) == pytest.approx(62.5)


def test_findings_of_one_change_have_a_picture_and_say_who_was_unreachable() -> None:
    found = findings(BASE, OTHER, "wider")
    assert [line[0] for line in found.summary.rows] == [AS_IT_IS, "wider"]
    assert found.said == "" and found.picture.startswith(b"\x89PNG")
    away = OTHER._replace(conductor=[*OTHER.conductor, row("math500", 9, 0, unscorable=True)])
    assert findings(BASE, away, "wider").said == "1 rows of unreachable workers are left out."
