"""Multiple choice: the letter that the response settles on, and none where it hedges."""

from __future__ import annotations

import pytest

from ops.core.problem import Problem
from ops.grading import grade


def problem(answer: str, choices: tuple[str, ...] = ("Paris", "London", "a cat", "New York")) -> Problem:
    return Problem("p", "mmlu", "mmlu", "test", "Which?", answer, "choice", choices)


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("C", "Answer: C"),
        ("C", "**Answer: C**"),
        ("C", "**Answer:** (C)"),
        ("C", "answer: c"),
        ("C", "The answer is (C)."),
        ("C", "The correct answer is C because A is wrong."),
        ("C", r"\boxed{C}"),
        ("C", r"$\boxed{\text{C}}$"),
        ("C", "C"),
        ("C", "(c)"),
        ("C", "C) a cat"),
        ("C", "a cat"),
        ("C", "Answer: a cat"),
        ("A", "Answer: Paris"),
        ("A", "Answer: A (Paris)"),
        ("D", "Answer:\n\nD"),
        ("D", "Considering A and B, I choose D"),
        ("D", "A good reason to pick D"),
        ("A", "So it is option A"),
        ("B", 'Finish with "Answer: X"\nAnswer: B'),
        ("B", "Answer: B, since A and C fail"),
        ("C", "Answer: B\nBut wait.\nAnswer: C"),
        ("C", "A: no. B: no. C: yes. D: no. So C."),
        ("B", "It is London."),
    ],
)
def test_the_gold_letter_is_read(gold: str, response: str) -> None:
    assert grade(problem(gold), response).score == 1.0


@pytest.mark.parametrize(
    ("gold", "response", "why"),
    [
        ("B", "Answer: A", "another letter"),
        ("A", "Answer: A or B", "a hedge"),
        ("A", "Answer: A and C", "a hedge"),
        ("A", "Answer: A/B", "a hedge"),
        ("A", "Answer: Apple", "a word that begins with the letter"),
        ("E", "Answer: E", "a letter that is not offered"),
        ("B", "Answer: X", "the form repeated, not filled in"),
        ("A", "A cat sat there", "an article"),
        ("D", "the answer is not D", "a denial"),
        ("B", "Answer: B\nBut wait, Answer: C", "a change of mind"),
        ("B", "", "nothing"),
    ],
)
def test_anything_else_scores_zero(gold: str, response: str, why: str) -> None:
    assert grade(problem(gold), response).score == 0.0, why


def test_choices_that_differ_by_a_sign_are_told_apart() -> None:
    signed = ("−23", "23", "0", "1")
    assert grade(problem("A", signed), "Answer: −23").score == 1.0
    assert grade(problem("B", signed), "Answer: −23").score == 0.0


def test_a_letter_means_the_option_even_where_a_choice_is_a_letter() -> None:
    letters = ("B", "A", "D", "C")
    assert grade(problem("A", letters), "Answer: A").score == 1.0
    assert grade(problem("B", letters), "Answer: A").score == 0.0
