"""Short text: quantities with their units, words, labels, truth and lists."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.problem import Problem
from ops.grading import grade, numbers, units


def problem(answer: str) -> Problem:
    return Problem("p", "rlpr", "rlpr", "test", "What?", answer, "text")


EQUAL = [
    ("35 years", "35 yrs.", "an abbreviation"),
    ("35 years", "35 years of age", "words after the unit"),
    ("35 years", "He is 35 years old", "a sentence with one number"),
    ("182.5 days", "183 days", "within one percent"),
    ("$1,600", "1600 dollars", "a currency's name"),
    ("$1,600", "$1600.00", "no thousands separator"),
    ("-$84 billion", "-84 billion dollars", "a scale and a sign"),
    ("$752 billion", "$752bn", "a scale abbreviated"),
    ("66.67 billion", "66.7 billion", "within one percent"),
    ("3200", "3,200", "thousands"),
    ("Twelve", "12", "a numeral in words"),
    ("20%", "20 percent", "percent as a word"),
    ("20%", "0.20", "percent as a share"),
    ("5 km", "5 kilometres", "a unit spelled out"),
    ("5 km", "5000 m", "an SI prefix"),
    ("9.81 m/s^2", "9.8 metres per second squared", "a compound unit in words"),
    ("72 km/h", "20 m/s", "the same speed"),
    ("8.314 J/(mol K)", "8.31 J/mol/K", "the same denominator"),
    ("10 N", "10 kg m/s^2", "a derived unit"),
    ("12 cm", r"12\,\text{cm}", "LaTeX"),
    ("27 °C", "27 degrees Celsius", "a temperature in words"),
    ("10 workers", "10", "a counted noun, named by the question"),
    ("40", "40 units", "a noun added to a bare number"),
    ("sunk cost fallacy", "The Sunk-Cost Fallacy", "case, article and hyphen"),
    ("(D) the unemployment rate", "D", "the letter alone"),
    ("(D) the unemployment rate", "unemployment rate", "the text alone"),
    ("b. False", "False", "the text of a lettered truth"),
    ("a", "(A)", "a bare letter"),
    ("A, D", "a and d", "several letters"),
    ("True", "true.", "truth"),
    ("False", "False, because it is not so", "truth with its reason"),
    ("x=591, y=310", "x = 591 and y = 310", "two named values"),
    ("(0.00, 4.00)", "(0, 4)", "a pair"),
]
DIFFERENT = [
    ("35 years", "35", "the unit is missing"),
    ("35 years", "35 months", "another unit"),
    ("35 years", "36 years", "an integer is exact"),
    ("182.5 days", "190 days", "beyond one percent"),
    ("$1,600", "€1600", "another currency"),
    ("$1,600", "1600", "the currency is missing"),
    ("-$84 billion", "$84 billion", "the sign"),
    ("-$84 billion", "-$84 million", "another scale"),
    ("20%", "20", "percent is missing: a hundredfold"),
    ("20%", "2%", "another share"),
    ("5 km", "5 m", "another prefix"),
    ("5 MW", "5 mW", "a symbol's case counts"),
    ("9.81 m/s^2", "9.81 m/s", "another power"),
    ("27 °C", "27 °F", "another scale of temperature"),
    ("10 workers", "10 machines", "another noun"),
    ("(D) the unemployment rate", "(C) the unemployment rate", "another letter"),
    ("(D) the unemployment rate", "the employment rate", "another text"),
    ("(C) 2.20", "(C) 1", "the letter with a wrong number"),
    ("a", "b", "another letter"),
    ("A, D", "A", "a letter is missing"),
    ("True", "False", "the contrary"),
    ("True", "true and false", "both"),
    ("No", "none", "another word"),
    ("sunk cost fallacy", "sunk cost", "a part of it"),
    ("quantity, price", "price, quantity", "the order of a list"),
    ("x=591, y=310", "310, 591", "values exchanged"),
    ("$600", "not $600", "a denial"),
    ("3-p", "3", "an expression is no quantity"),
    ("Paris", "Paris or London", "a hedge"),
    ("5", "", "nothing"),
]


@pytest.mark.parametrize(("gold", "answer", "why"), EQUAL, ids=[why for *_, why in EQUAL])
def test_equivalent_form_scores_one(gold: str, answer: str, why: str) -> None:
    assert grade(problem(gold), f"Some thought.\nAnswer: {answer}").score == 1.0, why


@pytest.mark.parametrize(("gold", "answer", "why"), DIFFERENT, ids=[why for *_, why in DIFFERENT])
def test_near_miss_scores_zero(gold: str, answer: str, why: str) -> None:
    assert grade(problem(gold), f"Some thought.\nAnswer: {answer}").score == 0.0, why


def test_the_last_answer_counts_and_a_bare_last_line_will_do() -> None:
    assert grade(problem("Lima"), "Answer: Oslo\nNo.\nAnswer: Lima").score == 1.0
    assert grade(problem("Lima"), "I looked it up.\n\nLima").score == 1.0


@pytest.mark.parametrize("gold", ["35 years", "Lima", "x = 5", "$5", "Yes", "a", "July 4, 1776", "1, 2"])
@pytest.mark.parametrize(
    "part", ["x=", "is ", "1 or ", "one ", "because ", "(", "$", "1,", "**", "a, ", "and ", "minus "]
)
def test_a_long_repetition_is_judged_and_no_error(gold: str, part: str) -> None:
    assert grade(problem(gold), "Answer: " + part * (3900 // len(part))).score == 0.0


@given(st.integers(1, 10**6), st.sampled_from(["m", "g", "s", "N", "J", "W", "V", "L", "Hz", "Pa"]))
def test_prefixes_convert_exactly(value: int, unit: str) -> None:
    gold = problem(f"{value} k{unit}")
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
def test_what_is_no_unit(text: str) -> None:
    assert units.parse(text) is None


@given(st.fractions(max_denominator=10**6))
def test_exact_reads_every_fraction(value: Fraction) -> None:
    assert numbers.exact(f"{value.numerator}/{value.denominator}") == value


@pytest.mark.parametrize("text", ["1e999999", "9" * 5000, "1/0", "--1", "1.2.3", ".", "", "1e", r"\frac{1}{0}"])
def test_exact_refuses_what_is_no_number_or_too_large(text: str) -> None:
    assert numbers.exact(text) is None
