"""Parse the formal expressions that tools pass to each other, without evaluating code.

The grammar is Python's arithmetic on numbers, single-letter names and the functions in `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ops.core import cpython

if TYPE_CHECKING:
    import sympy

MAX_LENGTH = 400
"""The largest number of characters of a formula."""
MAX_EXPONENT = 200
"""The largest exponent of a power."""

FUNCTIONS = {"gcd": "gcd", "lcm": "lcm", "binomial": "binomial", "mod": "Mod", "abs": "Abs"}
"""The name of each function and the SymPy function that it stands for. SymPy is imported for the first formula."""
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NotAFormula(ValueError):
    """Raised for a text that is not an expression of this grammar."""


def parse_formula(text: str) -> sympy.Expr:
    """Return the expression that a text consists of. Raises `NotAFormula`."""
    if len(text) > MAX_LENGTH:
        raise NotAFormula("too long")
    try:
        tree = cpython.parse(text.strip(), "eval")
        return _build(tree.body, text)
    except (SyntaxError, RecursionError, ZeroDivisionError) as error:
        raise NotAFormula(str(error)) from None


def _build(node: ast.expr, text: str) -> sympy.Expr:
    import sympy

    match node:
        case ast.Constant(value=int() | float()):
            return sympy.Rational(ast.get_source_segment(text.strip(), node) or str(node.value))
        case ast.Name(id=name) if len(name) == 1:
            return sympy.Symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power <= MAX_EXPONENT:
            return _build(left, text) ** power
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_build(left, text), _build(right, text))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return getattr(sympy, FUNCTIONS[name])(*(_build(arg, text) for arg in args))
    raise NotAFormula(f"cannot read {ast.dump(node)[:60]}")


def convert_latex(text: str) -> str:
    """Convert the small part of LaTeX that textbook formulas use to this grammar."""
    text = re.sub(r"^\s*[a-zA-Z]\(x\)\s*=", "", text)
    previous = None
    while previous != text:
        previous, text = text, re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = text.replace("\\cdot", "*").replace("\\times", "*").replace("\\left", "").replace("\\right", "")
    text = text.replace("{", "(").replace("}", ")").replace("^", "**")
    text = re.sub(r"(\d)\s*(?=[a-z(])", r"\1*", text)
    return re.sub(r"\)\s*(?=[\w(])", ")*", text).strip()


def format_latex(value: Fraction) -> str:
    """Return a number in LaTeX."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def format_decimal(value: sympy.Expr) -> str:
    """Return a number as a plain decimal with at most four places."""
    if value.is_Integer:
        return str(value)
    text = f"{float(value):.4f}"
    return text.rstrip("0").rstrip(".")
