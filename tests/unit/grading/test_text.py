"""Short text: quantities with units, words, labels, truth values and lists."""

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
    ("$100.00", "$100", "no cents"),
    ("$100.00", "100.00 dollars", "cents and a name"),
    ("$100.00", "USD 100", "a currency's code before it"),
    ("$100.00", "$99.999", "the same when rounded to cents"),
    ("3.14", "3.140", "a zero more"),
    ("3.14", "3.14159", "more places that round to it"),
    ("3.14159", "3.14", "fewer places"),
    ("3.14159", "3.142", "fewer places, rounded up"),
    ("3.2 x 10^5 J", "3.23e5 J", "the same at two figures"),
    ("66.7%", "2/3", "a fraction that rounds to it"),
    ("1/3", "0.333", "a fraction rounded"),
    ("5.2 miles", "8.37 km", "the same when converted"),
    ("1,000.99€", "EUR 1,000.99", "the euro's code"),
    ("1,000.99€", "1,000.99 euros", "the euro's name"),
    ("1,000.99€", "€1000.99", "the sign before it"),
    ("1000.99", "1,000.99€", "a sign that the question names"),
    ("12.50 USD", "USD12.50", "a code without a space"),
    ("£40", "GBP 40", "the pound's code"),
    ("¥100", "JPY 100", "the yen's code"),
    ("3:2", "3 to 2", "a ratio in words"),
    ("3:2", "three to two", "a ratio all in words"),
    ("3 to 2", "3 : 2", "a ratio in figures"),
    ("42", "forty-two", "a compound numeral"),
    ("42", r"\text{The answer is } 42", "words in LaTeX"),
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
    ("$100.00", "$101", "a dollar more"),
    ("$100.00", "$100.01", "a cent more"),
    ("$100.00", "$99", "a dollar less"),
    ("$99.99", "$100", "cents rounded away"),
    ("3.14", "3.15", "the last place"),
    ("3.14", "3.13", "the last place below"),
    ("3.14", "3.146", "places that round to another number"),
    ("3.14", "3.1", "fewer places, beyond one percent"),
    ("3.14159", "3.15", "no rounding of it"),
    ("66.67 billion", "66.8 billion", "no rounding of it, with a scale"),
    ("1/3", "0.334", "no rounding of the fraction"),
    ("5.2 miles", "8.5 km", "another distance when converted"),
    ("1,000.99€", "USD 1,000.99", "another currency's code"),
    ("12.50 USD", "CAD 12.50", "another dollar"),
    ("12.50 USD", "USD 12.60", "ten cents more"),
    ("3:2", "2 to 3", "a ratio turned round"),
    ("3:2", "3 to 20", "another ratio"),
    ("3:2", "3 or 2", "two numbers"),
    ("3 to 2", "3", "half of a ratio"),
    ("42", "forty-three", "another numeral"),
    ("42", r"\text{The answer is not } 42", "a denial in LaTeX"),
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


@pytest.mark.parametrize(
    "behind",
    [
        "Wait, that is wrong. The answer is Lima.",
        "I made a mistake. The correct answer is Lima.",
        "No, the answer is Lima.",
        "Correction: the answer is Lima.",
    ],
)
def test_a_correction_replaces_an_announced_answer(behind: str) -> None:
    assert grade(problem("Lima"), f"Answer: Oslo\n\n{behind}").score == 1.0
    assert grade(problem("Oslo"), f"Answer: Oslo\n\n{behind}").score == 0.0


@pytest.mark.parametrize(
    "behind",
    [
        "If Peru were meant, the answer would be Lima.",
        "Many students think that the answer is Lima.",
        "There is no doubt that the answer is in Norway.",
        "In Peru, the answer is Lima.",
    ],
)
def test_a_remark_does_not_replace_an_announced_answer(behind: str) -> None:
    assert grade(problem("Oslo"), f"Answer: Oslo\n\n{behind}").score == 1.0
    assert grade(problem("Lima"), f"Answer: Oslo\n\n{behind}").score == 0.0


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
def test_words_that_are_not_units(text: str) -> None:
    assert units.parse(text) is None


@given(st.fractions(max_denominator=10**6))
def test_exact_reads_every_fraction(value: Fraction) -> None:
    assert numbers.exact(f"{value.numerator}/{value.denominator}") == value


@pytest.mark.parametrize("text", ["1e999999", "9" * 5000, "1/0", "--1", "1.2.3", ".", "", "1e", r"\frac{1}{0}"])
def test_exact_refuses_what_is_no_number_or_too_large(text: str) -> None:
    assert numbers.exact(text) is None
