"""Questions as things to compare: normal forms and word n-grams.

What belongs here: when two questions count as the same text. What does not:
finding such pairs among many (`duplicates`).
"""

from __future__ import annotations

import re
import unicodedata

from ops.problem import Problem

SHINGLE = 5
"""Tokens in one n-gram."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


def full_text(problem: Problem) -> str:
    """The question and its choices in sorted order: reordering the choices does not make a new question."""
    return "\n".join([problem.question, *sorted(problem.choices)])


def exact_key(text: str) -> str:
    """Equal for texts that differ only in case, white space and Unicode form. Signs and digits count."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def tokens(text: str) -> list[str]:
    """Words and single signs, case and Unicode form put aside: `x^2` is three tokens."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[str]:
    """The set of 5-token windows; a shorter text is one window."""
    words = tokens(text)
    if len(words) <= SHINGLE:
        return frozenset([" ".join(words)])
    return frozenset(" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1))
