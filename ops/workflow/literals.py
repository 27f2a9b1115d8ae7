"""Read a list of Python literals from a text in linear time and without evaluating code, or name the failure.

Reading takes linear time because `LIST_PATTERN` never reads a character as part of two lists. A list, or a text that
begins like one, is consumed up to the point where it fails. A string without an end is read again as other text, but
the characters that were searched for its end contain no other quote that could begin a string of the same kind. Every
quantifier is possessive, so the pattern never backtracks.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from typing import cast

from ops.core.cpython import evaluate_literal
from ops.workflow.escapes import unescape_text

Value = int | float | str | list["Value"]
"""A literal that a list may contain."""

MAX_CHARACTERS = 65_536
"""The largest number of characters of a list that is read."""
MAX_TOKENS = 256
"""The largest number of brackets, commas, numbers and strings in a list, unless the caller allows more."""


class FormatFailure(StrEnum):
    """The reasons why a text contains no valid workflow. Training counts each of them."""

    NO_ASSIGNMENT = "no_assignment"
    """The text assigns no value to any of the three names."""
    MAPPING = "mapping"
    """The names are keys in quotes, because the text contains JSON or a dictionary instead of three lists."""
    YAML = "yaml"
    """A name is followed by a YAML list, in which each item has a line that begins with `-`."""
    MISSING_MODEL_ID = "missing_model_id"
    """The text assigns no value to `model_id`, but to another of the names."""
    MISSING_SUBTASKS = "missing_subtasks"
    """The text assigns no value to `subtasks`, but to another of the names."""
    MISSING_ACCESS_LIST = "missing_access_list"
    """The text assigns no value to `access_list`, but to another of the names."""
    NOT_A_LIST = "not_a_list"
    """A name is assigned a value that is not a list."""
    TUPLE = "tuple"
    """A name is assigned values in round brackets."""
    UNBRACKETED = "unbracketed"
    """A name is assigned values with commas and no brackets."""
    UNBALANCED = "unbalanced"
    """A bracket or a string has no end, usually because the text was truncated."""
    UNQUOTED = "unquoted"
    """A list contains a word outside of quotes, such as a text, or a name or call, which is not evaluated."""
    NOT_A_LITERAL = "not_a_literal"
    """A list contains something other than strings, numbers and lists of these."""
    AMBIGUOUS = "ambiguous"
    """Each name has a list, but the lists cannot be grouped into blocks of three, or can be grouped in several ways."""
    TOO_DEEP = "too_deep"
    """A list contains a list of lists."""
    TOO_LONG = "too_long"
    """A list exceeds the limit on characters or on elements."""
    EMPTY = "empty"
    """The three lists are empty, which is allowed only in a later round."""
    LENGTH_MISMATCH = "length_mismatch"
    """The three lists differ in length."""
    TOO_MANY_STEPS = "too_many_steps"
    """The lists have more entries than a workflow may have steps."""
    BAD_WORKER = "bad_worker"
    """An element of `model_id` is not an integer."""
    UNKNOWN_WORKER = "unknown_worker"
    """An element of `model_id` is not the ordinal of a worker on offer."""
    BAD_SUBTASK = "bad_subtask"
    """An element of `subtasks` is not text."""
    EMPTY_SUBTASK = "empty_subtask"
    """An element of `subtasks` is empty."""
    BAD_ACCESS = "bad_access"
    """An element of `access_list` is not one of the forms of access that the mode allows."""
    ACCESS_NOT_EARLIER = "access_not_earlier"
    """An element of `access_list` refers to the step itself or to a later one."""
    CUT_OFF = "cut_off"
    """The completion reached the limit of tokens before its end. Training counts this; parsing alone cannot find it."""


DEFECT_WORDS = {
    FormatFailure.NOT_A_LIST: "no list",
    FormatFailure.TUPLE: "in round brackets, not in square ones",
    FormatFailure.UNBRACKETED: "values with commas, but no brackets around them",
    FormatFailure.YAML: "a list of YAML",
    FormatFailure.UNBALANCED: "not closed: a bracket or a string does not end",
    FormatFailure.UNQUOTED: "a list with a word outside of quotes",
    FormatFailure.NOT_A_LITERAL: "no list of Python literals",
    FormatFailure.TOO_DEEP: "nested too deeply",
    FormatFailure.TOO_LONG: f"longer than {MAX_CHARACTERS} characters, or of too many elements",
}
"""The failures of a single assignment, each with a phrase that describes the value for a person."""

# Curly quotes are read only in pairs. A string in “…” may contain such pairs, and one in ‘…’ may not.
_STRING = r"""(?:[rRuU]?+(?:
    \"{3}(?:[^"\\]++|\\.|"(?!""))*+\"{3} | '{3}(?:[^'\\]++|\\.|'(?!''))*+'{3}
  | "(?!"")(?:[^"\\\n]++|\\.)*+"         | '(?!'')(?:[^'\\\n]++|\\.)*+'
  ) | “(?:[^“”\\\n]++|\\.|“[^“”\\\n]*+”)*+” | ‘(?:[^‘’\\\n]++|\\.)*+’
)"""
_NUMBER = r"[+-]?+[0-9][0-9.]{0,18}+(?![\w.])"
_COMMENT = r"\#[^\n]*+"
_SEPARATORS = r"[ \t\r\n\f,]*+"
# Each iteration takes an item together with its separators, which halves the number of iterations and the time.
_FLAT_ITEMS = rf"{_SEPARATORS}(?:(?:{_NUMBER}|{_STRING}|{_COMMENT}){_SEPARATORS})*+"
PATTERN_FLAGS = re.VERBOSE | re.DOTALL

_ITEMS = rf"(?:(?:{_NUMBER}|\[{_FLAT_ITEMS}\]|{_STRING}|{_COMMENT}){_SEPARATORS})*+"
LIST_PATTERN = rf"\[{_SEPARATORS}{_ITEMS}(?:(?P<closed>\])|\[{_FLAT_ITEMS}|)"
"""A pattern for a list in square brackets, or for the part of it that can be read. The group `closed` matches only if
the list is complete. The pattern needs `PATTERN_FLAGS`."""

_ELEMENT = re.compile(
    rf"""(?P<comment>{_COMMENT}) | (?P<raw>[rR](?=["']){_STRING}) | (?P<string>{_STRING}) | {_NUMBER} | [\[\],]""",
    PATTERN_FLAGS,
)
_NEEDS_TRANSLATION = re.compile(r"[\\#\r“‘]")


def parse_list(source: str, max_tokens: int) -> tuple[list[Value] | FormatFailure, int]:
    """Return the list in `source` or the failure, and the number of tokens that were examined.

    `source` must be a complete match of `LIST_PATTERN`. `max_tokens` is the largest allowed number of tokens.
    """
    if len(source) > MAX_CHARACTERS:
        return FormatFailure.TOO_LONG, 1
    tokens = len(source)  # an upper bound, which spares the counting for the usual short list
    if tokens > max_tokens:
        tokens = sum(1 for _ in islice(_ELEMENT.finditer(source), max_tokens + 1))
    if tokens > max_tokens:
        return FormatFailure.TOO_LONG, tokens
    if "\0" in source:
        return FormatFailure.NOT_A_LITERAL, tokens
    try:
        value = evaluate_literal(
            _ELEMENT.sub(_to_python_literal, source) if _NEEDS_TRANSLATION.search(source) else source
        )
    except (SyntaxError, ValueError):  # a missing comma, a leading zero, a lone surrogate
        return FormatFailure.NOT_A_LITERAL, tokens
    return cast("list[Value]", value), tokens


def _to_python_literal(part: re.Match[str]) -> str:
    """Return nothing for a comment, and a Python literal of the same text for a string that is not a raw one."""
    if part["comment"] is not None:
        return ""
    if part["string"] is None:
        return part[0]
    quoted = part[0].lstrip("uU")
    quotes = 3 if quoted.startswith(('"' * 3, "'" * 3)) else 1
    return repr(unescape_text(quoted[quotes:-quotes]))
