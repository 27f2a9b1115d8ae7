"""Mathematics: every spelling of the gold answer scores 1, every near miss scores 0."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.problem import Problem
from ops.grading import grade


def problem(answer: str) -> Problem:
    return Problem("p", "math500", "math", "test", "How much?", answer, "math")


EQUAL = [
    (r"\frac{1}{2}", "0.5", "a terminating fraction as a decimal"),
    (r"\frac{1}{2}", "1/2", "a plain fraction"),
    (r"\frac{1}{3}", "0.333333", "six correct figures of an endless decimal"),
    (r"\frac43", r"\dfrac{4}{3}", "TeX's short fraction"),
    (r"1\frac{4}{5}", r"\frac95", "a mixed number"),
    (r"1\frac{4}{5}", "1 4/5", "a plain mixed number"),
    (r"11\sqrt2", r"11 \sqrt{2}", "TeX's short root"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}", "the denominator not rationalised"),
    (r"\frac{\sqrt{3}}{3}", "sqrt(3)/3", "plain text for a root"),
    (r"288 \pi", "288*pi", "plain text for pi"),
    (r"10,\!080", "10080", "thousands with a thin negative space"),
    ("58,500", "58500", "thousands"),
    (r"11,\! 111,\! 111,\! 100", "11,111,111,100", "thousands, several"),
    (r"\$32,\!348", "32348", "money"),
    (r"\$18.90", r"\$18.9", "a trailing zero"),
    (r"15\mbox{ cm}^2", "15", "the question names the unit"),
    (r"15\mbox{ cm}^2", r"15 \text{ square centimeters}", "a unit spelled out"),
    (r"5.4 \text{ cents}", "5.4", "the unit left out"),
    (r"90^\circ", "90", "degrees left out"),
    (r"90^\circ", "90 degrees", "degrees as a word"),
    (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}^\circ", "degrees as a sign"),
    (r"20\%", "20", "percent left out"),
    (r"20\%", "0.2", "percent as a share"),
    ("0.15", r"15\%", "a share as percent"),
    (r"\text{Evelyn}", "Evelyn", "a word without its wrapping"),
    (r"\text{(C)}", "C", "a letter without its brackets"),
    ("52_8", "52_{8}", "a base in braces"),
    ("52_8", "52", "the question names the base"),
    ("x=5", "5", "the name left out"),
    ("5", "x = 5", "a name added"),
    ("y = 2x + 3", "y=3+2x", "terms in another order"),
    ("5x - 7y + 11z + 4 = 0", "-5x+7y-11z-4=0", "an equation times -1"),
    ("1,-2", "-2, 1", "solutions in another order"),
    ("1,-2", "x=1 or x=-2", "solutions with their name"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}", "plus-minus written out"),
    (r"\{1\pm\sqrt{5},-2\}", r"\{-2, 1-\sqrt5, 1+\sqrt5\}", "a set in another order"),
    (r"\left( 3, \frac{\pi}{2} \right)", "(3, pi/2)", "a tuple in plain text"),
    (r"x \in [-2,7]", r"-2 \le x \le 7", "an interval as inequalities"),
    (r"(2,\infty)", "x > 2", "a ray as an inequality"),
    (r"(-\infty, 2) \cup (3, \infty)", r"(3,\infty)\cup(-\infty,2)", "a union in another order"),
    (
        r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}",
        r"\begin{bmatrix} -\frac13 \\ \frac23 \end{bmatrix}",
        "another matrix bracket",
    ),
    ("(6,31,-1)", r"\langle 6, 31, -1 \rangle", "a vector's brackets"),
    ("6 - 5i", "-5i+6", "a complex number in another order"),
    ("(a+5)(b+2)", "ab+2a+5b+10", "expanded"),
    (r"\cot x", r"\frac{\cos x}{\sin x}", "a trigonometric identity"),
    ("1000000", "10^6", "a power"),
    ("350000", r"3.5 \times 10^{5}", "scientific notation"),
]

DIFFERENT = [
    (r"\frac{1}{3}", "0.33", "too few figures"),
    (r"\frac{1}{3}", "0.333334", "the last figure is wrong"),
    (".0000672", ".0000673", "small numbers differ in their last figure"),
    (r"\frac{1}{2}", r"-\frac{1}{2}", "the sign"),
    (r"1\frac{4}{5}", "14/5", "a mixed number run together"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(\frac{\pi}{2}, 3)", "a tuple's order counts"),
    ("(3,4]", "[3,4]", "an interval's ends count"),
    ("(1,2)", r"\{1,2\}", "a set is no tuple"),
    ("1,-2", "1", "a solution is missing"),
    ("1,-2", "1, 2", "a solution's sign"),
    ("1,-2", "1,-2,3", "a solution too many"),
    ("2", "2, 3", "a second answer added"),
    (r"x \in [-2,7]", "-2 < x < 7", "strict instead of weak"),
    (r"(-\infty, 2) \cup (3, \infty)", r"(-\infty,3)", "another set"),
    (r"15\mbox{ cm}^2", r"15 \text{ m}^2", "another unit"),
    (r"15\mbox{ cm}^2", r"15 \text{ cm}^3", "another power of the unit"),
    (r"90^\circ", r"91^\circ", "another angle"),
    ("20", "0.2", "a share is not its percent when none is meant"),
    (r"\text{even}", "neve", "the same letters in another order"),
    (r"\text{even}", "odd", "another word"),
    (r"\text{(C)}", "D", "another letter"),
    ("52_8", "52_9", "another base"),
    ("y = 2x + 3", "2x-3", "another line"),
    ("5x - 7y + 11z + 4 = 0", "5x-7y+11z-4=0", "another plane"),
    (
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
        "a row is no column",
    ),
    ("6 - 5i", "6+5i", "the conjugate"),
    ("(a+5)(b+2)", "ab+2a+5b+11", "off by one"),
    (r"288 \pi", "288", "pi is missing"),
    (r"2\sqrt{113}", "21.26", "an exact answer told roughly"),
    ("p - q", "q-p", "the difference turned round"),
    ("2k", "2", "a factor is missing"),
    ("3R^2", "3r^3", "another power"),
    ("12", "2 3", "two numbers"),
    ("4", "9999999999!", "a number that is too large to compute"),
    ("4", "9^{9^{9^{9}}}", "a tower of powers"),
    ("7", "", "nothing"),
]


@pytest.mark.parametrize(("gold", "answer", "why"), EQUAL, ids=[why for *_, why in EQUAL])
def test_equivalent_form_scores_one(gold: str, answer: str, why: str) -> None:
    assert grade(problem(gold), rf"So we find \boxed{{{answer}}}.").score == 1.0, why


@pytest.mark.parametrize(("gold", "answer", "why"), DIFFERENT, ids=[why for *_, why in DIFFERENT])
def test_near_miss_scores_zero(gold: str, answer: str, why: str) -> None:
    assert grade(problem(gold), rf"So we find \boxed{{{answer}}}.").score == 0.0, why


@pytest.mark.parametrize(
    ("response", "extracted"),
    [
        (r"First \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{4} and a box cut off \boxed{5", "4"),
        (r"\boxed 7", "7"),
        ("Answer: 12\n", "12"),
        ("**Final answer:** 12", "12"),
        ("The answer is $x = 3$", "x = 3"),
        ("We get $a = 2$ and so $b = 7$.", "b = 7"),
        ("That makes 41 and then 42 of them", "42"),
        ("3/4", "3/4"),
        ("", ""),
    ],
)
def test_where_the_answer_is_found(response: str, extracted: str) -> None:
    assert grade(problem("0.001"), response).extracted == extracted


def test_the_last_box_counts() -> None:
    assert grade(problem("3"), r"\boxed{3} … no: \boxed{4}").score == 0.0
    assert grade(problem("4"), r"\boxed{3} … no: \boxed{4}").score == 1.0


numbers = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False, allow_infinity=False).map(str),
    st.tuples(st.integers(-99, 99), st.integers(2, 99)).map(lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"),
)


@given(st.lists(numbers, min_size=1, max_size=4), st.sampled_from(["{}", "({})", r"\{{{}\}}", "[{}]"]))
def test_gold_in_a_box_scores_one(parts: list[str], form: str) -> None:
    gold = form.format(", ".join(parts))
    assert grade(problem(gold), rf"Hence $\boxed{{{gold}}}$.").score == 1.0


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
@settings(max_examples=200)
def test_two_integers_are_equal_only_when_they_are(gold: int, answer: int) -> None:
    assert grade(problem(str(gold)), rf"\boxed{{{answer:,}}}").correct == (gold == answer)


@pytest.mark.parametrize("response", ["EXPR: (((40)*3)-16)-12", "The plan is: 40*3 - 16 - 12", "It is (104 - 6) - 6."])
def test_an_unfinished_computation_is_no_closing_value(response: str) -> None:
    assert grade(problem("92"), response).score == 0.0
    assert grade(problem("92"), f"{response}\nAnswer: 92").score == 1.0


def test_an_interval_among_excluded_points_is_judged_and_no_error() -> None:
    gold = Problem("p", "math500", "math", "test", "?", r"(-\infty,3) \cup (3,\infty)", "math")
    answer = r"a \ne 3, or a \in (-\infty,4) \cup (4,\infty)."
    assert grade(gold, f"\\boxed{{{answer}}}").score == 0.0
