"""Short text: quantities with units, words, labels, truth values and lists."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.grading import grade, numbers, units
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
    assert units.parse(left) == units.parse(right) is not None


@pytest.mark.parametrize("text", ["", "blorp", "m/blorp", "x" * 200, "1", "^2"])
def test_words_that_are_not_units(text: str) -> None:
    assert units.parse(text) is None


@given(st.fractions(max_denominator=10**6))
def test_exact_reads_every_fraction(value: Fraction) -> None:
    assert numbers.exact(f"{value.numerator}/{value.denominator}") == value


@pytest.mark.parametrize("text", ["1e999999", "9" * 5000, "1/0", "--1", "1.2.3", ".", "", "1e", r"\frac{1}{0}"])
def test_exact_refuses_what_is_no_number_or_too_large(text: str) -> None:
    assert numbers.exact(text) is None
