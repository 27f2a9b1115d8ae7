"""Python's texts as trees, whichever threads ask.

CPython 3.11 counts the depth of a tree that it builds in one place for all threads. Where a garbage collection lets a
second thread in, one of the two ends in a `SystemError` about a text that is sound (python/cpython#106905).
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_PARSING = threading.Lock()
_ATTEMPTS = 5
"""Libraries parse beside us without the lock."""


def parse(source: str, mode: str = "exec") -> Any:
    """As `ast.parse`. Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError` for what is no Python."""
    for _ in range(_ATTEMPTS - 1):
        try:
            with _PARSING:
                return ast.parse(source, mode=mode)
        except SystemError:
            continue
    with _PARSING:
        return ast.parse(source, mode=mode)


def literal(source: str) -> Any:
    """As `ast.literal_eval`. Raises what `parse` does, `ValueError` and `TypeError` for what is no literal."""
    return ast.literal_eval(parse(source.lstrip(" \t"), "eval"))
