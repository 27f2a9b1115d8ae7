"""Evaluation of formulas with occasional errors, quadratics, and pairs of numbers that satisfy conditions."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from ops.core import cpython
from ops.synthetic import sums
from ops.synthetic.formal import written_formula
from ops.synthetic.formula import MAX_EXPONENT, MAX_LENGTH, NotAFormula, latex, parse
from ops.synthetic.generalists.mind import Chance, MethodResult, Mind, Skill

_OPERATIONS: dict[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "gcd": math.gcd,
    "lcm": math.lcm,
    "binomial": math.comb,
    "mod": operator.mod,
}
_BIG = 100


def work_out(text: str, skill: Skill, chance: Chance) -> Fraction:
    """Return the value that this generalist finds for a formula of numbers. Raises `NotAFormula`."""
    if len(text) > MAX_LENGTH:
        raise NotAFormula("too long")
    try:
        return _value(cpython.parse(text.strip(), "eval").body, text.strip(), skill, chance)
    except (SyntaxError, RecursionError, ZeroDivisionError, OverflowError) as error:
        raise NotAFormula(str(error)) from None


def _value(node: ast.expr, text: str, skill: Skill, chance: Chance) -> Fraction:
    def inner(child: ast.expr) -> Fraction:
        return _value(child, text, skill, chance)

    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(ast.get_source_segment(text, node) or str(node.value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -inner(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= MAX_EXPONENT:
            base = inner(left)
            return slipping(base**power, f"{plain(base)}^{power}", skill, chance, hard=power > 2)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            sign, act = _OPERATIONS[type(op)]
            first, second = inner(left), inner(right)
            return slipping(act(first, second), f"{plain(first)}{sign}{plain(second)}", skill, chance)
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _FUNCTIONS:
            first, second = inner(left), inner(right)
            if first.denominator != 1 or second.denominator != 1 or second <= 0:
                raise NotAFormula(f"{name} needs whole numbers")
            value = Fraction(_FUNCTIONS[name](int(first), int(second)))
            return slipping(value, f"{name}({first}, {second})", skill, chance, hard=name != "mod" or first > 9999)
    raise NotAFormula(f"cannot work out {ast.unparse(node)[:60]}")


def slipping(value: Fraction, operation: str, skill: Skill, chance: Chance, hard: bool = False) -> Fraction:
    """Return the result of one operation, or a similar number after a misstep."""
    size = 2.0 if abs(value) > _BIG or value.denominator > 1 else 1.0
    if not chance.slips(skill.arithmetic * size * (2.0 if hard else 1.0), "arithmetic", operation):
        return value
    wrong = value + chance.pick((-10, -2, -1, 1, 2, 10), "arithmetic", operation)
    chance.note("arithmetic", operation, f"{plain(value)} became {plain(wrong)}")
    return wrong


def plain(value: Fraction) -> str:
    """Return a number as a whole number, a short decimal or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator}/{value.denominator}"


def decimal(value: Fraction, places: int = 4) -> str:
    """Return a number as a plain decimal without trailing zeros."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.{places}f}".rstrip("0").rstrip(".")


def plain_sum(mind: Mind) -> MethodResult | None:
    """Work out a question that is nothing but a sum, without a misstep, as language models and calculators do."""
    body = sums.formula(mind.task.question)
    if body is None or (value := sums.value_of(body)) is None:
        return None
    return MethodResult(
        latex(value) if mind.task.form == "boxed" else decimal(value), "", (f"I work out {body}.",), proven=True
    )


_ASKS = (
    (r"cross|vanish", "zeros"),
    (r"has it as its slope|at this rate", "integral"),
    (r"how fast|slope", "derivative"),
    (r"how low|least", "minimum"),
)
COMMANDS = ("zeros", "integral", "derivative", "minimum")


def quadratic(mind: Mind) -> MethodResult | None:
    """Answer a question on a quadratic, identified by the subtask's word, else by the question's."""
    import sympy

    body = written_formula(mind.task.question)
    if body is None:
        return None
    try:
        polynomial = sympy.Poly(parse(body), sympy.Symbol("x"))
    except (NotAFormula, sympy.PolynomialError):
        return None
    if polynomial.degree() != 2:
        return None
    a, b, c = (Fraction(int(value.p), int(value.q)) for value in polynomial.all_coeffs())
    ask = next((name for name in COMMANDS if name in mind.task.subtask), None)
    if ask is None:
        ask = next((name for pattern, name in _ASKS if re.search(pattern, mind.task.question, re.IGNORECASE)), "zeros")
        if mind.chance.slips(mind.skill.algebra, "algebra", "what is asked"):
            other = mind.chance.pick([name for name in COMMANDS if name != ask], "algebra", "what is asked")
            mind.chance.note("algebra", "what is asked", f"{ask} was taken for {other}")
            ask = other
    if mind.chance.slips(mind.skill.algebra, "algebra", ask):
        changed = -b if b else b + 1
        mind.chance.note("algebra", f"the {ask}", f"b = {plain(b)} became {plain(changed)}")
        b = changed
    return _result(ask, a, b, c)


def _result(ask: str, a: Fraction, b: Fraction, c: Fraction) -> MethodResult | None:
    note = (f"I look for the {ask} of {plain(a)}x^2 + {plain(b)}x + {plain(c)}.",)
    if ask == "derivative":
        return MethodResult(f"({plain(2 * a)})x + ({plain(b)})", "", note)
    if ask == "integral":
        return MethodResult(f"({plain(a / 3)})x^3 + ({plain(b / 2)})x^2 + ({plain(c)})x", "", note)
    if ask == "minimum":
        low = c - b * b / (4 * a)
        return MethodResult(plain(low), "", note)
    import sympy

    root = sympy.sqrt(
        sympy.Rational(b.numerator, b.denominator) ** 2 - 4 * sympy.Rational(str(a)) * sympy.Rational(str(c))
    )
    if not root.is_rational:
        return None
    half = Fraction(int(root.p), int(root.q))
    low, high = sorted(((-b - half) / (2 * a), (-b + half) / (2 * a)))
    return MethodResult(f"{plain(low)}, {plain(high)}", "", note)


_PAIR = re.compile(r"add up to (\d+) and multiply to (\d+)")
_SQUARES = re.compile(r"squares of two positive integers add up to (\d+)")


def pair(mind: Mind) -> MethodResult | None:
    """Find a pair of numbers by trial. A pair that satisfies the
    conditions is proven; otherwise the closest try is given.
    """
    text = mind.task.question
    tries = mind.chance.random("tries", "a pair")
    if match := _PAIR.search(text):
        total, product = int(match[1]), int(match[2])
        tried = [tries.randint(1, total // 2) for _ in range(mind.skill.tries)]
        best = min(tried, key=lambda first: abs(first * (total - first) - product))
        return _tried(mind, best, total - best, best * (total - best) == product, str(total - best))
    if match := _SQUARES.search(text):
        total = int(match[1])
        most = int(total**0.5)
        candidates = [(tries.randint(1, most), tries.randint(1, most)) for _ in range(mind.skill.tries * 6)]
        first, second = min(candidates, key=lambda pair: abs(pair[0] ** 2 + pair[1] ** 2 - total))
        return _tried(mind, first, second, first**2 + second**2 == total, str(first + second))
    return None


def _tried(mind: Mind, first: int, second: int, fits: bool, value: str) -> MethodResult:
    if not fits:
        mind.chance.note("search", f"{mind.skill.tries} tries", f"none fits; the nearest was {first} and {second}")
    return MethodResult(
        value, "", (f"I tried pairs: {first} and {second} {'fit' if fits else 'come near'}.",), proven=fits
    )


def pair_holds(question: str, value: str) -> bool | None:
    """Return whether an answer to a question for a pair satisfies its conditions; None for other questions."""
    if not re.fullmatch(r"\d+", value):
        return False if _PAIR.search(question) or _SQUARES.search(question) else None
    number = int(value)
    if match := _PAIR.search(question):
        total, product = int(match[1]), int(match[2])
        return number * (total - number) == product and 2 * number >= total
    if match := _SQUARES.search(question):
        total = int(match[1])
        return any(a * a + (number - a) ** 2 == total for a in range(1, number))
    return None
