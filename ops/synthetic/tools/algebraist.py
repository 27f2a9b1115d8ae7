"""Computer algebra (SymPy): works on formulas, never on prose.

The formula comes from `EXPR:` lines of earlier workers, from dollar signs in the question, or from a question that is
nothing but a sum ("17 * 23", "17 times 23"). The command comes from the subtask: zeros, minimum, derivative, integral.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.synthetic.formal import shown_formula, written_formula
from ops.synthetic.formula import NotAFormula, decimal, parse
from ops.synthetic.reading import Task, state

if TYPE_CHECKING:
    import sympy

_BLANK = "I see no formula to work on. Give me one; then I evaluate it, or find zeros, minimum, derivative, integral."


def answer(task: Task) -> str:
    """Return the value of the formula in the requested form, with the formula's unit."""
    body, unit = shown_formula(task) or (written_formula(task.question), "")
    if body is None:
        return _BLANK
    try:
        value = _work(body, task.subtask)
    except NotAFormula:
        return _BLANK
    return state(task, f"{_text(value, task)} {unit}".strip())


def _work(body: str, subtask: str) -> sympy.Expr | list[sympy.Expr]:
    if "=" in body:
        left, _, right = body.partition("=")
        return max(_roots(parse(left) - parse(right)))
    import sympy

    variable = sympy.Symbol("x")
    expression = parse(body)
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


def _text(value: sympy.Expr | list[sympy.Expr], task: Task) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item, task) for item in value)
    if task.form == "boxed":
        import sympy

        return str(sympy.latex(value))
    return decimal(value) if value.is_number else str(value)
