"""Multiple choice: the letter that the response settles on, and none if it hedges."""

from __future__ import annotations

import pytest

from ops.core.problem import Problem
from ops.grading import grade


def problem(answer: str, choices: tuple[str, ...] = ("Paris", "London", "a cat", "New York")) -> Problem:
    return Problem("p", "mmlu", "mmlu", "test", "Which?", answer, "choice", choices)


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("C", "**Answer:** (C)"),
        ("C", "answer: c"),
        ("C", "The correct answer is C because A is wrong."),
        ("C", r"$\boxed{\text{C}}$"),
        ("C", "(c)"),
        ("C", "C) a cat"),
        ("C", "a cat"),
        ("C", "Answer: a cat"),
        ("A", "Answer: Paris"),
        ("A", "Answer: A (Paris)"),
        ("D", "Answer:\n\nD"),
        ("D", "A good reason to pick D"),
        ("A", "So it is option A"),
        ("B", 'Finish with "Answer: X"\nAnswer: B'),
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
        ("A", "Answer: Apple", "a word that begins with the letter"),
        ("E", "Answer: E", "a letter that is not offered"),
        ("B", "Answer: X", "the form repeated, not filled in"),
        ("A", "A cat sat there", "an article"),
        ("B", "Answer: B\nBut wait, Answer: C", "a change of mind"),
        ("B", "", "nothing"),
    ],
)
def test_anything_else_scores_zero(gold: str, response: str, why: str) -> None:
    assert grade(problem(gold), response).score == 0.0, why


def test_choices_that_differ_by_a_sign_are_distinguished() -> None:
    signed = ("−23", "23", "0", "1")
    assert grade(problem("A", signed), "Answer: −23").score == 1.0
    assert grade(problem("B", signed), "Answer: −23").score == 0.0


def test_a_letter_means_the_option_even_where_a_choice_is_a_letter() -> None:
    letters = ("B", "A", "D", "C")
    assert grade(problem("A", letters), "Answer: A").score == 1.0
    assert grade(problem("B", letters), "Answer: A").score == 0.0


DENYING = (
    ("Wrong, Wrong", "Wrong, Not wrong", "Not wrong, Wrong", "Not wrong, Not wrong"),
    ("Cannot be determined", "not less than 5", "false", "Invalid. Counterexample when A and C are true"),
    ("incorrect", "both A and C", "neither A nor B", "C. S. Lewis, not B. F. Skinner"),
    ("is tempting", "fails to account for C", "does not depend on A.", "No, because (A) holds"),
)
"""Choices whose texts deny something or name other letters."""
QUOTED = (
    "Answer: ({L}) {T}",
    "Answer: {L}) {T}",
    "Answer: {L}. {T}",
    "Answer: {L}: {T}",
    "Answer: {L} - {T}",
    "Answer: {L} ({T})",
    "Answer: {T} ({L})",
    "**Answer: {L}. {T}**",
    "The answer is {L}. {T}",
    "The answer is {L}, {T}.",
    "The correct answer is **({L}) {T}**.",
    "So the correct option is {L}: {T}",
    "Therefore, {L} ({T}) is correct.",
    "{L}) {T}",
    "We think.\n\n{L}. {T}",
    "<answer>{L}. {T}</answer>",
    '{{"answer": "{L}. {T}"}}',
    "\\boxed{{\\text{{({L}) {T}}}}}",
    "\\boxed{{\\textbf{{({L})}}\\ \\text{{{T}}}}}",
)


@pytest.mark.parametrize("form", QUOTED)
@pytest.mark.parametrize("choices", DENYING, ids=[choices[0] for choices in DENYING])
def test_the_text_of_a_choice_denies_no_letter(choices: tuple[str, ...], form: str) -> None:
    for letter, text in zip("ABCD", choices, strict=True):
        response = form.format(L=letter, T=text)
        read = [gold for gold in "ABCD" if grade(problem(gold, choices), response).correct]
        assert read == [letter], response


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("C", "Answer: (B) London is wrong. C is right."),
        ("C", "Answer: not (A) Paris but (C) a cat"),
        ("D", "(B) London is not correct; (D) New York is correct."),
        ("B", "A. Paris is tempting, but B. London is correct."),
        ("A", "Answer: (A) Paris, since (B) London cannot be right."),
    ],
)
def test_a_denial_behind_a_quoted_choice_is_one(gold: str, response: str) -> None:
    read = [letter for letter in "ABCD" if grade(problem(letter), response).correct]
    assert read == [gold]


@pytest.mark.parametrize(
    "response",
    [
        "Answer: (B) London is wrong.",
        "Answer: not (B) London",
        "(B) London is not the answer.",
        "Answer: B) London or C) a cat",
        "Answer: A) Paris, B) London",
        "Answer: A) Paris B) London C) a cat D) New York",
        "The answer is neither (A) Paris nor (B) London.",
    ],
)
def test_a_denial_or_a_list_of_quoted_choices_is_no_answer(response: str) -> None:
    assert [letter for letter in "ABCD" if grade(problem(letter), response).correct] == []


@pytest.mark.parametrize(
    "behind",
    [
        "If it were in England, the answer would be B.",
        "There is no river in a cat. Option B would be correct for the Thames.",
        "A common mistake is to say that the answer is B.",
        "No other city is meant; B would be right for England.",
        "A common mistake is to choose B.",
    ],
)
def test_a_remark_does_not_replace_an_announced_letter(behind: str) -> None:
    assert grade(problem("A"), f"Answer: A\n\n{behind}").score == 1.0
    assert grade(problem("B"), f"Answer: A\n\n{behind}").score == 0.0
