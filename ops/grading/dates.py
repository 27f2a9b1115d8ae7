"""Read calendar dates in the forms that name the month or begin with the year."""

from __future__ import annotations

import re
from typing import NamedTuple

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:the\s+)?(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{4})"
_WEEKDAY = r"(?:(?:on\s+)?(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s+|on\s+)?"
_FORMS = tuple(
    re.compile(_WEEKDAY + form, re.IGNORECASE)
    for form in (
        rf"{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?",
        rf"{_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?",
        rf"{_MONTH},?\s+{_YEAR}",
        r"(?P<year>\d{4})-(?P<number>0\d|1[0-2])-(?P<day>[0-3]\d)",
    )
)


class Date(NamedTuple):
    """A calendar date; the day or the year is 0 if the text lacks it."""

    year: int
    month: int
    day: int


def parse_date(text: str) -> Date | None:
    """Return the date that `text` consists of; None if it is anything else."""
    for form in _FORMS:
        if match := form.fullmatch(text.strip()):
            parts = match.groupdict()
            month = int(parts["number"]) if parts.get("number") else _MONTHS.index(parts["month"][:3].lower()) + 1
            return Date(int(parts.get("year") or 0), month, int(parts.get("day") or 0))
    return None
