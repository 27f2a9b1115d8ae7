"""Questions in comparable forms: a normal form, word n-grams, and the parts that a light rewording keeps."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from ops.core.problem import Problem

NGRAM_TOKENS = 5
"""The number of tokens of an n-gram."""
_TOKEN = re.compile(r"\d+|[^\W\d_]+|_|[^\w\s]")
_LATEX_SPACING = re.compile(r"\\(?:[,;:!>()\[\]]|q?quad|displaystyle|textstyle|(?:left|right)(?=[(){}\[\]|./\\<>]))")
_LATEX_FRACTION = re.compile(r"\\[dt]frac")
_PUNCTUATION = re.compile(r"[$~\\?\"'`“”‘’«»]|(?<!\d)[.,:;]|[.,:;](?!\d)")
_DASHES = str.maketrans("‐‑‒–—−", "------")

_FORMATTING = {"left", "right", "text", "mathrm", "mathbf", "textbf", "textit", "quad", "qquad", "displaystyle"}
_COUNTED = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTED, start=2)}
_NEGATIONS = {"not", "no", "never", "none", "nor", "except", "without", "cannot"}
_SIGNS = frozenset("+*^=<>%×÷±≤≥≠√∑∫")
_LETTERS_OF_PROSE = frozenset("aist")
"""Single letters that also occur in prose ("a", "I", "it's", "don't"), which are no evidence of a formula."""
_ASKING = """
about above after again all also am an and any are as at be been being below between both but by can could did do
does doing down each either else every following for from further given had has have having he hence her here him
his how if in into is it its itself just let may me might more must my of off on once only or other our out over
own same shall she should since so some such than that the their them then there these they this those through
thus to too under until up upon us very was we were what when where whether which while who whom whose why will
with would you your
answer calculate choose compute consider describe determine evaluate explain find give identify kindly name
please question select solve state suppose assume tell thank thanks hello help want know like need
express reduce result show simplify value work write
"""
_COMMON = frozenset(_ASKING.split())
"""Function words and words of asking, which a light rewording adds, drops or swaps first."""


class Wording(NamedTuple):
    """The parts of a question: its `fixed` tokens (numbers, formulas, negations), sorted, and its `content` words."""

    fixed: tuple[str, ...]
    content: frozenset[str]


def join_question_and_choices(problem: Problem) -> str:
    """Return the question followed by its choices in sorted order, because reordering choices makes no new question."""
    return "\n".join([problem.question, *sorted(problem.choices)])


def make_exact_key(text: str) -> str:
    """Return a key that ignores case, Unicode form, spacing (also LaTeX's), dollar signs and punctuation.

    Signs, digits, and a point or comma between two digits are significant.
    """
    # Spaces are removed first and last, because a character's compatible form may contain one.
    plain = "".join(_fold("".join(text.split())).split())
    if "\\" in plain:
        plain = _LATEX_FRACTION.sub(r"\\frac", _LATEX_SPACING.sub("", plain))
    return _PUNCTUATION.sub("", plain) or plain


def tokenize(text: str) -> list[str]:
    """Split a text into words, numbers and single signs, ignoring case and Unicode form: `3x^2` is four tokens."""
    return _TOKEN.findall(_fold(text))


def _fold(text: str) -> str:
    """Normalise case, Unicode forms and kinds of dashes."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold().translate(_DASHES)


def split_wording(words: Sequence[str]) -> Wording:
    """Return the fixed tokens and the content words among the tokens of a question."""
    fixed: list[str] = []
    content: set[str] = set()
    before = ""
    for place, word in enumerate(words):
        part = _classify_token(word)
        if before == "\\":
            if word.isalpha() and word not in _FORMATTING:
                fixed.append("\\frac" if word in ("dfrac", "tfrac") else f"\\{word}")
        elif part == "content":
            content.add(word)
        elif part == "fixed" or (part == "sign" and _is_in_formula(words, place)):
            fixed.append(_NUMBERS.get(word, word))
        before = word
    return Wording(tuple(sorted(fixed)), frozenset(content))


@lru_cache(maxsize=1 << 16)
def _classify_token(word: str) -> Literal["content", "fixed", "sign", ""]:
    """Return the kind of a token; a "sign" is a hyphen or a slash, which is punctuation in prose and an operator in a
    formula."""
    if word in _NUMBERS or word in _NEGATIONS or word in _SIGNS or word[0].isdigit() or word[-1].isdigit():
        return "fixed"
    if word in "-/":
        return "sign"
    if len(word) == 1:
        return "fixed" if word.isalpha() and word not in _LETTERS_OF_PROSE else ""
    return "content" if word.isalpha() and word not in _COMMON else ""


def _is_in_formula(words: Sequence[str], place: int) -> bool:
    after = words[place + 1] if place + 1 < len(words) else ""
    return after == "\\" or len(after) == 1 or after[:1].isdigit()
