"""Possessive quantifiers of groups, for CPython 3.11.0 to 3.11.4, which match them wrongly (python/cpython#106052)."""

from __future__ import annotations

import re
import sys

WRONG = (3, 11) <= sys.version_info < (3, 11, 5)
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)([*+?])\+|\)|.", re.DOTALL)


def possessive(pattern: str) -> str:
    """The pattern as this Python is to be given it: where it must be, `(…)*+` stands as the atomic `(?>(…)*)`."""
    return atomic(pattern) if WRONG else pattern


def atomic(pattern: str) -> str:
    """The same with atomic groups in place of groups that are quantified possessively."""
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
