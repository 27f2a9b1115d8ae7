"""The Great Expectations checks of problems, gold answers and responses, and what Data Docs show and do not show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.core.problem import CodeTest, Domain, Problem
from ops.core.response import NO_RESPONSE
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.grading import find_gold_error, hidden_tests
from ops.quality import (
    MAX_QUESTION_CHARS,
    DomainBalance,
    HeldOutQuestions,
    check_gold,
    check_problems,
    check_responses,
    format_gold_response,
)
from ops.quality.gold import GoldGrades, grade_gold, render_gold_report
from ops.quality.suite import docs_folder
from tests.builders import make_response
from tests.unit.data.inputs import make

DOMAINS: tuple[Domain, ...] = ("math", "mmlu", "rlpr", "code")
EACH_3 = DomainBalance(DOMAINS, exactly=3)
SOUND = [make(f"{domain}{i}", f"{domain} {i}", domain=domain) for domain in DOMAINS for i in range(3)]
UNPAIRED = r"\frac{1}{2"
CANARY = "canary-4f1d"
"""A word in the question, choices and answer of a problem that must not be shown."""


def code(name: str, program: str) -> Problem:
    tests = (CodeTest("call", "f(2)", "4"),)
    return make(name, f"{name}?", benchmark="livecodebench", domain="code", grader="code", answer=program, tests=tests)


# ── problems ─────────────────────────────────────────────────────────────────


def test_a_missing_file_of_hidden_tests_is_named(tmp_path: Path) -> None:
    hidden_tests.configure(tmp_path)
    folder = hidden_tests.hidden_tests_folder(tmp_path)
    tests = (CodeTest("stdin", "1", "12"), CodeTest("stdin", "", "1", True))
    problem = hidden_tests.extract_hidden_tests(make("p", grader="code", domain="code", answer="", tests=tests), folder)
    assert check_problems([problem]).failures == []
    hidden_tests.hidden_tests_file(folder, problem).unlink()
    name = "hidden tests whose file is missing or damaged: math500/p"
    assert check_problems([problem]).failures == [name]


def test_a_sound_set_passes() -> None:
    report = check_problems(SOUND, balance=EACH_3, held_out=HeldOutQuestions([make("t", "Another?", split="test")]))
    assert (report.success, report.failures, report.checked) == (True, [], 12)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"question": "  "}, "empty question"),
    ({"answer": ""}, "no gold answer"),
    ({"question": "x" * (MAX_QUESTION_CHARS + 1)}, "question over"),
    ({"answer": "x" * (MAX_QUESTION_CHARS + 1)}, "gold answer over"),
    ({"domain": "poetry"}, "unknown domain"),
    ({"grader": "vibes"}, "unknown grader"),
    ({"split": "dev"}, "unknown split"),
    ({"grader": "choice", "choices": ("x", "y"), "answer": "C"}, "not among the choices"),
    ({"grader": "choice", "answer": "A"}, "choices without the grader"),
    ({"choices": ("x", "y")}, "choices without the grader"),
    ({"grader": "code"}, "program without tests"),
    ({"question": "HELD  OUT?"}, "repeats an evaluation question"),
]


def test_each_fault_is_named_with_its_row() -> None:
    planted = [make(f"planted{n}", **{"question": f"Planted {n}?", **fault}) for n, (fault, _) in enumerate(FAULTS)]
    report = check_problems([*SOUND, *planted], held_out=HeldOutQuestions([make("t", "Held out?", split="test")]))
    assert not report.success
    for problem, (_, words) in zip(planted, FAULTS, strict=True):
        named = [failure for failure in report.failures if words in failure.partition(": ")[0]]
        assert any(problem.key in failure.split(": ")[1].split(", ") for failure in named), (words, report.failures)


@pytest.mark.parametrize(
    ("problems", "balance", "failure"),
    [
        ([], None, "there is nothing to check"),
        ([*SOUND, make("math0", "Again?")], None, "id used twice in a benchmark: math500/math0"),
        (SOUND[:-1], EACH_3, "not 3 problems of domain 'code': found 2"),
        (SOUND[3:], EACH_3, "not 3 problems of domain 'math': found 0"),
    ],
    ids=["nothing to check", "duplicate id", "too few of a domain", "none of a domain"],
)
def test_a_fault_of_the_whole_set_is_named(
    problems: list[Problem], balance: DomainBalance | None, failure: str
) -> None:
    assert check_problems(problems, balance=balance).failures == [failure]


def test_many_faulty_rows_are_counted_not_listed() -> None:
    report = check_problems([make(str(i), " ") for i in range(30)])
    assert report.failures[0].endswith("and 22 more")


def test_gold_responses_have_the_form_that_workers_are_asked_for() -> None:
    assert format_gold_response(make("1", answer="x^2")) == r"\boxed{x^2}"
    assert format_gold_response(make("1", grader="choice", answer="B")) == "Answer: B"
    assert format_gold_response(make("1", grader="text", answer="3 m")) == "Answer: 3 m"
    assert format_gold_response(make("1", grader="code", answer="print(1)")) == "```python\nprint(1)\n```"


# ── gold answers ─────────────────────────────────────────────────────────────


def test_gold_answers_that_score_one_pass_and_what_has_none_is_skipped() -> None:
    sound = [make("a", answer=r"\frac{1}{2}"), code("b", "def f(x):\n    return x * x"), code("c", "")]
    report = check_gold(sound)
    assert (report.success, report.checked, report.skipped, report.failures) == (True, 2, 1, [])


def test_a_gold_answer_that_scores_zero_is_named_with_the_graders_reason() -> None:
    report = check_gold([make("a"), make("b", answer=UNPAIRED), code("c", "def f(x):\n    return x")])
    assert not report.success
    assert re.match(r"math500/b: gold answer .* scores 0 \(not equal to ", report.failures[0])
    assert report.failures[1].startswith("livecodebench/c: gold answer ")
    assert "f(2) gave 2" in report.failures[1]


def test_a_summary_is_short_however_much_failed() -> None:
    report = check_gold([make(str(i), answer=UNPAIRED) for i in range(30)])
    assert len(report.failures) == 30
    assert report.summary.endswith("; and 22 more")


def test_rows_of_one_id_are_graded_each_for_itself() -> None:
    verdicts = grade_gold([make("a", answer=""), make("a", answer="2")])
    assert [verdict.score for verdict in verdicts] == [None, 1.0]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"answer": UNPAIRED}, "braces"),
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
def test_a_gold_answer_that_the_grader_cannot_read_is_reported(fields: dict[str, Any], why: str) -> None:
    assert why in find_gold_error(make("a", **fields))


def test_a_readable_gold_answer_is_not_reported() -> None:
    readable = [
        make("a", answer=r"\left(3, \frac{\pi}{2}\right)"),
        make("b", grader="choice", choices=("x", "y"), answer="B"),
        make("c", grader="text", answer="-$84 billion"),
        code("d", "def f(x):\n    return x * x"),
        make("e", grader="code", answer="", tests=(CodeTest("stdin", "not python (", ""),)),
    ]
    assert [find_gold_error(problem) for problem in readable] == [""] * 5


def test_the_report_lists_every_miss_and_groups_what_a_library_would_correct() -> None:
    wants = "import absent_one\ndef f(x):\n    return x * x"
    mixed = [make("a"), make("b", answer=UNPAIRED), code("c", wants), code("d", wants)]
    text = render_gold_report({"mine": GoldGrades(grade_gold(mixed), malformed=3)}, "bubblewrap")
    assert "| mine | 4 | 3 | 4 | 1 | 25.00 % |" in text
    assert "| `absent_one` | 2 | c, d |" in text
    assert re.search(r"\| b \| `not equal to ", text)
    assert "sandbox `bubblewrap`" in text


# ── responses ────────────────────────────────────────────────────────────────


def answers(problems: list[Problem]) -> list[ResponseRow]:
    """Two of each problem."""
    return [make_response(benchmark=p.benchmark, problem_id=p.id, sample=n) for p in problems for n in range(2)]


def test_whole_responses_pass_and_an_outage_that_says_so_is_whole() -> None:
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
    ({"status": "cut"}, "unknown status"),
    ({"prompt_tokens": -1}, "prompt tokens below 0"),
    ({"completion_tokens": -1}, "completion tokens below 0"),
    ({"cost_usd": -0.1}, "cost below 0"),
    ({"latency_s": -0.1}, "latency below 0"),
]


def test_each_fault_of_a_response_is_named() -> None:
    problems = [make(str(i)) for i in range(len(CHANGES))]
    rows = answers(problems)
    changed = [
        ResponseRow.from_columns(row.as_columns() | change) for row, (change, _) in zip(rows[::2], CHANGES, strict=True)
    ]
    failures = check_responses([*changed, *rows[1::2]], problems, ["w"], samples=2).failures
    for row, (_, words) in zip(changed, CHANGES, strict=True):
        name = f"{row.worker}: math500/{row.problem_id} #{row.sample}"
        assert any(words in failure and name in failure for failure in failures), (words, name, failures)


def test_a_problem_that_was_not_answered_is_named() -> None:
    problems = [make(str(i)) for i in range(3)]
    report = check_responses(answers(problems)[1:], problems, ["w"], samples=2)
    assert report.failures == ["shortlisted, but neither answered nor said to be unreachable: w: math500/0 #0"]


# ── Data Docs ────────────────────────────────────────────────────────────────


def pages(workspace: Workspace) -> str:
    files = [file for file in docs_folder(workspace).rglob("*") if file.suffix in (".html", ".json")]
    stored = (workspace.state / "expectations").rglob("*.json")
    return "\n".join(file.read_text(encoding="utf-8") for file in (*files, *stored))


def test_the_pages_name_the_rows_and_fetch_nothing(workspace: Workspace) -> None:
    faulty = [make("a"), make("bad", " "), make("worse", answer=UNPAIRED)]
    report = check_problems(faulty, name="raw_problems", workspace=workspace)
    check_gold(faulty, name="raw_gold", workspace=workspace)
    page = report.page.read_text(encoding="utf-8")
    assert "math500/bad" in page
    assert "Fault looked for: empty question" in page
    index = (docs_folder(workspace) / "index.html").read_text(encoding="utf-8")
    for link in re.findall(r'href="([^"]+)"', index):
        assert (docs_folder(workspace) / link).is_file(), link
    for file in docs_folder(workspace).rglob("*.html"):
        loaded = re.findall(r"""(?:src|href)\s*=\s*["'](https?:[^"']*)|url\(['"]?(https?:[^)]*)""", file.read_text())
        assert loaded == [], file


def test_the_newest_result_replaces_the_last(workspace: Workspace) -> None:
    first = check_problems([make("a", " ")], name="raw_problems", workspace=workspace)
    second = check_problems([make("a")], name="raw_problems", workspace=workspace)
    assert (first.success, second.success) == (False, True)
    assert not first.page.exists()
    assert second.page.is_file()
    assert 'class="pass"' in (docs_folder(workspace) / "index.html").read_text(encoding="utf-8")


def test_nothing_of_a_confidential_problem_is_shown_but_its_id(workspace: Workspace) -> None:
    fields = {"benchmark": "gpqa_diamond", "domain": "mmlu", "split": "test", "subject": CANARY}
    secret = make("s1", f"{CANARY}?" + "x" * 20_000, grader="text", answer=f"{CANARY}\nor {CANARY}", **fields)
    hidden = [secret, replace(secret, grader="choice", choices=(CANARY, "other"), id="s2")]
    reports = [
        check_problems(
            hidden, held_out=HeldOutQuestions(hidden), require_distinct=True, name="raw_problems", workspace=workspace
        ),
        check_gold(hidden, name="raw_gold", workspace=workspace),
    ]
    text = "\n".join(failure for report in reports for failure in report.failures)
    text += render_gold_report({"hidden": GoldGrades(grade_gold(hidden))}, "limits")
    assert "gpqa_diamond/s1" in text
    assert CANARY not in text
    assert CANARY not in pages(workspace)
