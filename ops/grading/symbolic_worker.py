"""The process in which SymPy works: reads pairs of expressions, answers whether they are equal.

One JSON line in (`[gold, answer]`), one line out (`1`, `0`, or `?` for neither).
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from types import FrameType
from typing import Any

CPU_S = 3.0
MEMORY_BYTES = 2 << 30
POINTS = (0.7310585786, -1.3169578969, 2.4342944819)
"""Values for the first unknown, without a pattern; the others lie one further each."""


class OutOfTime(BaseException):
    """Not an `Exception`: math-verify swallows those."""


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _expressions(text: str) -> list[Any]:
    from latex2sympy2_extended.math_normalization import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    # Units are split off before; math-verify's own list of them holds letters: `4t` would be 4.
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


def equal(gold: str, answer: str) -> str:
    """`1` when math-verify finds the two equal, `0` when not, `?` when either cannot be read."""
    from math_verify import verify

    left, right = _expressions(gold), _expressions(answer)
    if not left or not right:
        return "?"
    # Values at a few points are far cheaper than a simplification, and what differs at one is not equal.
    if (verdict := _by_points(left[0], right[0])) != "?":
        return verdict
    return "1" if verify(left, right, timeout_seconds=None) and _as_close(left[0], right[0]) else "0"


def _by_points(left: Any, right: Any) -> str:
    """`0` when two expressions differ at one point, `1` when they agree at all, `?` where values do not tell."""
    from sympy import Expr, Float

    if not isinstance(left, Expr) or not isinstance(right, Expr):
        return "?"
    names = sorted({symbol.name for side in (left, right) for symbol in side.free_symbols})
    agree = True
    for point in POINTS if names else POINTS[:1]:
        at = {name: Float(point + (index if point > 0 else -index)) for index, name in enumerate(names)}
        values = [
            side.subs({symbol: at[symbol.name] for symbol in side.free_symbols}).evalf(15) for side in (left, right)
        ]
        if not all(value.is_number and value.is_finite for value in values):
            return "?"
        a, b = (complex(value) for value in values)
        if abs(a - b) > 1e-5 * max(abs(a), abs(b)):
            return "0"
        agree = agree and abs(a - b) <= 1e-12 * max(abs(a), abs(b))
    return "1" if agree else "?"


def _as_close(left: Any, right: Any) -> bool:
    """math-verify rounds to six places, which makes small numbers equal: compare those relatively."""
    if not all(getattr(value, "is_number", False) for value in (left, right)):
        return True
    a, b = complex(left.evalf(15)), complex(right.evalf(15))
    return abs(a - b) <= 1e-5 * max(abs(a), abs(b))


def main() -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _out_of_time)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
            try:
                verdict = equal(gold, answer)
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
