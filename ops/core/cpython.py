"""Parsing of Python texts in threads, which CPython 3.11.0 to 3.11.7 gets wrong.

These versions count the depth of a syntax tree in one place for all threads. If a garbage collection lets a second
thread in, one of the two raises a `SystemError` for a valid text (python/cpython#106905): 3.11.7 does so for 249 of
2,000 texts that eight threads parse while garbage is collected often.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_PARSING = threading.Lock()
_ATTEMPTS = 5
"""Number of attempts, because libraries parse in other threads without the lock."""


def parse(source: str, mode: str = "exec") -> Any:
    """Parse like `ast.parse`. Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError` for invalid
    Python."""
    for _ in range(_ATTEMPTS - 1):
        try:
            with _PARSING:
                return ast.parse(source, mode=mode)
        except SystemError:
            continue
    with _PARSING:
        return ast.parse(source, mode=mode)


def evaluate_literal(source: str) -> Any:
    """Evaluate like `ast.literal_eval`. Raises the errors of `parse`, and `ValueError` and `TypeError` for other
    expressions than literals."""
    return ast.literal_eval(parse(source.lstrip(" \t"), "eval"))
