"""Responses grouped by their answer, without a gold answer."""

from __future__ import annotations

import pytest

from ops.core.problem import CodeTest, GraderName, Problem
from ops.grading.answer_clusters import answer_clusters


def problem(grader: GraderName, answer: str = "?", **fields: tuple[object, ...]) -> Problem:
    return Problem("1", "b", "d", "test", "What is it?", answer, grader, **fields)  # type: ignore[arg-type]


FIRST = "Here:\n```python\ndef f(x):\n    return x + 1\n```"
SAME = "```python\ndef f(x):  # one more\n\n    return (x+1)\n```"
OTHER = "```python\ndef f(x):\n    return 1 + x\n```"
BROKEN = "```python\ndef f(x:\n    return x\n```"


@pytest.mark.parametrize(
    ("asked", "responses", "groups"),
    [
        (problem("math"), ["\\boxed{0.5}", "\\boxed{3}", "\\boxed{\\frac12}", None, "", "1/2"], [[0, 2, 5], [1]]),
        (problem("choice", choices=("red", "blue")), ["Answer: B", "(A)", "blue", "A or B?"], [[0, 2], [1]]),
        (problem("text"), ["Answer: 3 km", "Answer: 3000 m", "Answer: Oslo", "the answer is oslo."], [[0, 1], [2, 3]]),
        (
            problem("code", tests=(CodeTest("call", "f(1)", "2"),)),
            [OTHER, FIRST, SAME, BROKEN, "none", BROKEN],
            [[0], [1, 2], [3, 5]],
        ),
    ],
)
def test_equal_answers_form_one_cluster(asked: Problem, responses: list[str | None], groups: list[list[int]]) -> None:
    assert answer_clusters(asked, responses) == groups


def test_equality_is_asked_from_both_sides() -> None:
    # A rounded number equals an exact gold answer, and not the reverse.
    for said in (["\\boxed{\\frac13}", "\\boxed{0.333333}"], ["\\boxed{0.333333}", "\\boxed{\\frac13}"]):
        assert len(answer_clusters(problem("math"), said)) == 1


@pytest.mark.parametrize("gold", ["7", "7\n8", ""])
def test_the_gold_answer_is_not_used(gold: str) -> None:
    said = ["Answer: 7\n8", "Answer: 7", "Answer: 7\n9"]
    assert answer_clusters(problem("text", gold), said) == answer_clusters(problem("text"), said)
