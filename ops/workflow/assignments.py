"""Find the lists that a completion assigns to the three names, and the last complete block of them.

A block consists of three successive assignments, one for each name. It is complete if all three values are lists that
can be read. The last complete block counts. Successive assignments are grouped in the order of the names in the prompt,
so that `M S A M S` (the initials of the names) is one block and the beginning of a second one that was cut off. Another
order is accepted only if it divides all successive assignments into blocks. If the assignments can be grouped in two
ways or in none, the text is ambiguous. If an incomplete list is followed by another assignment to the same name, only
the later one counts.

A regular expression reads the text once from left to right and reads no list twice. The remaining work is bounded by
constants, so that the total time is linear.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from ops.workflow.literals import LIST_PATTERN, MAX_TOKENS, PATTERN_FLAGS, FormatFailure, Value, parse_list
from ops.workflow.turn_end import find_turn_ends

NAMES = ("model_id", "subtasks", "access_list")
"""The names of the three lists in the order of the prompt."""

_MAX_ASSIGNMENTS = 2048
"""The largest number of assignments that are examined, counted from the last one backwards."""
_MAX_LISTS = 24
"""The number of lists of the largest size that are parsed, counted from the last assignment backwards."""
_LIST_OVERHEAD = 16
"""The cost of examining a list in addition to its tokens, expressed in tokens."""

_SPELLINGS = ("[Mm][Oo][Dd][Ee][Ll][_ ][Ii][Dd]", "[Ss][Uu][Bb][Tt][Aa][Ss][Kk][Ss]",
              "[Aa][Cc][Cc][Ee][Ss][Ss][_ ][Ll][Ii][Ss][Tt]")  # fmt: skip
_ENDS = [spelling.partition("]")[2] for spelling in _SPELLINGS]
# Every match begins with one of six letters: the search passes over the others at its greatest speed.
_NAME = "[MmSsAa](?<![\\w.].)(?P<name>" + "|".join(
    rf"(?<={spelling[: spelling.index(']') + 1]}){end}" for spelling, end in zip(_SPELLINGS, _ENDS, strict=True)
) + ")"  # fmt: skip
_BY_LETTER = {letter: name for name in NAMES for letter in (name[1], name[1].upper())}
_MARKS = (r"\*\*", r"\*", "`")


def _closing_mark(sign: str) -> str:
    """Return a pattern for the mark that ends bold, italic or code text around a name or around a name and its `sign`.

    Chat models often write names in this way.
    """
    pairs = (rf"{mark}(?<={mark}{name}{sign}{mark})" for name in _SPELLINGS for mark in _MARKS)
    return f"(?:(?=[*`])(?:{'|'.join(pairs)}))?+"


_ANNOTATION = r":[ \t]*+(?:typing\.)?+[Ll]ist[\w \t\[\],.|]{0,60}+"
_SIGN = rf"(?:(?:{_ANNOTATION})?+=(?!=)|(?P<colon>:)(?!=))"
_FENCE = r"(?:`{3}|~{3})\w{0,12}+[ \t]*+\r?\n[ \t]*+"
_GAP = rf"(?:[ \t]*+(?:\r?\n[ \t]*+)++(?:{_FENCE})?+(?=\[))?+[ \t]*+(?:`(?=\[))?+"
_IN_QUOTES = "|".join(rf"""(?<=["']{name})""" for name in _SPELLINGS)
_KEY = rf"""(?:{_IN_QUOTES})["'][ \t]*+(?P<key>:)"""
_ASSIGNMENT = re.compile(
    rf"{_NAME}(?:{_closing_mark('')}[ \t]*+{_SIGN}{_closing_mark('[:=]')}|{_KEY}){_GAP}(?P<list>{LIST_PATTERN})?+",
    PATTERN_FLAGS,
)
_AFTER_NAME = re.compile(rf"{_NAME}\W", PATTERN_FLAGS)
_CONTINUES = re.compile(r"[ \t]*+(?:\+|\*[ \t]*+[0-9]|\[)")
"""A pattern for text that continues a list as an expression, as in `[0] * 3`, `[0] + [1]` and `[0][0]`."""
_WORD = re.compile(r"""(?![bBfF][rR]?+["']|[rR][bBfF]["'])[^\W\d]""")
_OTHER_FORMS = (
    (FormatFailure.TUPLE, re.compile(r"""\((?:[ \t\n]*+(?:[\[("'“‘)]|[+-]?+[0-9]))""")),
    (FormatFailure.UNBRACKETED, re.compile(r"""(?:[+-]?+[0-9]++|"[^"\n]*+"|'[^'\n]*+'|“[^“”\n]*+”)[ \t]*+,""")),
    (FormatFailure.YAML, re.compile(r"[ \t\r]*+\n\s*+-[ \t\n]")),
)
_VALUE = re.compile(r"""[+-]?+[0-9]|["'“‘{]""")
Reading = list[Value] | FormatFailure
"""The value of an assignment, or the reason why it is not a list that can be read."""


class AssignedLists(NamedTuple):
    """The result of the search for lists in a text."""

    block: list[list[Value]] | None
    """The three lists of the last complete block in the order of `NAMES`, or None if there is no such block."""
    defects: dict[str, FormatFailure]
    """The failure of each name whose last assignment is not a list that can be read."""
    missing: tuple[str, ...] = ()
    """The names that are not assigned a value."""
    keys: tuple[str, ...] = ()
    """The names that occur in quotes and with a colon, as keys of JSON or of a dictionary."""


def find_last_block(text: str, max_tokens: int = MAX_TOKENS) -> AssignedLists:
    """Find the last complete block of lists in the model's own turn. Never raises an exception, for any text.

    `max_tokens` is the largest number of tokens of a list. Only the last two thousand assignments are examined.
    """
    turn, matches = _cut_at_turn_end(text)
    attempts = _Assignments(turn, matches, max_tokens)
    blocks = _find_last_complete_blocks(attempts)
    if len(blocks) == 1:
        [start] = blocks
        by_name = {attempts.names[place]: attempts.read_list(place) for place in range(start, start + 3)}
        return AssignedLists([reading for name in NAMES if isinstance(reading := by_name[name], list)], {})
    last = attempts.read_last_of_each()
    return AssignedLists(
        None,
        {} if blocks else {name: reading for name, reading in last.items() if isinstance(reading, FormatFailure)},
        tuple(name for name in NAMES if name not in last),
        tuple(name for name in NAMES if name in attempts.keys),
    )


def _cut_at_turn_end(text: str) -> tuple[str, deque[re.Match[str]]]:
    """Return the text up to the end of the model's turn, and the assignments in it.

    A mark inside a complete list does not end the turn, because it is part of a string.
    """
    recent: deque[re.Match[str]] = deque(maxlen=_MAX_ASSIGNMENTS)
    ends = find_turn_ends(text)
    end = next(ends, None)
    if end is None:
        recent.extend(_ASSIGNMENT.finditer(text))
        return text, recent
    written: set[str] = set()
    for match in _ASSIGNMENT.finditer(text):
        while end is not None and end.start < match.end():
            inside = match["closed"] and end.start >= match.start() and end.end <= match.end()
            if not inside and (not end.needs_lists or len(written) == len(NAMES)):
                if match.start() < end.start:
                    recent.append(match)
                return text[: end.start], recent
            end = next(ends, None)
        recent.append(match)
        if match["closed"] and not match["key"]:
            written.add(_assigned_name(match))
    while end is not None and end.needs_lists and len(written) < len(NAMES):
        end = next(ends, None)
    return (text if end is None else text[: end.start]), recent


def _assigned_name(match: re.Match[str]) -> str:
    return _BY_LETTER[match["name"][0]]


def _recognize_other_form(text: str, end: int) -> FormatFailure | None:
    for defect, form in _OTHER_FORMS:
        if form.match(text, end):
            return defect
    return FormatFailure.NOT_A_LIST if _VALUE.match(text, end) else None


class _Assignments:
    """The assignments of a text in order. Each of them is read when it is first needed."""

    def __init__(self, text: str, matches: Iterable[re.Match[str]], max_tokens: int) -> None:
        self._text, self._max_tokens = text, max_tokens
        self._budget = _MAX_LISTS * (max_tokens + _LIST_OVERHEAD)
        self._readings: dict[int, Reading] = {}
        self._matches: list[re.Match[str]] = []
        self.names: list[str] = []
        self.keys: set[str] = set()
        """The names that occur in quotes and with a colon."""
        for match in matches:
            name = _assigned_name(match)
            if match["key"]:
                self.keys.add(name)
            elif match["list"] is None and match["colon"] and not _recognize_other_form(text, match.end()):
                continue  # a name with a colon and words after it is prose
            elif self.names and self.names[-1] == name and not self._matches[-1]["closed"]:
                self._matches[-1] = match
            else:
                self._matches.append(match)
                self.names.append(name)

    def read_list(self, place: int) -> Reading:
        """Return the list of an assignment or its failure.

        The failure is `TOO_LONG` if the budget for this text has been used up.
        """
        if place not in self._readings:
            if self._budget <= 0:
                return FormatFailure.TOO_LONG
            self._readings[place], tokens = _read_list(self._text, self._matches[place], self._max_tokens)
            self._budget -= tokens + _LIST_OVERHEAD
        return self._readings[place]

    def is_complete_block(self, start: int) -> bool:
        """Return whether the three assignments from position `start` on are lists that can be read."""
        return all(isinstance(self.read_list(place), list) for place in range(start, start + 3))

    def read_last_of_each(self) -> dict[str, Reading]:
        """Return the list or the failure of the last assignment to each name."""
        return {name: self.read_list(place) for name, place in {name: i for i, name in enumerate(self.names)}.items()}


def _read_list(text: str, match: re.Match[str], max_tokens: int) -> tuple[Reading, int]:
    """Return the list of one assignment or its failure, and the number of tokens that were examined."""
    source, end = match["list"], match.end()
    if source is None:
        return _recognize_other_form(text, end) or FormatFailure.NOT_A_LIST, 1
    if match["closed"]:
        return (FormatFailure.NOT_A_LITERAL, 1) if _CONTINUES.match(text, end) else parse_list(source, max_tokens)
    stopper = text[end : end + 1]
    if stopper in ("", '"', "'", "“", "‘") or _AFTER_NAME.match(text, end):
        return FormatFailure.UNBALANCED, 1
    if stopper == "[":
        return FormatFailure.TOO_DEEP, 1
    return (FormatFailure.UNQUOTED if _WORD.match(text, end) else FormatFailure.NOT_A_LITERAL), 1


def _find_last_complete_blocks(attempts: _Assignments) -> set[int]:
    """Return the possible positions at which the last complete block begins.

    There are several if the assignments can be grouped in more than one way, and none if there is no complete block.
    """
    end = len(attempts.names)
    while end >= len(NAMES):
        start = _start_of_run(attempts.names, end)
        if end - start >= len(NAMES) and (blocks := _candidate_starts(attempts, start, end)):
            return blocks
        end = start + 1 if start and attempts.names[start - 1] != attempts.names[start] else start
    return set()


def _start_of_run(names: list[str], end: int) -> int:
    """Return the start of the run that ends before `end`; in a run, any three successive names differ."""
    start = end - 1
    while start and names[start - 1] not in names[start : min(start + 2, end)]:
        start -= 1
    return start


def _candidate_starts(attempts: _Assignments, start: int, end: int) -> set[int]:
    """Return the start of the last complete block of a run for each way of grouping the run."""
    firsts = {place for place in range(start, min(start + 2, end - 3) + 1) if _is_in_order(attempts.names, place)}
    if (end - start) % len(NAMES) == 0:
        firsts.add(start)
    if firsts:
        return {place for first in firsts for place in _last_complete_start(attempts, first, end)}
    whole = {place for place in range(start, end - 2) if attempts.is_complete_block(place)}
    return whole if len(whole) > 1 or (start in whole) else set()


def _is_in_order(names: list[str], place: int) -> bool:
    return tuple(names[place : place + 3]) == NAMES


def _last_complete_start(attempts: _Assignments, first: int, end: int) -> list[int]:
    """Return the start of the last complete block among the successive blocks from `first` on, or an empty list."""
    places = range(first, end - 2, len(NAMES))
    return list(islice(filter(attempts.is_complete_block, reversed(places)), 1))
