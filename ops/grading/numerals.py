"""Numbers written as words: "twenty-five", "two hundred and six", "three quarters"."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
VALUES = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * (n + 2) for n, word in enumerate(_TENS)}
_PARTS = {
    "half": 2,
    "halve": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
}
_WORD = re.compile(r"[\s-]*([A-Za-z]+)")


def read(text: str) -> tuple[Fraction | None, str]:
    """The number that `text` begins with and what follows it; None where it begins with none.

    Scales above a hundred are left to who reads the rest ("two million" gives 2 and "million").
    """
    value, position, last = 0, 0, 0
    while match := _WORD.match(text, position):
        word = match[1].lower()
        if word in VALUES and (last == 0 or (last >= 20 and VALUES[word] < 10) or last == 100):
            value, last = value + VALUES[word], VALUES[word] or 1
        elif word == "hundred" and 0 < value < 10:
            value, last = value * 100, 100
        elif word == "and" and last == 100 and (after := _WORD.match(text, match.end())) and after[1].lower() in VALUES:
            pass
        elif (part := _PARTS.get(word.removesuffix("s"))) and (last or word == "half"):
            return Fraction(value or 1, part), text[match.end() :].strip().removeprefix("of ").removeprefix(
                "a "
            ).strip()
        else:
            break
        position = match.end()
    return (Fraction(value), text[position:].strip()) if position else (None, text)


_SIGN = re.compile(r"(?:minus|negative)\s+", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm)\s*\{([^{}]*)\}")
_SCALE = re.compile(r"(?:thousand|million|billion|trillion)?")


def in_figures(text: str) -> str:
    r"""`42` for `forty-two` or `\text{forty-two}`; any other text as it is."""
    words = _TEXT.sub(r"\1", text).strip(" .$*")
    sign = _SIGN.match(words)
    value, rest = read(words[sign.end() :] if sign else words)
    if value is None or not _SCALE.fullmatch(rest):
        return text
    return f"{'-' if sign else ''}{value} {rest}".strip()
