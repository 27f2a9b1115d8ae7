"""Read one list of Python literals out of a text, without evaluating anything, in linear time; name what fails.

Why linear: `LIST_PATTERN` never reads a character as part of two lists: a list, or an apparent
beginning of one, is consumed up to where it fails. A string without an end is given back, but the
stretch that was searched for its end holds no other quote that could open a string of its kind. Every
quantifier is possessive, so nothing backtracks.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from typing import cast

from ops.core.cpython import evaluate_literal
from ops.workflow.escapes import unescape_text

Value = int | float | str | list["Value"]

MAX_CHARACTERS = 65_536
"""Longest list that is read."""
MAX_TOKENS = 256
"""Most brackets, commas, numbers and strings in a list that is read, unless the caller expects more."""


class FormatFailure(StrEnum):
    """Why a text is no workflow; training counts each of them."""

    NO_ASSIGNMENT = "no_assignment"
    """None of the three names is assigned anything."""
    MAPPING = "mapping"
    """Names are keys in quotes: JSON or a dictionary instead of three lists."""
    YAML = "yaml"
    """A name is followed by a list of YAML, one `-` an item."""
    MISSING_MODEL_ID = "missing_model_id"
    MISSING_SUBTASKS = "missing_subtasks"
    MISSING_ACCESS_LIST = "missing_access_list"
    NOT_A_LIST = "not_a_list"
    """A name is assigned something else than a list."""
    TUPLE = "tuple"
    """A name is assigned values in round brackets."""
    UNBRACKETED = "unbracketed"
    """A name is assigned values with commas and no brackets."""
    UNBALANCED = "unbalanced"
    """A bracket or a string does not end (truncated, as a rule)."""
    UNQUOTED = "unquoted"
    """A list holds a word outside of quotes: text without them, or a name or call, which is not evaluated."""
    NOT_A_LITERAL = "not_a_literal"
    """A list holds something else than strings, numbers and lists of them."""
    AMBIGUOUS = "ambiguous"
    """Each name has a list, but which three belong together can be read in more than one way, or in none."""
    TOO_DEEP = "too_deep"
    TOO_LONG = "too_long"
    """A list is beyond the reader's limits on characters or elements."""
    EMPTY = "empty"
    """Three empty lists outside a recursive round."""
    LENGTH_MISMATCH = "length_mismatch"
    TOO_MANY_STEPS = "too_many_steps"
    BAD_WORKER = "bad_worker"
    """An element of model_id is no integer."""
    UNKNOWN_WORKER = "unknown_worker"
    """An integer that is not among the offered ordinals."""
    BAD_SUBTASK = "bad_subtask"
    """An element of subtasks is not text."""
    EMPTY_SUBTASK = "empty_subtask"
    BAD_ACCESS = "bad_access"
    """Not one of the forms of access that the mode allows."""
    ACCESS_NOT_EARLIER = "access_not_earlier"
    """Fine-grained access to the step itself or to a later one."""
    CUT_OFF = "cut_off"
    """The completion reached the limit of tokens before its end: counted in training, not visible in the text."""


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
"""Failures of one assignment: the reason why its value is no list that can be read, in words."""

# Curly quotes are read where they pair up: “…” with whole pairs inside, ‘…’ with none.
_STRING = r"""(?:[rRuU]?+(?:
    \"{3}(?:[^"\\]++|\\.|"(?!""))*+\"{3} | '{3}(?:[^'\\]++|\\.|'(?!''))*+'{3}
  | "(?!"")(?:[^"\\\n]++|\\.)*+"         | '(?!'')(?:[^'\\\n]++|\\.)*+'
  ) | “(?:[^“”\\\n]++|\\.|“[^“”\\\n]*+”)*+” | ‘(?:[^‘’\\\n]++|\\.)*+’
)"""
_NUMBER = r"[+-]?+[0-9][0-9.]{0,18}+(?![\w.])"
_COMMENT = r"\#[^\n]*+"
_SEPARATORS = r"[ \t\r\n\f,]*+"
# Each turn of a loop takes an item with what follows it: half the turns, half the time.
_FLAT_ITEMS = rf"{_SEPARATORS}(?:(?:{_NUMBER}|{_STRING}|{_COMMENT}){_SEPARATORS})*+"
PATTERN_FLAGS = re.VERBOSE | re.DOTALL

_ITEMS = rf"(?:(?:{_NUMBER}|\[{_FLAT_ITEMS}\]|{_STRING}|{_COMMENT}){_SEPARATORS})*+"
LIST_PATTERN = rf"\[{_SEPARATORS}{_ITEMS}(?:(?P<closed>\])|\[{_FLAT_ITEMS}|)"
"""A list in square brackets (group `closed`), or as far as it is one; for a pattern with `PATTERN_FLAGS`."""

_ELEMENT = re.compile(
    rf"""(?P<comment>{_COMMENT}) | (?P<raw>[rR](?=["']){_STRING}) | (?P<string>{_STRING}) | {_NUMBER} | [\[\],]""",
    PATTERN_FLAGS,
)
_NEEDS_TRANSLATION = re.compile(r"[\\#\r“‘]")


def parse_list(source: str, max_tokens: int) -> tuple[list[Value] | FormatFailure, int]:
    """The list in `source`, which `LIST_PATTERN` matched and which is closed, and how many tokens were examined."""
    if len(source) > MAX_CHARACTERS:
        return FormatFailure.TOO_LONG, 1
    tokens = len(source)  # at most: a short list, the usual one, need not be counted
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
    """A comment is dropped; a string that is no raw one becomes the Python literal of the text that it spells."""
    if part["comment"] is not None:
        return ""
    if part["string"] is None:
        return part[0]
    quoted = part[0].lstrip("uU")
    quotes = 3 if quoted.startswith(('"' * 3, "'" * 3)) else 1
    return repr(unescape_text(quoted[quotes:-quotes]))
