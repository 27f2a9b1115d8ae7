"""Mathematics: where an answer is found, and equality, which no infinite, undefined or special point decides."""

from __future__ import annotations

import os
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.grading import grade
from tests.builders import make_problem
from tests.unit.grading.unequal import equal, unequal

PAIRS, MANY_PAIRS = 400, int(os.environ.get("PODIUM_PAIRS", 5_000))


def accepted(gold: str, answer: str) -> bool:
    return grade(make_problem(grader="math", answer=gold), rf"So it is $\boxed{{{answer}}}$.").correct


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
    assert grade(make_problem(grader="math", answer="0.001"), response).extracted == extracted


numbers = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False, allow_infinity=False).map(str),
    st.tuples(st.integers(-99, 99), st.integers(2, 99)).map(lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"),
)


@given(st.lists(numbers, min_size=1, max_size=4), st.sampled_from(["{}", "({})", r"\{{{}\}}", "[{}]"]))
def test_gold_in_a_box_scores_one(parts: list[str], form: str) -> None:
    gold = form.format(", ".join(parts))
    assert accepted(gold, gold)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
@settings(max_examples=200)
def test_two_integers_are_equal_only_when_they_are(gold: int, answer: int) -> None:
    assert accepted(str(gold), f"{answer:,}") == (gold == answer)


DIFFERENT = [
    *((gold, answer, "an overflow") for gold in ("4", r"\frac{3}{4}", r"2\sqrt{5}")
      for answer in ("200!", "10^{400}", "e^{999}", r"\Gamma(999)", "170!", "171!", "(99^{999})^{999}")),
    ("200!", "201!", "two overflows"),
    ("10^{400}", "10^{401}", "two large powers"),
    ("10^{400}", "10^{400}+1", "two large numbers that differ by one"),
    ("e^{999}", "e^{998}", "two large exponentials"),
    ("4", r"\infty", "infinity"),
    ("4", "0/0", "nothing"),
    ("0", r"\frac{0}{0}", "nothing beside zero"),
    (r"\infty", "200!", "a large number is finite"),
    (r"\infty", r"-\infty", "the sign of infinity"),
    (r"\frac{x}{0}", r"\frac{y}{0}", "undefined everywhere"),
    (r"\frac{1}{x-x}", r"\frac{2}{x-x}", "a denominator that is zero everywhere"),
    ("x", r"x+0\cdot\infty", "nothing beside an unknown"),
    ("1", "1^{\\infty}", "a power that is undefined"),
    ("0", r"\frac{1}{200!}", "a small number is not zero"),
    ("1", r"\frac{10^{400}+1}{10^{400}}", "a small number beside one"),
    ("1", r"\tanh(999)", "867 figures in common"),
    ("x", r"\max(x,-1000000)", "different for large negative numbers alone"),
    ("|x+10^9|", "x+10^9", "different for large negative numbers, an absolute value"),
    ("AB=CD", "AC=BD", "other segments"),
    ("a+d", "b+c", "an arithmetic progression"),
    (r"\frac{a+c}{2}", "b", "the mean of an arithmetic progression"),
    ("a^2+b^2", "2ab+1", "neighbours of a progression"),
    ("b-a", "1", "the step of a progression"),
    ("b-a", "c-b", "two steps of a progression"),
    ("x+z", "2y", "the middle of a progression"),
    ("ad", "bc", "a geometric progression"),
    ("b^2", "ac", "the mean of a geometric progression"),
    ("a+b+c", "abc", "equal at 1, 2 and 3"),
    (r"\lceil x \rceil", r"\lfloor x \rfloor + 1", "different at integers alone"),
    ("|x|", "x", "different for negative numbers"),
    (r"\sqrt{x^2}", "x", "different for negative numbers, a root"),
    ("|x+y|", "|x|+|y|", "different for unlike signs"),
    ("262537412640768744", r"e^{\pi\sqrt{163}}", "thirty digits in common"),
    (r"\sqrt{11^{1002}}", r"\sqrt{11^{1002}-7}", "a small term beside a large one"),
    ("x+10^{60}", "x+10^{60}+1", "a small term beside a large one and an unknown"),
    ("4^{1002}", "2^{2003}", "another power of the same prime"),
    ("2^{2004}-1", "4^{1002}+1", "a term beside a large power"),
    ("4^{1000000}", "2^{2000001}", "a power too large to write down"),
    ("A+a", "2a", "a capital beside its small letter"),
    ("x'+1", "x+1", "a prime"),
    ("f'(x)", "f(x)", "a derivative"),
    ("f(x)+1", "1+f(y)", "a function of another unknown"),
    ("0", r"\frac{dy}{dx}", "a derivative that is not worked out"),
    ("5", "2 3", "two numbers"),
    ("13", r"1+2+\ldots+10", "terms that are left out"),
    ("1", r"\gcd(a,b)", "a common divisor of unknowns"),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n-1} k", "a sum with a term fewer"),
    ("2i", "(1-i)^2", "the sign of a square of a complex number"),
    (r"\frac12+\frac{\sqrt3}{2}i", r"e^{-i\pi/3}", "the conjugate of an exponential"),
    ("x^2+1=0", "x^2+2=0", "two equations without a real solution"),
    ("x+y<3", "-x-y<-3", "an inequality times -1 without its sign turned"),
    ("x+y<3", r"x+y\le 3", "strict instead of weak"),
    ("x^2-x=0", r"\frac{x^2-x}{x}=0", "a solution that divides by zero"),
    ("xy=2", r"y=\frac{1}{x}", "another constant"),
    (r"\frac{\pi}{3}", "1.0472", "too few figures of an endless decimal"),
]  # fmt: skip

SAME = [
    ("10^{400}", "100^{200}", "two spellings of a large power"),
    ("4^{1002}", "2^{2004}", "a power of four as one of two"),
    ("2^{2004}", r"2 \cdot 2^{2003}", "a factor beside a large power"),
    ("2^{2004}-1", "4^{1002}-1", "a term beside a large power"),
    ("4^{1000000}", "2^{2000000}", "a power too large to write down"),
    (r"\frac{3^{999999999}}{3^{999999998}}", "3", "a quotient of powers too large to write down"),
    (r"6^{5000}", r"2^{5000} \cdot 3^{5000}", "a power of a product"),
    ("e^{999}", r"e \cdot e^{998}", "a large exponential as a product"),
    ("200!", r"200 \cdot 199!", "a large factorial as a product"),
    ("a+d", "d+a", "terms turned round"),
    ("(a+b)(a-b)", "a^2-b^2", "expanded"),
    (r"\sec^2 x", r"1+\tan^2 x", "an identity"),
    ("x!", r"\Gamma(x+1)", "a factorial as a gamma function"),
    ("|x|", r"\sqrt{x^2}", "a root of a square"),
    ("|x|+|y|", "|y|+|x|", "absolute values turned round"),
    ("|y-x|", "|x-y|", "an absolute value of the difference turned round"),
    ("A+a", "a+A", "a capital beside its small letter"),
    ("AB=CD", "CD=AB", "an equation of segments turned round"),
    (r"\min(x,y)", r"\frac{x+y-|x-y|}{2}", "the lesser by an absolute value"),
    ("3R^2", "3r^2", "a letter in the other case"),
    ("x'+1", "1+x'", "a prime"),
    ("f(x)+1", "1+f(x)", "a function that is not known"),
    ("bd+10-b", "10-b+db", "a letter that differentials have"),
    ("2i", "(1+i)^2", "a square of a complex number"),
    (r"\frac12+\frac{\sqrt3}{2}i", r"e^{i\pi/3}", "a complex number as an exponential"),
    ("0", r"\sqrt{2}\sqrt{3}-\sqrt{6}", "a difference that vanishes"),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n} k", "a sum worked out"),
    ("xy=1", r"y=\frac{1}{x}", "an equation solved for an unknown"),
    (r"\frac{x^2}{4}+\frac{y^2}{9}=1", "9x^2+4y^2=36", "an equation times a number"),
    ("x+y<3", "-x-y>-3", "an inequality times -1"),
    (r"\frac{\pi}{3}", "1.047198", "six places of an endless decimal"),
]


@pytest.mark.parametrize(("gold", "answer", "why"), DIFFERENT)
def test_different_expressions_are_not_equal(gold: str, answer: str, why: str) -> None:
    assert not accepted(gold, answer), why
    assert not accepted(answer, gold), why


@pytest.mark.parametrize(("gold", "answer", "why"), SAME)
def test_two_forms_of_an_expression_are_equal(gold: str, answer: str, why: str) -> None:
    assert accepted(gold, answer), why
    assert accepted(answer, gold), why


@pytest.mark.timeout(600)
def test_random_expressions_that_differ_are_never_equal() -> None:
    assert [pair for pair in islice(unequal(seed=0), PAIRS) if accepted(*pair)] == []


@pytest.mark.timeout(600)
def test_random_expressions_in_another_form_are_equal() -> None:
    assert [pair for pair in islice(equal(seed=0), PAIRS // 2) if not accepted(*pair)] == []


@pytest.mark.soak
@pytest.mark.timeout(3600 + MANY_PAIRS // 10)
def test_many_random_expressions_that_differ_are_never_equal() -> None:
    assert [pair for pair in islice(unequal(seed=1), MANY_PAIRS) if accepted(*pair)] == []
