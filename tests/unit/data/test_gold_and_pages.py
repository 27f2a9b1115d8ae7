"""Gold answers under their graders, the responses' suite, the report, and what Data Docs show and do not show."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ops.core.problem import CodeTest, Problem
from ops.core.response import NO_RESPONSE
from ops.core.rows import ResponseRow
from ops.core.workspace import Workspace
from ops.grading import unreadable
from ops.quality import HeldOut, check_gold, check_problems, check_responses
from ops.quality.gold import Golds, gold_report, grade_gold
from ops.quality.suite import docs_folder
from tests.builders import make_response

Make = Callable[..., Problem]
CANARY = "canary-4f1d"
"""A word in the question, choices and answer of a problem that must not be shown."""


def secret(make: Make) -> Problem:
    """A confidential problem whose grader does not find its gold answer."""
    return make(
        "s1",
        f"{CANARY}?" + "x" * 20_000,
        benchmark="gpqa_diamond",
        domain="mmlu",
        split="test",
        grader="text",
        answer=f"{CANARY}\nor {CANARY}",
        subject=CANARY,
    )


def code(make: Make, name: str, program: str) -> Problem:
    tests = (CodeTest("call", "f(2)", "4"),)
    return make(name, f"{name}?", benchmark="livecodebench", domain="code", grader="code", answer=program, tests=tests)


# ── gold ─────────────────────────────────────────────────────────────────────


def test_gold_answers_that_score_one_pass_and_what_has_none_is_skipped(make: Make) -> None:
    sound = [make("a", answer=r"\frac{1}{2}"), code(make, "b", "def f(x):\n    return x * x"), code(make, "c", "")]
    report = check_gold(sound)
    assert (report.success, report.checked, report.skipped, report.failures) == (True, 2, 1, [])


def test_a_gold_answer_that_scores_zero_is_named_with_the_graders_reason(make: Make) -> None:
    report = check_gold([make("a"), make("b", answer=r"\frac{1}{2"), code(make, "c", "def f(x):\n    return x")])
    assert not report.success
    assert re.match(r"math500/b: gold answer .* scores 0 \(not equal to ", report.failures[0])
    assert report.failures[1].startswith("livecodebench/c: gold answer ")
    assert "f(2) gave 2" in report.failures[1]


def test_a_summary_is_short_however_much_failed(make: Make) -> None:
    report = check_gold([make(str(i), answer=r"\frac{1}{2") for i in range(30)])
    assert len(report.failures) == 30
    assert report.summary.endswith("; and 22 more")


def test_rows_of_one_id_are_graded_each_for_itself(make: Make) -> None:
    verdicts = grade_gold([make("a", answer=""), make("a", answer="2")])
    assert [verdict.score for verdict in verdicts] == [None, 1.0]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"answer": r"\frac{1}{2"}, "braces"),
        ({"answer": r"\,\!"}, "spacing"),
        ({"grader": "choice", "choices": ("x", "y"), "answer": "C"}, "no letter of AB"),
        ({"grader": "choice", "answer": "A"}, "no choices"),
        ({"grader": "text", "answer": "..."}, "punctuation"),
        ({"grader": "text", "answer": "x" * 5000}, "longer than"),
        ({"grader": "code", "answer": "def f(:", "tests": (CodeTest("call", "f(1)", "1"),)}, "program is no Python"),
        ({"grader": "code", "tests": (CodeTest("call", "f(", "1"),), "answer": ""}, "test 1 is no Python"),
        ({"grader": "code", "answer": "x = 1"}, "no tests"),
        ({"grader": "vibes"}, "no grader"),
    ],
)
def test_a_gold_answer_that_the_grader_cannot_read_is_reported(make: Make, fields: dict[str, Any], why: str) -> None:
    assert why in unreadable(make("a", **fields))


def test_a_readable_gold_answer_is_not_reported(make: Make) -> None:
    readable = [
        make("a", answer=r"\left(3, \frac{\pi}{2}\right)"),
        make("b", grader="choice", choices=("x", "y"), answer="B"),
        make("c", grader="text", answer="-$84 billion"),
        code(make, "d", "def f(x):\n    return x * x"),
        make("e", grader="code", answer="", tests=(CodeTest("stdin", "not python (", ""),)),
    ]
    assert [unreadable(problem) for problem in readable] == [""] * 5


def test_the_report_lists_every_miss_and_groups_what_a_library_would_correct(make: Make) -> None:
    wants = "import absent_one\ndef f(x):\n    return x * x"
    mixed = [make("a"), make("b", answer=r"\frac{1}{2"), code(make, "c", wants), code(make, "d", wants)]
    text = gold_report({"mine": Golds(grade_gold(mixed), malformed=3)}, "bubblewrap")
    assert "| mine | 4 | 3 | 4 | 1 | 25.00 % |" in text
    assert "| `absent_one` | 2 | c, d |" in text
    assert re.search(r"\| b \| `not equal to ", text)
    assert "sandbox `bubblewrap`" in text


# ── responses ────────────────────────────────────────────────────────────────


def answers(problems: list[Problem], worker: str = "w", samples: int = 2) -> list[ResponseRow]:
    return [
        make_response(worker=worker, benchmark=problem.benchmark, problem_id=problem.id, sample=sample)
        for problem in problems
        for sample in range(samples)
    ]


def test_whole_responses_pass_and_an_outage_that_says_so_is_whole(make: Make) -> None:
    problems = [make(str(i)) for i in range(3)]
    rows = answers(problems)
    rows[0] = replace(rows[0], status="unreachable", response=NO_RESPONSE, score=0.0, extracted="")
    report = check_responses(rows, problems, ["w", "not asked yet"], samples=2)
    assert (report.success, report.failures, report.checked) == (True, [], 6)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"worker": "stranger"}, "worker that is not in the pool"),
    ({"problem_id": "other"}, "not on the shortlist"),
    ({"sample": 2}, "sample index"),
    ({"sample": 1}, "answered twice"),
    ({"score": 1.5}, "score outside 0 to 1"),
    ({"score": -0.5}, "score outside 0 to 1"),
    ({"status": "refused"}, "score without an answer"),
    ({"status": "lost"}, "unknown status"),
    ({"prompt_tokens": -1}, "prompt tokens below 0"),
    ({"completion_tokens": -1}, "completion tokens below 0"),
    ({"cost_usd": -0.1}, "cost below 0"),
    ({"latency_s": -0.1}, "latency below 0"),
]


def test_each_fault_of_a_response_is_named(make: Make) -> None:
    problems = [make(str(i)) for i in range(len(CHANGES))]
    rows = answers(problems)
    changed = [
        ResponseRow.from_columns(row.as_columns() | change) for row, (change, _) in zip(rows[::2], CHANGES, strict=True)
    ]
    failures = check_responses([*changed, *rows[1::2]], problems, ["w"], samples=2).failures
    for row, (_, words) in zip(changed, CHANGES, strict=True):
        name = f"{row.worker}: math500/{row.problem_id} #{row.sample}"
        assert any(words in failure and name in failure for failure in failures), (words, name, failures)


def test_a_problem_that_was_not_answered_is_named(make: Make) -> None:
    problems = [make(str(i)) for i in range(3)]
    report = check_responses(answers(problems)[1:], problems, ["w"], samples=2)
    assert report.failures == ["shortlisted, but neither answered nor said to be unreachable: w: math500/0 #0"]


# ── Data Docs ────────────────────────────────────────────────────────────────


def pages(workspace: Workspace) -> str:
    files = [file for file in docs_folder(workspace).rglob("*") if file.suffix in (".html", ".json")]
    stored = (workspace.state / "expectations").rglob("*.json")
    return "\n".join(file.read_text(encoding="utf-8") for file in (*files, *stored))


def test_the_pages_name_the_rows_and_fetch_nothing(make: Make, workspace: Workspace) -> None:
    faulty = [make("a"), make("bad", " "), make("worse", answer=r"\frac{1}{2")]
    report = check_problems(faulty, name="raw_problems", workspace=workspace)
    check_gold(faulty, name="raw_gold", workspace=workspace)
    assert report.page is not None
    page = report.page.read_text(encoding="utf-8")
    assert "math500/bad" in page
    assert "Fault looked for: empty question" in page
    index = (docs_folder(workspace) / "index.html").read_text(encoding="utf-8")
    for link in re.findall(r'href="([^"]+)"', index):
        assert (docs_folder(workspace) / link).is_file(), link
    for file in docs_folder(workspace).rglob("*.html"):
        loaded = re.findall(r"""(?:src|href)\s*=\s*["'](https?:[^"']*)|url\(['"]?(https?:[^)]*)""", file.read_text())
        assert loaded == [], file


def test_the_newest_result_replaces_the_last(make: Make, workspace: Workspace) -> None:
    first = check_problems([make("a", " ")], name="raw_problems", workspace=workspace)
    second = check_problems([make("a")], name="raw_problems", workspace=workspace)
    assert (first.success, second.success) == (False, True)
    assert first.page is not None
    assert second.page is not None
    assert not first.page.exists()
    assert second.page.is_file()
    assert 'class="pass"' in (docs_folder(workspace) / "index.html").read_text(encoding="utf-8")


def test_nothing_of_a_confidential_problem_is_shown_but_its_id(make: Make, workspace: Workspace) -> None:
    hidden = [secret(make), replace(secret(make), grader="choice", choices=(CANARY, "other"), id="s2")]
    reports = [
        check_problems(hidden, held_out=HeldOut(hidden), distinct=True, name="raw_problems", workspace=workspace),
        check_gold(hidden, name="raw_gold", workspace=workspace),
    ]
    text = "\n".join(failure for report in reports for failure in report.failures)
    text += gold_report({"hidden": Golds(grade_gold(hidden))}, "limits")
    assert "gpqa_diamond/s1" in text
    assert CANARY not in text
    assert CANARY not in pages(workspace)
