"""Read what a question states about its unknowns: "k > 0", "positive real numbers a and b", "0 < x < 1"."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from ops.grading import latex

VariableDomains = tuple[tuple[str, str, str], ...]
r"""The name of each unknown (`k`, `\alpha`) and the two ends of the open interval of its values; "" for no bound."""

_NAME = r"(?:\\(?:" + "|".join(latex.GREEK) + r")(?![A-Za-z])|(?<![A-Za-z\\])[A-Za-z](?![\w'’]))"
_NAMES = rf"{_NAME}(?:\s*(?:,\s*(?:and\s+)?|\band\s+){_NAME})*"
_NUMBER = r"-?\d+(?:\.\d+)?(?:/[1-9]\d*)?"
_BEFORE = r"(?<![\w)}\]'|^+*/=<>\\-])(?<![+*/=<>|^-]\s)(?<![A-Za-z]\()"
"""The name begins there: it is no part of a sum, a product, an argument or a chain."""
_AFTER = r"(?!\s*[-+*/^(\\{!<>]|\.?\d|\s*[A-Za-z]\s*[<>=]|[A-Za-z])"
_BOUND = re.compile(rf"{_BEFORE}(?P<names>{_NAMES})\s*(?P<sign>[<>])\s*(?P<number>{_NUMBER}){_AFTER}")
_CHAIN = re.compile(
    rf"(?<![\w)}}\]+*/^.=<>-])(?P<low>{_NUMBER})\s*(?P<sign>[<>])\s*(?P<names>{_NAMES})"
    rf"(?:\s*(?P=sign)\s*(?P<high>{_NUMBER}))?{_AFTER}"
)
_KIND = r"(?P<kind>positive|non-?negative|negative)"
_NOUN = (
    r"(?:\s+(?:real|rational|whole|integer|constant|fixed|finite))*"
    r"\s+(?:numbers?|reals?|integers?|constants?|variables?|parameters?)"
)
_WORDS = (
    re.compile(rf"\b{_KIND}{_NOUN}\s+(?P<names>{_NAMES})", re.I),
    re.compile(rf"\bfor\s+(?:all\s+|every\s+|any\s+)?{_KIND}\s+(?P<names>{_NAMES})", re.I),
    re.compile(rf"{_BEFORE}(?P<names>{_NAMES})\s+(?:is|are|be|denotes?|represents?)\s+(?:an?\s+|all\s+|both\s+|some\s+)?"
               rf"(?:real\s+and\s+|fixed\s+)?{_KIND}\b(?!\s+(?:or|if|when|multiple|power)\b)", re.I),
)  # fmt: skip
_SPELLINGS = (
    (re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL), " "),
    (re.compile(r"\$|\\[(),;:! ]|\\q?quad(?![A-Za-z])|\\left(?![A-Za-z])|\\right(?![A-Za-z])"), " "),
    (re.compile(r"\\g(?:e|eq|eqslant|t)(?![A-Za-z])|≥|>="), ">"),
    (re.compile(r"\\l(?:e|eq|eqslant|t)(?![A-Za-z])|≤|<="), "<"),
)  # fmt: skip
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n{2,}")
_CASE_OR_QUESTION = re.compile(
    r"\bor\b|\botherwise\b|\b(?:whether|which|what)\b[^.]*[<>]|^\s*(?:is|are|does|do)\b", re.IGNORECASE
)
"""A sentence that states several cases, or asks whether one holds."""


@lru_cache(maxsize=1024)
def find_variable_domains(question: str) -> VariableDomains:
    """Return the unknowns that a question bounds by numbers, sorted; those with contradictory bounds are left out.

    A value at the bound itself (`x ≥ 0`) does not matter, because expressions are compared at generic points.
    """
    for pattern, spelling in _SPELLINGS:
        question = pattern.sub(spelling, question)
    low: dict[str, Fraction] = {}
    high: dict[str, Fraction] = {}
    for sentence in _SENTENCE.split(question):
        if _CASE_OR_QUESTION.search(sentence):
            continue
        for names, above, below in _find_bounds(sentence):
            for name in re.findall(_NAME, names):
                if above is not None:
                    low[name] = max(above, low.get(name, above))
                if below is not None:
                    high[name] = min(below, high.get(name, below))
    unknowns = sorted({*low, *high} - {"e", "i"})
    possible = [name for name in unknowns if name not in low or name not in high or low[name] < high[name]]
    return tuple((name, str(low.get(name, "")), str(high.get(name, ""))) for name in possible)


def _find_bounds(sentence: str) -> list[tuple[str, Fraction | None, Fraction | None]]:
    found: list[tuple[str, Fraction | None, Fraction | None]] = []
    for match in _BOUND.finditer(sentence):
        value = Fraction(match["number"])
        found.append((match["names"], value, None) if match["sign"] == ">" else (match["names"], None, value))
    for match in _CHAIN.finditer(sentence):
        ends = (Fraction(match["low"]), Fraction(match["high"]) if match["high"] else None)
        above, below = ends if match["sign"] == "<" else ends[::-1]
        found.append((match["names"], above, below))
    for pattern in _WORDS:
        for match in pattern.finditer(sentence):
            zero = Fraction(0)
            is_negative = match["kind"].lower() == "negative"
            found.append((match["names"], None, zero) if is_negative else (match["names"], zero, None))
    return found
