"""Short text: quantities with units, words, labels, truth values and lists."""

from __future__ import annotations

import sys
import unicodedata
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.grading import grade, numbers, units
from ops.grading.graders.text import is_same_answer
from ops.grading.spelling import normalize_spelling
from tests.builders import make_problem


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("Lima", "Answer: Oslo\nNo.\nAnswer: Lima"),
        ("Lima", "I looked it up.\n\nLima"),
        # Corrections.
        ("Lima", "Answer: Oslo\n\nWait, that is wrong. The answer is Lima."),
        ("Lima", "Answer: Oslo\n\nI made a mistake. The correct answer is Lima."),
        ("Lima", "Answer: Oslo\n\nNo, the answer is Lima."),
        ("Lima", "Answer: Oslo\n\nCorrection: the answer is Lima."),
        # Remarks.
        ("Oslo", "Answer: Oslo\n\nIf Peru were meant, the answer would be Lima."),
        ("Oslo", "Answer: Oslo\n\nMany students think that the answer is Lima."),
        ("Oslo", "Answer: Oslo\n\nThere is no doubt that the answer is in Norway."),
        ("Oslo", "Answer: Oslo\n\nIn Peru, the answer is Lima."),
    ],
)
def test_which_of_several_statements_counts(answer: str, response: str) -> None:
    assert [gold for gold in ("Lima", "Oslo") if grade(make_problem(answer=gold), response).correct] == [answer]


@pytest.mark.parametrize("gold", ["35 years", "Lima", "x = 5", "$5", "Yes", "a", "July 4, 1776", "1, 2"])
@pytest.mark.parametrize(
    "part", ["x=", "is ", "1 or ", "one ", "because ", "(", "$", "1,", "**", "a, ", "and ", "minus "]
)
def test_a_long_repetition_is_judged_and_no_error(gold: str, part: str) -> None:
    assert grade(make_problem(answer=gold), "Answer: " + part * (3900 // len(part))).score == 0.0


@given(st.integers(1, 10**6), st.sampled_from(["m", "g", "s", "N", "J", "W", "V", "L", "Hz", "Pa"]))
def test_prefixes_convert_exactly(value: int, unit: str) -> None:
    gold = make_problem(answer=f"{value} k{unit}")
    assert grade(gold, f"Answer: {value * 1000} {unit}").score == 1.0
    assert grade(gold, f"Answer: {value} {unit}").score == 0.0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("kilometres per hour", "km/h"),
        ("square metres", "m²"),
        ("cubic centimeters", "cm^3"),
        ("per cent", "%"),
        ("US dollars", "$"),
        ("newtons", "kg m/s^2"),
        ("mins", "minutes"),
    ],
)
def test_spellings_of_one_unit(left: str, right: str) -> None:
    assert units.parse_unit(left) == units.parse_unit(right) is not None


@pytest.mark.parametrize("text", ["", "blorp", "m/blorp", "x" * 200, "1", "^2"])
def test_words_that_are_not_units(text: str) -> None:
    assert units.parse_unit(text) is None


@given(st.fractions(max_denominator=10**6))
def test_exact_reads_every_fraction(value: Fraction) -> None:
    assert numbers.parse_number(f"{value.numerator}/{value.denominator}") == value


@pytest.mark.parametrize("text", ["1e999999", "9" * 5000, "1/0", "--1", "1.2.3", ".", "", "1e", r"\frac{1}{0}"])
def test_exact_refuses_what_is_no_number_or_too_large(text: str) -> None:
    assert numbers.parse_number(text) is None


# ── symbols ──────────────────────────────────────────────────────────────────

SYMBOLS = [
    *(
        char for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in ("Sm", "Sc", "So", "Sk", "Ps", "Pe")
    ),
    *"#%&!^~*/\\@_'\"?⁰¹²³⁴ⁿ₀₁₂₃",
]  # fmt: skip
"""Characters that carry meaning: mathematical and other symbols, currencies, brackets, primes, indices, exponents."""
COMMON = [char for char in SYMBOLS if ord(char) < 0x2300]
TEXTS = (
    "x {} y", "f{}(x)", "A{}B", "¬{}p", "p{} + q", "free {}trade", "Lima{}", "{}Lima", "x {}3", "supply{}demand",
    "a{}b = 7", "12{}.5 m/s", "x{}2", "red{}, green", "2{}:1", "[0, 4{})", "(0, {}4]", "5 {}km",
    "July{} 4, 1776", "World Health {}Organization", "{}true or false", "Na{} ion", "x = {}y",
)  # fmt: skip
"""Texts with a place for a symbol. A sign before a bare number may say what the number says without it: `= 5`, `$5`."""


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_with_a_symbol_is_never_the_text_without_it(text: str) -> None:
    bare = text.format("")
    given = [symbol for symbol in COMMON if symbol != "\\"]  # LaTeX's commands and spaces begin with it
    assert [symbol for symbol in given if is_same_answer(text.format(symbol), bare)] == []
    assert [symbol for symbol in given if is_same_answer(bare, text.format(symbol))] == []


@given(st.sampled_from(TEXTS), st.sampled_from(SYMBOLS), st.sampled_from(SYMBOLS))
def test_two_texts_that_differ_in_one_symbol_are_never_equal(text: str, one: str, other: str) -> None:
    if normalize_spelling(one) != normalize_spelling(other):  # − and - are typed for one another
        assert not is_same_answer(text.format(one), text.format(other))


@given(st.sampled_from(TEXTS), st.sampled_from(SYMBOLS))
def test_a_text_with_any_symbol_is_equal_to_itself(text: str, symbol: str) -> None:
    answer = text.format(symbol)
    assert is_same_answer(answer, answer) == bool(normalize_spelling(answer))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x ≤ 3", "x<=3"), ("x ≤ 3", r"$x \leq 3$"), ("x ≥ 3", "x ⩾ 3"), ("x ≠ 3", "x != 3"), ("p → q", "p -> q"),
        ("p ↔ q", "p <-> q"), ("p ⇒ q", r"p \implies q"), ("±4", "+/- 4"), ("5 − 3", "5 - 3"), ("√5", "sqrt(5)"),
        ("f'(x)", "f′(x)"), ("f''(x)", "f″(x)"), ("x²", "x^2"), ("x²", "x^{2}"), ("x₁", "x_1"), ("H₂O", "H2O"),
        ("SO₄²⁻", "SO4^{2-}"), ("Na⁺", "Na+"), ("½", "1/2"), ("𝑥 + 1", "x + 1"), ("ℝ", r"\mathbb{R}"),
        ("x̄", r"\bar{x}"),
        ("α particle", "alpha particle"), ("Entropy", "“entropy.”"), ("entropy", "**Entropy**"), ("C#", "`C#`"),
        ("the *long* run", "the long run"),
        ('the "invisible hand"', "The invisible hand"),
        ("U.S. dollar", "US dollar"), ("well-known", "well known"), ("supply & demand", "supply and demand"),
        ("LIMA", "Lima"),
        ("mRNA", "mrna"),
        ("Córdoba", "Cordoba"), ("P(A|B)", "P(A | B)"), ("a\u00a0b", "a b"), ("x\u200b + 1", "x + 1"), ("5 µm", "5 μm"),
        ("R&amp;D", "R&D"), ("1,000 units", "1000 units"), ("decrease; decrease", "decrease, decrease"),
        ("red and green", "red, green"), ("x = 2 or x = 3", "x = 2, x = 3"), ("M*", "M*"), ("M*", "**M***"),
    ],
)  # fmt: skip
def test_texts_that_differ_in_their_typing_alone_are_equal(gold: str, answer: str) -> None:
    assert grade(make_problem(answer=gold), f"Answer: {answer}").score == 1.0
    assert is_same_answer(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x²", "x2"), ("x₂", "x2"), ("x̄", "x"), ("ẋ", "x"), ("Aa", "AA"), ("AaBb", "aabb"), ("CO", "Co"),
        ("P(A)", "p(A)"),
        ("péché", "pêche"), ("ℝ", "R"), ("vitamin A", "vitamin"), ("A ∩ B", "B ∩ A"), ("red or green", "red and green"),
        ("x and y", "x or y"), ("5 km", "5× km"), ("$5", "$5/"), ("$5", "$5%"), ("70", "70%"), ("M", "M*"),
        ("price", "price - unit cost"),
        ("x", "x - y"), ("5, 6", "[5, 6)"), ("(A) x ≤ 3", "(A) x ≥ 3"), ("4", "≈4"), ("x = 5", "x ≈ 5"),
        ("1, 2", "1, …, 2"),
        ("\\frac{x}{2}\\%", "\\frac{x}{2}"), ("½", "1 2"), ("№ 5", "5"), ("f(x; y)", "f(x y)"),
    ],
)  # fmt: skip
def test_texts_that_differ_in_meaning_are_not_equal(gold: str, answer: str) -> None:
    assert grade(make_problem(answer=gold), f"Answer: {answer}").score == 0.0
    assert not is_same_answer(answer, gold)
