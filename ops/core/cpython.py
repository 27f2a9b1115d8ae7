"""Parse Python source in threads safely under CPython 3.11.0 to 3.11.7.

These versions count the depth of a syntax tree in a variable that all threads share. If garbage collection switches
threads during a parse, one of the two threads raises `SystemError` for valid source (python/cpython#106905). With eight
threads and frequent garbage collection, 3.11.7 does so for 249 of 2,000 texts.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_PARSING = threading.Lock()
_ATTEMPTS = 5
"""A parse is attempted this often, because libraries parse in other threads without holding the lock."""


def parse(source: str, mode: str = "exec") -> Any:
    """Return the syntax tree of `source`, like `ast.parse`.

    Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError` if the source is not valid Python.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            with _PARSING:
                return ast.parse(source, mode=mode)
        except SystemError:
            continue
    with _PARSING:
        return ast.parse(source, mode=mode)


def evaluate_literal(source: str) -> Any:
    """Return the value of a Python literal, like `ast.literal_eval`.

    Raises the errors of `parse`, and `ValueError` or `TypeError` for an expression that is not a literal.
    """
    return ast.literal_eval(parse(source.lstrip(" \t"), "eval"))
