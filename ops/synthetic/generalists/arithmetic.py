"""A formula worked out operation by operation, as a person would, with a slip now and then."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction

from ops.core.cpython import parse
from ops.synthetic.formula import MAX_EXPONENT, MAX_LENGTH, NotAFormula
from ops.synthetic.generalists.chance import Chance
from ops.synthetic.generalists.skill import Skill

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
    """The value that this generalist finds for a formula of numbers. Raises `NotAFormula`."""
    if len(text) > MAX_LENGTH:
        raise NotAFormula("too long")
    try:
        return _value(parse(text.strip(), "eval").body, text.strip(), skill, chance)
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
    """The result of one operation, or a number near it."""
    size = 2.0 if abs(value) > _BIG or value.denominator > 1 else 1.0
    if not chance.slips(skill.arithmetic * size * (2.0 if hard else 1.0), "arithmetic", operation):
        return value
    wrong = value + chance.pick((-10, -2, -1, 1, 2, 10), "arithmetic", operation)
    chance.note("arithmetic", operation, f"{plain(value)} became {plain(wrong)}")
    return wrong


def plain(value: Fraction) -> str:
    """A number as a whole number, a short decimal or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator}/{value.denominator}"


def decimal(value: Fraction, places: int = 4) -> str:
    """A number as a plain decimal without trailing zeros."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.{places}f}".rstrip("0").rstrip(".")
