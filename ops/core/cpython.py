"""Workarounds for faults of CPython 3.11: parsing in threads, and possessive quantifiers.

CPython 3.11 counts the depth of a syntax tree in one place for all threads. If a garbage collection lets a second
thread in, one of the two raises a `SystemError` for a valid text (python/cpython#106905). CPython 3.11.0 to 3.11.4
match possessive quantifiers of groups wrongly (python/cpython#106052).
"""

from __future__ import annotations

import ast
import re
import sys
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


def literal(source: str) -> Any:
    """Evaluate like `ast.literal_eval`. Raises the errors of `parse`, and `ValueError` and `TypeError` for other
    expressions than literals."""
    return ast.literal_eval(parse(source.lstrip(" \t"), "eval"))


WRONG = (3, 11) <= sys.version_info < (3, 11, 5)
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)([*+?])\+|\)|.", re.DOTALL)


def possessive(pattern: str) -> str:
    """Return the pattern for this Python version: if necessary, the atomic `(?>(…)*)` replaces `(…)*+`."""
    return atomic(pattern) if WRONG else pattern


def atomic(pattern: str) -> str:
    """Return the pattern with atomic groups in place of possessive quantifiers."""
    pieces: list[str] = []
    opened: list[int] = []
    for match in _PIECE.finditer(pattern):
        piece = match[0]
        if piece == "(":
            opened.append(len(pieces))
        elif piece[0] == ")":
            begin = opened.pop()
            if match[1]:
                pieces[begin] = f"(?>{pieces[begin]}"
                piece = f"){match[1]})"
        pieces.append(piece)
    return "".join(pieces)
