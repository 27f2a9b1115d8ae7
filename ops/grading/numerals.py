"""Read numbers written as words: "twenty-five", "two hundred and six", "three quarters"."""

from __future__ import annotations

import re
from fractions import Fraction

from ops.grading import numbers, units

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBER_WORDS = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * (n + 2) for n, word in enumerate(_TENS)}
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
_COUNTED_BY_ONE = frozenset({"hundred", "dozen", *_PARTS})
_WORD = re.compile(r"[\s-]*([A-Za-z]+)")
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SIGN = re.compile(r"(?:minus|negative)\s+(?=[A-Za-z])", re.IGNORECASE)
_AND_PART = re.compile(r"[\s-]+and[\s-]+(?:a|one)[\s-]+(" + "|".join(_PARTS) + r")\b", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm)\s*\{([^{}]*)\}")
_SCALED = re.compile(r"(?:thousand|million|billion|trillion|dozen)?")
_TO = re.compile(r"\s*:\s*|(?:\s+|-)to(?:\s+|-)", re.IGNORECASE)


def read_number_words(text: str) -> tuple[Fraction | None, str]:
    """Return the number in words at the beginning of `text`, and the text after it; None if there is no number.

    A last scale above a hundred belongs to the text after the number: "two million" gives 2 and "million".
    """
    sign = _SIGN.match(text)
    value, rest = _read_unsigned_words(text[sign.end() :] if sign else text)
    if value is None:
        return None, text
    return (-value if sign else value), rest


def _read_unsigned_words(text: str) -> tuple[Fraction | None, str]:
    total, value, position, last, smallest = 0, 0, 0, 0, 10**15  # `total` ends with a scale, `value` follows it
    while match := _WORD.match(text, position):
        word = match[1].lower()
        following = _word_at(text, match.end())
        if word in NUMBER_WORDS and (last == 0 or (last >= 20 and NUMBER_WORDS[word] < 10) or last == 100):
            value, last = value + NUMBER_WORDS[word], NUMBER_WORDS[word] or 1
        elif word in ("a", "an") and not position and (following in _SCALES or following in _COUNTED_BY_ONE):
            value, last = 1, 1
        elif word == "hundred" and 0 < value < 100 and (value < 10 or value % 10):
            value, last = value * 100, 100
        elif word == "and" and (last == 100 or (total and not last)) and following in NUMBER_WORDS:
            pass
        elif (
            (scale := _SCALES.get(word, 0))
            and last
            and scale < smallest
            and _is_followed_by_smaller_number(text, match.end(), scale)
        ):
            total, value, last, smallest = total + value * scale, 0, 0, scale
        elif (part := _PARTS.get(word.removesuffix("s"))) and not total and (last or word == "half"):
            rest = text[match.end() :].strip().removeprefix("of ").removeprefix("a ").strip()
            return Fraction(value or 1, part), rest
        else:
            break
        position = match.end()
    if not position:
        return None, text
    number = Fraction(total + value)
    if last and (part_of := _AND_PART.match(text, position)):
        return number + Fraction(1, _PARTS[part_of[1].lower()]), text[part_of.end() :].strip()
    return number, text[position:].strip()


def _word_at(text: str, position: int) -> str:
    match = _WORD.match(text, position)
    return match[1].lower() if match else ""


def _is_followed_by_smaller_number(text: str, position: int, scale: int) -> bool:
    """Return whether a smaller number follows a scale: "one thousand two hundred", "two million five thousand"."""
    value, _ = _read_unsigned_words(text[position:].lstrip(" -").removeprefix("and "))
    return value is not None and value.denominator == 1 and 0 < value < scale


def parse_ratio(text: str) -> tuple[Fraction, Fraction] | None:
    """Return the two numbers of `3:2`, `3 to 2` or "three to two"; None if `text` is anything else."""
    sides = [_parse_side(side) for side in _TO.split(text.strip())]
    return (sides[0], sides[1]) if len(sides) == 2 and sides[0] is not None and sides[1] is not None else None


def _parse_side(text: str) -> Fraction | None:
    value, rest = read_number_words(text)
    return value if value is not None and not rest else numbers.parse_decimal(text)


def write_in_figures(text: str) -> str:
    r"""Return `42` for `forty-two` or `\text{forty-two}`, `3:2` for `3 to 2`; any other text is unchanged."""
    words = _TEXT.sub(r"\1", text).strip(" .$*")
    value, rest = read_number_words(words)
    if value is not None and _SCALED.fullmatch(rest):
        return f"{value} {rest}".strip()
    if value is not None and len(rest) > 2 and units.parse_unit(rest) is not None:
        return rf"{value}\text{{ {rest}}}"
    if (sides := parse_ratio(words)) and ":" not in words:
        return f"{sides[0]}:{sides[1]}"
    return text
