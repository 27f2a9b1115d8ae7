"""The tool for computer algebra, which uses SymPy and reads only formulas.

The formula comes from `EXPR:` lines of earlier workers, from dollar signs in the question, or from a question that is
only a sum, such as "17 * 23" or "17 times 23". The subtask selects the command, which is zeros, minimum, derivative or
integral.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.synthetic.formal import find_formula, read_formula
from ops.synthetic.formula import NotAFormula, format_decimal, parse_formula
from ops.synthetic.reading import Task, format_answer

if TYPE_CHECKING:
    import sympy

_BLANK = "I see no formula to work on. Give me one; then I evaluate it, or find zeros, minimum, derivative, integral."


def answer(task: Task) -> str:
    """Return the value of the formula in the requested form, with the formula's unit."""
    body, unit = read_formula(task) or (find_formula(task.question), "")
    if body is None:
        return _BLANK
    try:
        value = _apply_command(body, task.subtask)
    except NotAFormula:
        return _BLANK
    return format_answer(task, f"{_format_value(value, task)} {unit}".strip())


def _apply_command(body: str, subtask: str) -> sympy.Expr | list[sympy.Expr]:
    if "=" in body:
        left, _, right = body.partition("=")
        return max(_roots(parse_formula(left) - parse_formula(right)))
    import sympy

    variable = sympy.Symbol("x")
    expression = parse_formula(body)
    if not expression.has(variable):
        return sympy.simplify(expression)
    if "derivative" in subtask:
        return sympy.diff(expression, variable)
    if "integral" in subtask:
        return sympy.integrate(expression, variable)
    if "minimum" in subtask:
        critical = _roots(sympy.diff(expression, variable))
        return min(expression.subs(variable, point) for point in critical)
    return _roots(expression)


def _roots(expression: sympy.Expr) -> list[sympy.Expr]:
    import sympy

    try:
        roots = [root for root in sympy.roots(sympy.Poly(expression, sympy.Symbol("x"))) if root.is_real]
    except sympy.PolynomialError as error:
        raise NotAFormula(str(error)) from None
    if not roots:
        raise NotAFormula("no real zeros")
    return sorted(roots)


def _format_value(value: sympy.Expr | list[sympy.Expr], task: Task) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item, task) for item in value)
    if task.form == "boxed":
        import sympy

        return str(sympy.latex(value))
    return format_decimal(value) if value.is_number else str(value)
