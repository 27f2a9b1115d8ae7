"""Orders: sentences that put one thing before another, and a question for a place in the row."""

from __future__ import annotations

import itertools
import re

from ops.synthetic.generalists.mind import MethodResult, Mind

_ABOVE = r"\b(\w+) (?:is taller than|melts at more heat than) (\w+)"
_BELOW = r"\b(\w+) (?:is shorter than|melts at less heat than) (\w+)"
_PLACE = re.compile(r"(second )?(tallest|shortest|last to melt|first to melt)\?", re.IGNORECASE)


def order(mind: Mind) -> MethodResult | None:
    """Put the things in a row that agrees with as many sentences as possible, as they were read."""
    text = mind.task.question
    place = _PLACE.search(text)
    if place is None:
        return None
    pairs: list[tuple[str, str]] = []
    for match in re.finditer(f"{_ABOVE}|{_BELOW}", text):
        above = (match[1], match[2]) if match[1] else (match[4], match[3])
        index = len(pairs)
        if mind.misreads(index, match[0]):
            mind.chance.note("reading", f"clause {index + 1}", f"{match[0]} was read the other way round")
            above = (above[1], above[0])
        pairs.append(above)
    names = sorted({name for pair in pairs for name in pair})
    if not 2 <= len(names) <= 7:
        return None
    rows = list(itertools.permutations(names))
    held = [sum(row.index(high) < row.index(low) for high, low in pairs) for row in rows]
    best = [row for row, count in zip(rows, held, strict=True) if count == max(held)]
    row = mind.chance.pick(best, "reading", "the row")
    if place[2].lower() in ("shortest", "first to melt"):
        row = row[::-1]
    return MethodResult(row[1 if place[1] else 0], "", (f"I put them in a row: {', '.join(row)}.",))
