"""Families that imitate MATH500, with questions that contain LaTeX and ask for a boxed answer."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from random import Random

import sympy

from ops.synthetic import phrases, sums
from ops.synthetic.families.base import CHECK, COMPUTE, FORMALIZE, PEOPLE, READ_REST, SOLVE_ALONE, Family, ProblemDraft
from ops.synthetic.formula import convert_latex, format_latex, parse_formula

_X = sympy.Symbol("x")


def arithmetic(random: Random) -> ProblemDraft:
    """Ask for the value of an expression of fractions in LaTeX, or of whole numbers in ordinary words."""
    return (_fractions if random.random() < LATEX_SHARE else _plain_sum)(random)


LATEX_SHARE = 0.4
"""The share of arithmetic questions that contain LaTeX."""
_SUM_WORDS: dict[str, tuple[str, ...]] = {
    "+": ("{a} + {b}", "{a} + {b}", "{a} plus {b}", "the sum of {a} and {b}"),
    "-": ("{a} - {b}", "{a} - {b}", "{a} minus {b}", "the difference between {a} and {b}"),
    "*": ("{a} * {b}", "{a} × {b}", "{a} times {b}", "{a} multiplied by {b}", "the product of {a} and {b}"),
    "/": ("{a} / {b}", "{a} ÷ {b}", "{a} divided by {b}", "{a} divided by {b}"),
}
_COMMAND_FORMS = {
    "+": "Add {a} and {b}.",
    "-": "Subtract {b} from {a}.",
    "*": "Multiply {a} by {b}.",
    "/": "Divide {a} by {b}.",
}
_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_QUESTION_FORMS = (
    "What is {}?",
    "What is {}?",
    "What's {}?",
    "How much is {}?",
    "Calculate {}.",
    "Compute {}.",
    "Work out {}.",
)
_BARE_FORMS = ("{}", "{} = ?", "{}?")


def _plain_sum(random: Random) -> ProblemDraft:
    """Ask for one operation on two whole numbers, or two operations on three, in everyday wording."""
    sign = random.choice("+-**/")
    most = random.choice((12, 30, 100, 1000) if sign in "+-" else (12, 12, 30, 100))
    a, b, c = random.randint(2, most), random.randint(2, most), random.randint(2, 30)
    if sign == "/":
        a *= b
    elif sign == "-":
        a, b = max(a, b), min(a, b)
    value = Fraction(_OPERATORS[sign](Fraction(a), b))
    words = random.choice(_SUM_WORDS[sign]).format(a=a, b=b)
    form = random.random()
    if words.startswith("the "):
        question = random.choice(_QUESTION_FORMS).format(words)
    elif form < 0.15:
        question = _COMMAND_FORMS[sign].format(a=a, b=b)
    elif form < 0.25:
        question, value = random.choice(_QUESTION_FORMS + _BARE_FORMS).format(f"{words} + {c}"), value + c
    else:
        question = random.choice(_QUESTION_FORMS + _BARE_FORMS).format(words)
    return ProblemDraft(question, format_latex(value), (value, sums.sum_value(question)), (("algebraist", COMPUTE[1]),))


def _fractions(random: Random) -> ProblemDraft:
    a, b, c, d = (random.randint(2, 12) for _ in range(4))
    k, n = random.randint(2, 9), random.randint(2, 3)
    sign, act = random.choice((("+", operator.add), ("-", operator.sub)))
    text = f"\\frac{{{a}}}{{{b}}} {sign} \\frac{{{c}}}{{{d}}} \\cdot {k}^{n}"
    value = act(Fraction(a, b), Fraction(c, d) * k**n)
    again = parse_formula(convert_latex(text))
    opening = random.choice(("Compute", "Evaluate", "What is the value of"))
    return ProblemDraft(
        f"{opening} ${text}$.",
        format_latex(value),
        (value, Fraction(int(again.p), int(again.q))),
        (("algebraist", COMPUTE[1]),),
    )


_QUESTIONS = {
    "zeros": ("Where does its graph cross the horizontal axis?", "For which $x$ does it vanish?"),
    "derivative": ("How fast does it grow at $x$?", "What is the slope of its graph at $x$?"),
    "minimum": ("How low does its graph reach?", "What is the least value that it takes?"),
    "integral": (
        "Which function with value 0 at 0 has it as its slope?",
        "What grows at this rate, starting from 0?",
    ),
}


def polynomial(random: Random) -> ProblemDraft:
    """Ask one of four questions about a quadratic, without the name of the algebraist's command."""
    p, q = random.sample(range(-9, 10), 2)
    scale = random.choice((1, 1, 2, 3))
    f = sympy.expand(scale * (_X - p) * (_X - q))
    ask = random.choice(sorted(_QUESTIONS))
    b, c = -scale * (p + q), scale * p * q
    answers: dict[str, tuple[sympy.Expr, sympy.Expr]] = {
        "zeros": (sympy.Tuple(*sorted((p, q))), sympy.Tuple(*sorted(sympy.solve(f, _X)))),
        "derivative": (2 * scale * _X + b, sympy.expand(sympy.diff(f, _X))),
        "minimum": (f.subs(_X, sympy.Rational(p + q, 2)), c - sympy.Rational(b * b, 4 * scale)),
        "integral": (
            sympy.Rational(scale, 3) * _X**3 + sympy.Rational(b, 2) * _X**2 + c * _X,
            sympy.expand(sympy.integrate(f, _X)),
        ),
    }
    first, second = answers[ask]
    gold = ", ".join(map(str, first)) if ask == "zeros" else sympy.latex(first)
    question = f"Let $f(x) = {sympy.latex(f)}$. {random.choice(_QUESTIONS[ask])}"
    return ProblemDraft(question, gold, (first, second), (("algebraist", f"Find the {ask}."),))


def number_words(random: Random) -> ProblemDraft:
    """Ask a question of number theory in words."""
    a, b, c = random.randint(12, 400), random.randint(12, 400), random.randint(3, 12)
    kind = random.randrange(4)
    if kind == 0:
        text, value = f"the greatest common divisor of {a} and {b}", math.gcd(a, b)
        again = max(d for d in range(1, min(a, b) + 1) if a % d == b % d == 0)
    elif kind == 1:
        a, b = a % 40 + 2, b % 40 + 2
        text, value = f"the least common multiple of {a} and {b}", math.lcm(a, b)
        again = next(m for m in range(max(a, b), a * b + 1) if m % a == m % b == 0)
    elif kind == 2:
        a, b = a % 20 + 2, b % 20 + 5
        text = f"the remainder when {a} to the power {b} is divided by {c}"
        value, again = pow(a, b, c), a**b % c
    else:
        b = b % 15 + 6
        a = a % (b - 2) + 2
        text, value = f"the number of ways to choose {a} of {b} books", math.comb(b, a)
        again = math.factorial(b) // math.factorial(a) // math.factorial(b - a)
    opening = random.choice(("Find", "Determine", "What is"))
    return ProblemDraft(f"{opening} {text}.", str(value), (value, again), (FORMALIZE, COMPUTE))


_THINGS = ("apples", "marbles", "stamps", "cards", "coins", "shells", "beads")


def _story(random: Random, events: int) -> tuple[str, Fraction, Fraction]:
    start = random.randint(20, 90)
    sentences, value = [f"{random.choice(PEOPLE)} has {start} {random.choice(_THINGS)}"], Fraction(start)
    scale, shift = Fraction(1), Fraction(0)  # the second derivation: a single affine map of the start
    for _ in range(events):
        n, kind = (
            random.randint(2, 19),
            random.choice(("buys", "finds", "sells", "loses", "doubles", "triples")),
        )
        if kind in ("doubles", "triples"):
            factor = 2 if kind == "doubles" else 3
            sentences.append(f"the pile then {kind}")
            value, scale, shift = value * factor, scale * factor, shift * factor
        else:
            delta = n if kind in ("buys", "finds") else -n
            sentences.append(f"{kind} {n}")
            value, shift = value + delta, shift + delta
    return ", ".join(sentences) + ". How many are there now?", value, scale * start + shift


def story(random: Random) -> ProblemDraft:
    """Tell a short story with a start and two or three events, and ask for the result."""
    text, value, again = _story(random, random.choice((2, 3)))
    return ProblemDraft(text, format_latex(value), (value, again), (FORMALIZE, COMPUTE))


def long_story(random: Random) -> ProblemDraft:
    """Tell a story with more events than the analyst reads at a time, and ask for the result."""
    text, value, again = _story(random, random.choice((4, 5, 6)))
    return ProblemDraft(text, format_latex(value), (value, again), (FORMALIZE, READ_REST, COMPUTE))


def account(random: Random) -> ProblemDraft:
    """Describe what several people own in several clauses, which no tool can solve."""
    names = random.sample(PEOPLE, 3)
    first, second, third = names
    sentences = [f"{first} owns {random.randint(20, 60)} {random.choice(_THINGS)}"]
    for name, other in ((second, first), (third, second)):
        many = random.randint(2, 15)
        sentences.append(random.choice((
            f"{name} owns {many} more than {other}",
            f"{name} owns {many} fewer than {other}",
            f"{name} owns twice as many as {other}",
        )))  # fmt: skip
    for _ in range(random.choice((2, 3))):
        giver, taker = random.sample(names, 2)
        many = random.randint(2, 12)
        sentences.append(random.choice((
            f"{giver} hands {many} to {taker}",
            f"{giver} picks up {many}",
            f"{giver} drops {many}",
        )))  # fmt: skip
    text = ". ".join(sentences)
    name = random.choice((second, third))
    value, again = _final_possessions(sentences)[name], phrases.run_clauses(phrases.find_clauses(text))[name.lower()]
    question = f"{text}. How many does {name} own now?"
    return ProblemDraft(question, str(value), (value, again), (FORMALIZE, READ_REST, ("solver", "Compute the result.")))


def _final_possessions(sentences: list[str]) -> dict[str, int]:
    """Return what each person owns in the end, derived from the words of the sentences."""
    owned: dict[str, int] = {}
    for words in (sentence.split() for sentence in sentences):
        match words:
            case [name, "owns", "twice", "as", "many", "as", other]:
                owned[name] = 2 * owned[other]
            case [name, "owns", many, "more" | "fewer" as way, "than", other]:
                owned[name] = owned[other] + (int(many) if way == "more" else -int(many))
            case [name, "owns", many, _]:
                owned[name] = int(many)
            case [name, "hands", many, "to", other]:
                owned[name], owned[other] = owned[name] - int(many), owned[other] + int(many)
            case [name, "picks", "up", many]:
                owned[name] += int(many)
            case [name, "drops", many]:
                owned[name] -= int(many)
    return owned


def hidden_pair(random: Random) -> ProblemDraft:
    """Ask for two numbers with a given sum and product, which is easier to check than to find."""
    first, second = random.randint(3, 30), random.randint(31, 70)
    total, product = first + second, first * second
    root = math.isqrt(total * total - 4 * product)
    opening = random.choice(("Two whole numbers", "Two positive integers"))
    question = f"{opening} add up to {total} and multiply to {product}. What is the larger one?"
    return ProblemDraft(question, str(second), (second, (total + root) // 2), (SOLVE_ALONE, CHECK, CHECK, CHECK))


FAMILIES = (
    Family("arithmetic", "math500", arithmetic),
    Family("polynomial", "math500", polynomial),
    Family("number_words", "math500", number_words),
    Family("story", "math500", story),
    Family("long_story", "math500", long_story, hard=True),
    Family("account", "math500", account, hard=True, solved_by_tools=False),
    Family("hidden_pair", "math500", hidden_pair, hard=True, solved_by_tools=False),
)
