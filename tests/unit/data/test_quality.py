"""The Great Expectations checks: a valid set passes, and each planted fault is named with its row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.core.problem import CodeTest, Domain, Problem
from ops.grading import hidden_tests
from ops.quality import MAX_QUESTION_CHARS, Balance, HeldOut, check_problems, gold_response

Make = Callable[..., Problem]
DOMAINS: tuple[Domain, ...] = ("math", "mmlu", "rlpr", "code")
EACH_3 = Balance(DOMAINS, exactly=3)


def sound(make: Make) -> list[Problem]:
    return [make(f"{domain}{i}", f"{domain} {i}", domain=domain) for domain in DOMAINS for i in range(3)]


def test_a_missing_file_of_hidden_tests_is_named(make: Make, tmp_path: Path) -> None:
    hidden_tests.configure(tmp_path)
    folder = hidden_tests.hidden_tests_folder(tmp_path)
    tests = (CodeTest("stdin", "1", "12"), CodeTest("stdin", "", "1", True))
    problem = hidden_tests.set_apart(make("p", grader="code", domain="code", answer="", tests=tests), folder)
    assert check_problems([problem]).failures == []
    hidden_tests.file_of(folder, problem).unlink()
    name = "hidden tests whose file is missing or damaged: math500/p"
    assert check_problems([problem]).failures == [name]


def test_a_sound_set_passes(make: Make) -> None:
    report = check_problems(sound(make), balance=EACH_3, held_out=HeldOut([make("t", "Another?", split="test")]))
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


def test_each_fault_is_named_with_its_row(make: Make) -> None:
    planted = [make(f"planted{n}", **{"question": f"Planted {n}?", **fault}) for n, (fault, _) in enumerate(FAULTS)]
    report = check_problems([*sound(make), *planted], held_out=HeldOut([make("t", "Held out?", split="test")]))
    assert not report.success
    for problem, (_, words) in zip(planted, FAULTS, strict=True):
        named = [failure for failure in report.failures if words in failure.partition(": ")[0]]
        assert any(problem.key in failure.split(": ")[1].split(", ") for failure in named), (words, report.failures)


def test_duplicate_ids_are_named(make: Make) -> None:
    report = check_problems([*sound(make), make("math0", "Again?")])
    assert report.failures == ["id used twice in a benchmark: math500/math0"]


def test_each_domain_must_have_its_exact_share(make: Make) -> None:
    report = check_problems([p for p in sound(make) if p.id != "code2"], balance=EACH_3)
    assert report.failures == ["not 3 problems of domain 'code': found 2"]
    without = check_problems([p for p in sound(make) if p.domain != "math"], balance=EACH_3)
    assert without.failures == ["not 3 problems of domain 'math': found 0"]


def test_nothing_to_check_is_a_failure() -> None:
    assert check_problems([]).failures == ["there is nothing to check"]


def test_many_faulty_rows_are_counted_not_listed(make: Make) -> None:
    report = check_problems([make(str(i), " ") for i in range(30)])
    assert report.failures[0].endswith("and 22 more")


def test_gold_responses_have_the_form_that_workers_are_asked_for(make: Make) -> None:
    assert gold_response(make("1", answer="x^2")) == r"\boxed{x^2}"
    assert gold_response(make("1", grader="choice", answer="B")) == "Answer: B"
    assert gold_response(make("1", grader="text", answer="3 m")) == "Answer: 3 m"
    assert gold_response(make("1", grader="code", answer="print(1)")) == "```python\nprint(1)\n```"
