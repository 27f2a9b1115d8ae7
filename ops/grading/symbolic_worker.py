"""The process in which SymPy runs: it reads pairs of expressions and answers whether they are equal.

It reads one JSON line (`[gold, answer, domain]`, see `ops.grading.domains`) and writes one line (`1`, `0`, or `?` for
neither). Two expressions are equal if they agree at generic points of the domain; rational ones are evaluated in exact
arithmetic, others to many digits. A point at which either is infinite, undefined or not a number decides nothing; if no
point decides, only a symbolic proof does.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import math
import resource
import signal
import sys
from collections.abc import Iterator
from fractions import Fraction
from types import FrameType
from typing import Any

CPU_S = 3.0
KILL_S = 4
"""CPU seconds after which the kernel ends the process: a signal handler waits for a long operation in C to end."""
MEMORY_BYTES = 2 << 30
DIGITS = 50
CONSTANT_DIGITS = 1_000
"""Number of digits for two values without unknowns that agree at lower precision."""
GUARD_DIGITS = 10
"""The number of digits that rounding may cost."""
MAX_DIGITS = 5_000
MAX_BITS = 1 << 17
"""Size of numerators and denominators in exact arithmetic."""
MAX_ROUNDING_DIFFERENCE = 1e-5
"""The relative difference above which a decimal is not a rounded form of the other value."""
SEED = "generic points"
Domain = dict[str, tuple[Fraction | None, Fraction | None]]
"""The name of a symbol → the ends of the open interval of its values, which are real; None without an end."""
_UNIT = 1 << 64
_VALUE_RANGES: tuple[tuple[float, float, str], ...] = (
    (0.2, 3.2, "positive"), (0.2, 3.2, "mixed"), (0.2, 3.2, "negative"), (3.0, 12.0, "positive"), (0.2, 9.0, "mixed"),
    (0.2, 2.2, "complex"), (0.2, 2.2, "complex"),
)  # fmt: skip
"""The range and the sign of each symbol's value at each point."""
_INTEGER_RANGES = ((1, 9, "positive"), (1, 9, "mixed"), (1, 9, "mixed"))
"""The ranges of integer points, because step functions that agree everywhere else may differ there."""


class OutOfTime(BaseException):
    """The CPU time is exceeded. Not an `Exception`, because math-verify suppresses those."""


def _raise_out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _parse_expressions(text: str) -> list[Any]:
    from latex2sympy2_extended.math_normalization import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    # Units are split off earlier; math-verify's own list of units includes letters: `4t` would become 4.
    spelling = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all", equations=False
    )
    return list(
        parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig(normalization_config=spelling)],
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
    )


def compare(gold: str, answer: str, bounds: Any = ()) -> str:
    """Return `1` if the two are equal, `0` if they differ or neither points nor a proof decide, `?` if one is
    unreadable."""
    from sympy import Expr
    from sympy.core.relational import Relational

    left, right, domain = _parse_expressions(gold), _parse_expressions(answer), _parse_bounds(bounds)
    if not left or not right:
        return "?"
    a, b = left[0], right[0]
    if _is_too_large(a) or _is_too_large(b):
        return "0"
    if isinstance(a, Relational) and isinstance(b, Relational):
        return "1" if _is_same_relation(a, b, domain) else "0"
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return "1" if not _is_undefined(a) and _is_verified(left, right) else "0"
    if _is_infinite(a) or _is_infinite(b):
        return "1" if a == b and not _is_undefined(a) else "0"
    if (verdict := _compare_expressions(_prepare(a), _prepare(b), domain)) == "close":
        # A decimal with enough places equals the value that it rounds.
        return "1" if "." in gold + answer and _is_verified(left, right) else "0"
    return "1" if verdict == "same" else "0"


def _parse_bounds(bounds: Any) -> Domain:
    """Return the bounds by the names that math-verify gives to the symbols."""
    domain: Domain = {}
    for text, low, high in bounds:
        for symbol in _parse_expressions(text)[:1]:
            domain[str(symbol)] = (Fraction(low) if low else None, Fraction(high) if high else None)
    return domain


def _is_verified(left: Any, right: Any) -> bool:
    """Return math-verify's verdict for sets, matrices, and decimals rounded to six places."""
    from math_verify import verify

    return bool(verify(left, right, timeout_seconds=None)) and _is_relatively_close(left[0], right[0])


def _is_relatively_close(left: Any, right: Any) -> bool:
    """Compare small numbers relatively, because math-verify rounds to six places and would accept them as equal."""
    if not all(getattr(value, "is_number", False) for value in (left, right)):
        return True
    a, b = complex(left.evalf(15)), complex(right.evalf(15))
    return abs(a - b) <= MAX_ROUNDING_DIFFERENCE * max(abs(a), abs(b))


# ── expressions ──────────────────────────────────────────────────────────────


def _prepare(expression: Any) -> Any:
    """Convert decimals to fractions, evaluate sums and integrals,
    read `i` as the imaginary unit, and identify symbols by name only.
    """
    from sympy import Float, I, Integral, Limit, Product, Rational, Sum, Symbol, UnevaluatedExpr

    if expression.has(UnevaluatedExpr):
        expression = expression.replace(UnevaluatedExpr, lambda inner: inner)
    if expression.has(Sum, Product, Integral, Limit):
        expression = expression.doit()
    values: dict[Any, Any] = {value: Rational(str(value)) for value in expression.atoms(Float)}
    values |= {s: I if s.name == "i" else Symbol(s.name) for s in expression.free_symbols}
    return expression.xreplace(values)


def _is_too_large(expression: Any) -> bool:
    """Return whether SymPy would expand a huge power when it substitutes into the expression."""
    from sympy import Float

    return _count_digits(expression) > MAX_DIGITS and bool(expression.free_symbols or expression.atoms(Float))


def _is_infinite(expression: Any) -> bool:
    r"""Return whether the expression contains infinity outside of limits; SymPy drops `0 \cdot \infty` from a sum."""
    from sympy import Integral, Limit, Product, Sum, nan, oo, zoo

    return expression.has(oo, -oo, zoo, nan) and not expression.has(Sum, Product, Integral, Limit)


def _is_undefined(expression: Any) -> bool:
    from sympy import Derivative, nan, zoo

    if expression.has(nan, zoo):
        return True
    # SymPy evaluates `dy/dx` of two symbols to 0.
    return any(not set(d.variables) <= d.expr.free_symbols for d in expression.atoms(Derivative))


def _compare_expressions(left: Any, right: Any, domain: Domain) -> str:
    """Return `same`, `close` (equal as rounded decimals) or `different`."""
    if _is_undefined(left) or _is_undefined(right):
        return "different"
    if left == right:
        return "same"
    if _is_infinite(left) or _is_infinite(right):
        return "different"
    names = sorted({symbol.name for side in (left, right) for symbol in side.free_symbols})
    if not names and (monomial := _factor_monomial(left)) is not None and monomial == _factor_monomial(right):
        return "same"
    return _compare_at_points(left, right, names, domain)


def _compare_at_points(left: Any, right: Any, names: list[str], domain: Domain) -> str:
    compared, close = 0, False
    for at in _generate_points(names, left, right, domain):
        verdict = _compare_at_point(left, right, at)
        if verdict == "different":
            return verdict
        compared += verdict != "unknown"
        close = close or verdict == "close"
    if compared < (2 if names else 1):
        return "same" if _is_proven_equal(left, right) else "different"
    return "close" if close else "same"


def _generate_points(names: list[str], left: Any, right: Any, domain: Domain) -> Iterator[dict[str, Any]]:
    """Return seeded values of the symbols, independent of each other; one empty point if there are no symbols."""
    from sympy import Abs, Max, Min, Rational, ceiling, floor, sign

    if not names:
        yield {}
        return
    # Answers with roots, logarithms or absolute values refer to real unknowns.
    is_complex = _is_meromorphic(left) and _is_meromorphic(right) and not domain
    styles = _VALUE_RANGES if is_complex else _VALUE_RANGES[:5]
    for index, style in enumerate(styles):
        yield {name: _draw_value(f"{index}/{name}", *style, within=_find_bounds(name, domain)) for name in names}
    if any(side.has(Abs, Max, Min, floor, ceiling, sign) for side in (left, right)):
        # The two may agree up to a number that they contain, and differ beyond it.
        numbers = {number for side in (left, right) for number in side.atoms(Rational)}
        largest = 2 * max([Fraction(1), *(abs(Fraction(int(number.p), int(number.q))) for number in numbers)])
        for index, kind in enumerate(("negative", "positive", "mixed", "mixed")):
            yield {
                name: _draw_value(f"far {index}/{name}", largest / 2, largest, kind, within=_find_bounds(name, domain))
                for name in names
            }
    if any(side.has(floor, ceiling, sign) for side in (left, right)):
        for index, (low, high, kind) in enumerate(_INTEGER_RANGES):
            for part in (1, 2):
                yield {
                    name: _draw_value(f"step {index}/{name}", low, high, kind, part, _find_bounds(name, domain))
                    for name in names
                }


def _find_bounds(name: str, domain: Domain) -> tuple[Fraction | None, Fraction | None]:
    return domain.get(name.rstrip("'"), (None, None))


def _draw_value(
    key: str,
    low: float | Fraction,
    high: float | Fraction,
    kind: str,
    part: int = 0,
    within: tuple[Fraction | None, Fraction | None] = (None, None),
) -> Any:
    """Return a number that depends on `key` alone; a multiple of `1/part` if `part` is given.

    With one end in `within` it is at that distance from it, with two between them.
    """
    from sympy import I, Rational

    digest = hashlib.sha256(f"{SEED}/{key}".encode()).digest()
    first, second = (int.from_bytes(digest[start : start + 8], "big") for start in (0, 8))
    spread = Fraction(high) - Fraction(low)
    value = Fraction(low) + spread * first / _UNIT
    if part:
        value = Fraction(math.floor(value) * part + part - 1, part)
    least, most = within
    if least is not None and most is not None:
        value = least + (most - least) * Fraction(2 * first + 1, 2 * _UNIT)
    elif least is not None:
        value = least + value
    elif most is not None:
        value = most - value
    elif kind == "negative" or (kind != "positive" and digest[16] % 2):
        value = -value
    number = Rational(value.numerator, value.denominator)
    if kind == "complex" and within == (None, None):
        imaginary = Fraction(low) + spread * second / _UNIT
        number += I * Rational(imaginary.numerator, imaginary.denominator)
    return number


def _is_meromorphic(expression: Any) -> bool:
    """Return whether an identity on the real numbers is also one on the complex numbers."""
    from sympy import Add, Mul, NumberSymbol, Pow, Symbol, cos, cosh, exp, sin, sinh, tan
    from sympy.core.numbers import ImaginaryUnit, Number

    if expression.is_number or isinstance(expression, (Number, NumberSymbol, Symbol, ImaginaryUnit)):
        return True
    if isinstance(expression, Pow) and not (expression.exp.is_Integer or expression.base.is_positive):
        return False
    kinds = (Add, Mul, Pow, exp, sin, cos, tan, sinh, cosh)
    return isinstance(expression, kinds) and all(map(_is_meromorphic, expression.args))


# ── one point ────────────────────────────────────────────────────────────────


def _compare_at_point(left: Any, right: Any, at: dict[str, Any]) -> str:
    """Return `same`, `close`, `different`, or `unknown` if either has no finite value or too large a value."""
    exact = (_evaluate_exactly(left, at), _evaluate_exactly(right, at))
    if exact[0] is not None and exact[1] is not None:
        difference, size = abs(exact[0] - exact[1]), max(abs(exact[0]), abs(exact[1]))
        return (
            "same"
            if not difference
            else "close"
            if difference <= Fraction(MAX_ROUNDING_DIFFERENCE) * size
            else "different"
        )
    digits = DIGITS + int(_count_digits(left) + _count_digits(right))
    for _ in range(2):
        if digits > MAX_DIGITS:
            return "unknown"
        a, b = _evaluate_numerically(left, at, digits), _evaluate_numerically(right, at, digits)
        if a is None or b is None:
            return "unknown"
        size = max(abs(a), abs(b))
        if abs(a - b) > size * _negative_power_of_ten(digits - GUARD_DIGITS):
            return "close" if abs(a - b) <= size * MAX_ROUNDING_DIFFERENCE else "different"
        # A small term beside a large one needs the large one's digits; a single number costs little to verify.
        if at and size < 10**GUARD_DIGITS:
            return "same"
        digits += int(_log10(size)) + 1 if at else CONSTANT_DIGITS
    return "same"


def _evaluate_exactly(expression: Any, at: dict[str, Any]) -> Fraction | None:
    """Return the value of a rational expression; None if the expression is not rational, undefined or too large."""
    from sympy import Add, Mul, Pow, Rational, Symbol

    if isinstance(expression, Symbol):
        expression = at[expression.name]
    if isinstance(expression, Rational):
        return Fraction(int(expression.p), int(expression.q))
    if isinstance(expression, Pow):
        base, exponent = expression.args
        value = _evaluate_exactly(base, at) if exponent.is_Integer else None
        power = int(exponent) if value is not None else 0
        if value is None or (not value and power <= 0) or abs(power) * _count_bits(value) > MAX_BITS:
            return None
        return value**power
    if not isinstance(expression, (Add, Mul)):
        return None
    total = Fraction(0 if isinstance(expression, Add) else 1)
    for argument in expression.args:
        value = _evaluate_exactly(argument, at)
        if value is None or _count_bits(value) + _count_bits(total) > MAX_BITS:
            return None
        total = total + value if isinstance(expression, Add) else total * value
    return total


def _count_bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _evaluate_numerically(expression: Any, at: dict[str, Any], digits: int) -> Any:
    """Return the value as an mpmath number with `digits` digits; None if there is no finite value."""
    import mpmath
    from sympy import Float, Symbol

    value = expression.evalf(digits, subs={Symbol(name): number for name, number in at.items()}, maxn=2 * digits)
    if not value.is_number or not value.is_finite:
        return None
    parts = []
    for part in value.as_real_imag():
        if not part.is_Float:
            part = Float(part, digits)
        # SymPy returns one digit for a value that it cannot distinguish from zero.
        lost = part._prec < 20
        if lost and abs(part) > 10.0**-DIGITS:
            return None
        parts.append(mpmath.mpf(0) if lost else mpmath.mp.make_mpf(part._mpf_))
    with mpmath.workdps(digits + GUARD_DIGITS):
        return mpmath.mpc(*parts)


# ── what is proven ───────────────────────────────────────────────────────────


def _factor_monomial(expression: Any) -> tuple[int, dict[int, Fraction]] | None:
    """Return the sign and prime powers of a product of powers of rational numbers, without multiplying them out."""
    from sympy import Mul, Pow, Rational, factorint

    if isinstance(expression, Rational):
        top, bottom = int(expression.p), int(expression.q)
        if not top or max(abs(top), bottom).bit_length() > 200:
            return None
        powers = {prime: Fraction(power) for prime, power in factorint(abs(top), limit=10_000).items()}
        for prime, power in factorint(bottom, limit=10_000).items():
            powers[prime] = powers.get(prime, Fraction(0)) - power
        return (1 if top > 0 else -1), powers
    if isinstance(expression, Pow) and isinstance(expression.exp, Rational):
        if (base := _factor_monomial(expression.base)) is None or (base[0] < 0 and not expression.exp.is_Integer):
            return None
        exponent = Fraction(int(expression.exp.p), int(expression.exp.q))
        sign = -1 if base[0] < 0 and exponent.numerator % 2 else 1
        return sign, {prime: power * exponent for prime, power in base[1].items() if exponent}
    if not isinstance(expression, Mul):
        return None
    sign, product = 1, dict[int, Fraction]()
    for argument in expression.args:
        if (factor := _factor_monomial(argument)) is None:
            return None
        sign *= factor[0]
        for prime, power in factor[1].items():
            product[prime] = product.get(prime, Fraction(0)) + power
    return sign, {prime: power for prime, power in product.items() if power}


def _count_digits(expression: Any) -> float:
    """Return the number of decimal digits of the numbers and powers in an expression, without evaluating them."""
    from sympy import Integer, Pow, Rational, factorial, preorder_traversal

    total = 0.0
    for node in preorder_traversal(expression):
        if isinstance(node, Rational):
            total += _log10(max(abs(node.p), node.q))
        elif isinstance(node, Pow) and node.exp.is_number:
            total += abs(float(node.exp.evalf(15))) * _count_digits(node.base)
        elif isinstance(node, factorial) and isinstance(node.args[0], Integer):
            total += math.lgamma(min(float(node.args[0]), 1e9) + 1) / math.log(10) if node.args[0] > 0 else 0
    return total


def _negative_power_of_ten(power: int) -> Any:
    import mpmath

    return mpmath.mpf(10) ** -power


def _log10(number: Any) -> float:
    import mpmath

    return float(mpmath.log10(number)) if number else 0.0


def _is_proven_equal(left: Any, right: Any) -> bool:
    """Return whether SymPy simplifies the difference to zero; not attempted if SymPy would evaluate a huge number."""
    from sympy import simplify

    if _count_digits(left) + _count_digits(right) > MAX_DIGITS:
        return False
    return bool(simplify(left - right) == 0)


# ── equations and inequalities ───────────────────────────────────────────────


def _is_same_relation(left: Any, right: Any, domain: Domain) -> bool:
    """Return whether one relation is a constant multiple of the other; the constant is positive for inequalities."""
    from sympy import Eq, Ne

    symmetric = isinstance(left, (Eq, Ne))
    if _normalize_relation(left) != _normalize_relation(right):
        return False
    a, b = _subtract_sides(left), _subtract_sides(right)
    if _is_undefined(a) or _is_undefined(b):
        return False
    if symmetric and (whole := (_numerator(a), _numerator(b)))[0] is not None and whole[1] is not None:
        a, b = whole
    return _is_proportional(a, b, domain) and (symmetric or _has_same_sign(a, b, domain))


def _normalize_relation(relation: Any) -> str:
    turned = {"<": ">", "<=": ">="}
    return turned.get(relation.rel_op, str(relation.rel_op))


def _subtract_sides(relation: Any) -> Any:
    """Return the expression that the relation states to be zero or positive."""
    difference = _prepare(relation.lhs) - _prepare(relation.rhs)
    return -difference if relation.rel_op in ("<", "<=") else difference


def _numerator(expression: Any) -> Any:
    """Return `xy - 1` for `y - 1/x`; None if the denominator may vanish together with the numerator."""
    from sympy import fraction, gcd, together

    top, bottom = fraction(together(expression))
    symbols = expression.free_symbols
    if not top.is_polynomial(*symbols) or not bottom.is_polynomial(*symbols):
        return None
    return top if bottom.is_number or gcd(top, bottom).is_number else None


def _is_proportional(left: Any, right: Any, domain: Domain) -> bool:
    """Return whether `left / right` is the same at any two points, and neither is zero everywhere."""
    from sympy import Integer, Symbol

    if not left.free_symbols or left.free_symbols != right.free_symbols:
        return False
    elsewhere = {symbol: Symbol(f"{symbol.name}'") for symbol in left.free_symbols}
    other_left, other_right = left.xreplace(elsewhere), right.xreplace(elsewhere)
    if any(_compare_expressions(side, Integer(0), domain) != "different" for side in (left, right)):
        return False
    return _compare_expressions(left * other_right, right * other_left, domain) == "same"


def _has_same_sign(left: Any, right: Any, domain: Domain) -> bool:
    names = sorted(symbol.name for symbol in left.free_symbols)
    for at in _generate_points(names, left, right, domain):
        a, b = _evaluate_numerically(left, at, DIGITS), _evaluate_numerically(right, at, DIGITS)
        if a and b:
            return bool((a / b).real > 0)
    return False


def main() -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _raise_out_of_time)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("sympy", "math_verify"):  # a slow machine's import is no part of a comparison's CPU time
        importlib.import_module(name)
    for line in sys.stdin:
        gold, answer, bounds = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + KILL_S, resource.RLIM_INFINITY))
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
            try:
                verdict = compare(gold, answer, bounds)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except Exception as error:  # noqa: BLE001 (SymPy's are of every kind; each means "cannot tell")
            logging.debug("%s", error)
            verdict = "?"
        except OutOfTime:
            verdict = "?"
        sys.stdout.write(verdict + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
