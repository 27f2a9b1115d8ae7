"""Read numbers exactly, from LaTeX or plain text, as fractions."""

from __future__ import annotations

import re
from fractions import Fraction

_MAX_DIGITS = 400
_MAX_EXPONENT = 400
_DECIMAL = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,4}))?")
_POWER_OF_TEN = re.compile(r"(.+?)(?:\\times|\\cdot|[x×*·])(?:10)\^\{?([+-]?\d{1,4})\}?")
_FRACTION = re.compile(r"([+-]?)(\d*)\\frac\{([+-]?[\d.,]+)\}\{([+-]?[\d.,]+)\}")
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\(?:overline|dot)\{?(\d+)\}?")
_SLASH = re.compile(r"([+-]?)(?:(\d+)[ ]+)?([\d.,]+)/([\d.,]+)")


def parse_decimal(text: str) -> Fraction | None:
    """Return `-1,234.5e6` as a fraction; None if `text` is not a decimal or is extremely long."""
    match = _DECIMAL.fullmatch(text)
    if not match or len(text) > _MAX_DIGITS:
        return None
    sign, whole, rest, exponent = match.groups()
    digits = (whole or "").replace(",", "")
    if not digits and not rest:
        return None
    value = Fraction(int((digits or "0") + (rest or "")), 10 ** len(rest or ""))
    if exponent:
        if abs(int(exponent)) > _MAX_EXPONENT:
            return None
        value *= Fraction(10) ** int(exponent)
    return -value if sign == "-" else value


def parse_number(text: str) -> Fraction | None:
    r"""Read a decimal, `a/b`, `\frac{a}{b}`, a mixed number, `0.\overline{3}` or `a \times 10^{b}`; None for other
    forms."""
    text = text.strip()
    if len(text) > _MAX_DIGITS:
        return None
    if (value := parse_decimal(text.replace(" ", ""))) is not None:
        return value
    if match := _POWER_OF_TEN.fullmatch(text.replace(" ", "")):
        head = parse_decimal(match.group(1))
        if head is None or abs(int(match.group(2))) > _MAX_EXPONENT:
            return None
        return head * Fraction(10) ** int(match.group(2))
    if "." in text and (match := _REPEATING.fullmatch(text.replace(" ", ""))):
        return _make_repeating_decimal(*match.groups())
    if match := _FRACTION.fullmatch(text.replace(" ", "")) or _SLASH.fullmatch(text):
        sign, whole, top, bottom = match.groups()
        numerator, denominator = parse_decimal(top), parse_decimal(bottom)
        if numerator is None or not denominator or (whole and (numerator < 0 or denominator < 0)):
            return None
        value = Fraction(int(whole or 0)) + numerator / denominator
        return -value if sign == "-" else value
    return None


def _make_repeating_decimal(sign: str, whole: str, start: str, period: str) -> Fraction:
    tail = Fraction(int(period), 10 ** len(period) - 1) / 10 ** len(start)
    value: Fraction = Fraction(int((whole or "0") + start), 10 ** len(start)) + tail
    return -value if sign == "-" else value


def has_finite_expansion(value: Fraction) -> bool:
    """Return whether `value` has a finite decimal expansion."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def is_rounded_form(gold: Fraction, text: str) -> bool:
    """Return whether the decimal `text` is `gold` rounded or truncated to at least six digits.

    This applies only to a gold value without a finite decimal expansion: 1/3 may be written as 0.333333.
    """
    value = parse_decimal(text.replace(" ", ""))
    if value is None or "." not in text or has_finite_expansion(gold):
        return False
    mantissa = re.split("[eE]", text.replace(",", ""))[0].lstrip("+-")
    if len(mantissa.replace(".", "").lstrip("0")) < 6 or "e" in text.lower():
        return False
    scale = 10 ** len(mantissa.split(".", 1)[1])
    figures = value * scale
    return figures in (round(gold * scale), int(gold * scale))
