r"""Parts of a response: what follows its thought, `\boxed{…}`, formulas, the last line."""

from __future__ import annotations

import re
from typing import NamedTuple

TAIL = 60_000
"""Characters of a response that are read, from its end, where the answer is."""

_BOXED = re.compile(r"\\(?:f?boxed|fbox|framebox)[ \t]*$")
_BOXED_BARE = re.compile(r"\\f?boxed[ \t]+([^\s{}$\\]+)")
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
FORMULA = re.compile(
    r"(?<!\\)\$\$((?:\\.|[^$\\]){1,2000})\$\$|(?<!\\)\$((?:\\[^\n]|[^$\\\n]){1,2000})\$"
    r"|\\\(((?:\\\\|(?!\\[()])[^\n]){1,2000})\\\)|\\\[((?:\\\\|(?!\\[\[\]]).){1,2000})\\\]",
    re.DOTALL,
)
"""A formula between its signs; a dollar sign behind a backslash is money."""


def tail(response: str) -> str:
    """The last `TAIL` characters."""
    return response[-TAIL:]


def after_thought(text: str) -> str:
    """What follows a thought, all of the text where nothing does."""
    said = _THOUGHT.split(text)[-1]
    return said if said.strip() else text


class Boxed(NamedTuple):
    r"""One `\boxed{content}` or `\fbox{content}`: it stands from `start` to `end`."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Boxed]:
    """The balanced boxes of `text` in the order of their opening; a box inside a box comes after it."""
    if "box" not in text:
        return []
    balanced: list[Boxed] = []
    stack: list[tuple[int, int | None]] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text) and text[position + 1] in "\\{}":
            position += 2
            continue
        if char == "{":
            window = max(0, position - 14)
            command = _BOXED.search(text[window:position])
            stack.append((position, window + command.start() if command else None))
        elif char == "}" and stack:
            brace, start = stack.pop()
            if start is not None:
                balanced.append(Boxed(start, position + 1, text[brace + 1 : position].strip()))
        position += 1
    return sorted(balanced)


def boxed(response: str) -> str | None:
    r"""Content of the last balanced `\boxed{…}` (or `\fbox`), without the box; None when there is none."""
    text = tail(response)
    if balanced_boxes := boxes(text):
        return balanced_boxes[-1].content
    bare = None
    for bare in _BOXED_BARE.finditer(text):  # noqa: B007 (the last match is wanted)
        pass
    return bare.group(1) if bare else None


def last_line(response: str) -> str:
    """The last line with content."""
    for line in reversed(tail(response).splitlines()):
        if bare := line.strip().strip("*_`").strip():
            return bare
    return ""
