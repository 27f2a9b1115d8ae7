"""Methods that evaluate formulas, answer questions about quadratics, and find pairs of numbers, with random errors."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from ops.core import cpython
from ops.synthetic import sums
from ops.synthetic.formal import find_formula
from ops.synthetic.formula import MAX_EXPONENT, MAX_LENGTH, NotAFormula, format_latex, parse_formula
from ops.synthetic.generalists.skills import GeneralistTask, MethodResult, MisstepModel, Skill

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


def evaluate_formula(text: str, skill: Skill, chance: MisstepModel) -> Fraction:
    """Return the value that this generalist finds for a formula of numbers. Raises `NotAFormula`."""
    if len(text) > MAX_LENGTH:
        raise NotAFormula("too long")
    try:
        return _value(cpython.parse(text.strip(), "eval").body, text.strip(), skill, chance)
    except (SyntaxError, RecursionError, ZeroDivisionError, OverflowError) as error:
        raise NotAFormula(str(error)) from None


def _value(node: ast.expr, text: str, skill: Skill, chance: MisstepModel) -> Fraction:
    def inner(child: ast.expr) -> Fraction:
        return _value(child, text, skill, chance)

    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(ast.get_source_segment(text, node) or str(node.value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -inner(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= MAX_EXPONENT:
            base = inner(left)
            return apply_misstep(base**power, f"{format_number(base)}^{power}", skill, chance, hard=power > 2)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            sign, act = _OPERATIONS[type(op)]
            first, second = inner(left), inner(right)
            return apply_misstep(
                act(first, second), f"{format_number(first)}{sign}{format_number(second)}", skill, chance
            )
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _FUNCTIONS:
            first, second = inner(left), inner(right)
            if first.denominator != 1 or second.denominator != 1 or second <= 0:
                raise NotAFormula(f"{name} needs whole numbers")
            value = Fraction(_FUNCTIONS[name](int(first), int(second)))
            return apply_misstep(value, f"{name}({first}, {second})", skill, chance, hard=name != "mod" or first > 9999)
    raise NotAFormula(f"cannot work out {ast.unparse(node)[:60]}")


def apply_misstep(value: Fraction, operation: str, skill: Skill, chance: MisstepModel, hard: bool = False) -> Fraction:
    """Return the result of one operation, or a similar number after a misstep."""
    size = 2.0 if abs(value) > _BIG or value.denominator > 1 else 1.0
    if not chance.has_misstep(skill.arithmetic * size * (2.0 if hard else 1.0), "arithmetic", operation):
        return value
    wrong = value + chance.choose((-10, -2, -1, 1, 2, 10), "arithmetic", operation)
    chance.record_misstep("arithmetic", operation, f"{format_number(value)} became {format_number(wrong)}")
    return wrong


def format_number(value: Fraction) -> str:
    """Return a number as a whole number, a short decimal or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator}/{value.denominator}"


def format_decimal(value: Fraction) -> str:
    """Return a number as a plain decimal with at most four places."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def solve_sum(mind: GeneralistTask) -> MethodResult | None:
    """Answer a question that is only a sum. This never fails, as language models and calculators seldom fail here."""
    body = sums.find_sum(mind.task.question)
    if body is None or (value := sums.evaluate_sum(body)) is None:
        return None
    return MethodResult(
        format_latex(value) if mind.task.form == "boxed" else format_decimal(value),
        "",
        (f"I work out {body}.",),
        is_verified=True,
    )


_ASKS = (
    (r"cross|vanish", "zeros"),
    (r"has it as its slope|at this rate", "integral"),
    (r"how fast|slope", "derivative"),
    (r"how low|least", "minimum"),
)
COMMANDS = ("zeros", "integral", "derivative", "minimum")


def solve_quadratic(mind: GeneralistTask) -> MethodResult | None:
    """Answer a question on a quadratic, identified by the subtask's word, else by the question's."""
    import sympy

    body = find_formula(mind.task.question)
    if body is None:
        return None
    try:
        polynomial = sympy.Poly(parse_formula(body), sympy.Symbol("x"))
    except (NotAFormula, sympy.PolynomialError):
        return None
    if polynomial.degree() != 2:
        return None
    a, b, c = (Fraction(int(value.p), int(value.q)) for value in polynomial.all_coeffs())
    ask = next((name for name in COMMANDS if name in mind.task.subtask), None)
    if ask is None:
        ask = next((name for pattern, name in _ASKS if re.search(pattern, mind.task.question, re.IGNORECASE)), "zeros")
        if mind.missteps.has_misstep(mind.skill.algebra, "algebra", "what is asked"):
            other = mind.missteps.choose([name for name in COMMANDS if name != ask], "algebra", "what is asked")
            mind.missteps.record_misstep("algebra", "what is asked", f"{ask} was taken for {other}")
            ask = other
    if mind.missteps.has_misstep(mind.skill.algebra, "algebra", ask):
        changed = -b if b else b + 1
        mind.missteps.record_misstep("algebra", f"the {ask}", f"b = {format_number(b)} became {format_number(changed)}")
        b = changed
    return _solve_for(ask, a, b, c)


def _solve_for(ask: str, a: Fraction, b: Fraction, c: Fraction) -> MethodResult | None:
    note = (f"I look for the {ask} of {format_number(a)}x^2 + {format_number(b)}x + {format_number(c)}.",)
    if ask == "derivative":
        return MethodResult(f"({format_number(2 * a)})x + ({format_number(b)})", "", note)
    if ask == "integral":
        return MethodResult(
            f"({format_number(a / 3)})x^3 + ({format_number(b / 2)})x^2 + ({format_number(c)})x", "", note
        )
    if ask == "minimum":
        low = c - b * b / (4 * a)
        return MethodResult(format_number(low), "", note)
    import sympy

    root = sympy.sqrt(
        sympy.Rational(b.numerator, b.denominator) ** 2 - 4 * sympy.Rational(str(a)) * sympy.Rational(str(c))
    )
    if not root.is_rational:
        return None
    half = Fraction(int(root.p), int(root.q))
    low, high = sorted(((-b - half) / (2 * a), (-b + half) / (2 * a)))
    return MethodResult(f"{format_number(low)}, {format_number(high)}", "", note)


_PAIR = re.compile(r"add up to (\d+) and multiply to (\d+)")
_SQUARES = re.compile(r"squares of two positive integers add up to (\d+)")


def find_pair(mind: GeneralistTask) -> MethodResult | None:
    """Find a pair of numbers by trial, and return the closest pair if no pair satisfies the conditions."""
    text = mind.task.question
    tries = mind.missteps.random_stream("tries", "a pair")
    if match := _PAIR.search(text):
        total, product = int(match[1]), int(match[2])
        tried = [tries.randint(1, total // 2) for _ in range(mind.skill.tries)]
        best = min(tried, key=lambda first: abs(first * (total - first) - product))
        return _report_pair(mind, best, total - best, best * (total - best) == product, str(total - best))
    if match := _SQUARES.search(text):
        total = int(match[1])
        most = int(total**0.5)
        candidates = [(tries.randint(1, most), tries.randint(1, most)) for _ in range(mind.skill.tries * 6)]
        first, second = min(candidates, key=lambda pair: abs(pair[0] ** 2 + pair[1] ** 2 - total))
        return _report_pair(mind, first, second, first**2 + second**2 == total, str(first + second))
    return None


def _report_pair(mind: GeneralistTask, first: int, second: int, fits: bool, value: str) -> MethodResult:
    if not fits:
        mind.missteps.record_misstep(
            "search", f"{mind.skill.tries} tries", f"none fits; the nearest was {first} and {second}"
        )
    return MethodResult(
        value, "", (f"I tried pairs: {first} and {second} {'fit' if fits else 'come near'}.",), is_verified=fits
    )


def verify_pair(question: str, value: str) -> bool | None:
    """Return whether an answer satisfies the conditions of a question for a pair, or None for other questions."""
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
