"""Find the lists that a completion assigns to the three names, and the last block of them that is whole.

A **block** is three assignments in a row, one of each name; it is whole when all three are lists that can be read.
The last whole one counts. Lists in a row are grouped in the prompt's order, wherever they begin (M S A M S, the
second block cut off, are M S A and a rest); in another order only where they are blocks from the first to the last.
Where that gives two readings or none, the text is ambiguous. An attempt that is no closed list and is followed by
another to the same name is replaced by it.

One regular expression goes through the text from left to right and passes no list twice; the rest is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from ops.workflow.literals import LIST_PATTERN, MAX_TOKENS, PATTERN_FLAGS, FormatFailure, Value, parse_list
from ops.workflow.turn import find_turn_ends

NAMES = ("model_id", "subtasks", "access_list")
"""In the prompt's order."""

_MAX_ASSIGNMENTS = 2048
"""How many assignments are examined, the last ones."""
_MAX_LISTS = 24
"""How many lists are handed to `ast`, from the last assignment backwards."""
_LIST_OVERHEAD = 16
"""Overhead of examining a list, in tokens."""

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
    """The mark that sets a name (or a name and its `sign`) in bold, italics or code: chat models cannot help it."""
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
"""What makes the list only the beginning of an expression: `[0] * 3`, `[0] + [1]`, `[0][0]`."""
_WORD = re.compile(r"""(?![bBfF][rR]?+["']|[rR][bBfF]["'])[^\W\d]""")
_OTHER_FORMS = (
    (FormatFailure.TUPLE, re.compile(r"""\((?:[ \t\n]*+(?:[\[("'“‘)]|[+-]?+[0-9]))""")),
    (FormatFailure.UNBRACKETED, re.compile(r"""(?:[+-]?+[0-9]++|"[^"\n]*+"|'[^'\n]*+'|“[^“”\n]*+”)[ \t]*+,""")),
    (FormatFailure.YAML, re.compile(r"[ \t\r]*+\n\s*+-[ \t\n]")),
)
_VALUE = re.compile(r"""[+-]?+[0-9]|["'“‘{]""")
Reading = list[Value] | FormatFailure


class AssignedLists(NamedTuple):
    """What a text assigns: the last whole `block`, one list a name in the order of `NAMES`, or why there is none."""

    block: list[list[Value]] | None
    defects: dict[str, FormatFailure]
    """Names whose last assignment is no list that can be read."""
    missing: tuple[str, ...] = ()
    """Names that are assigned nothing."""
    keys: tuple[str, ...] = ()
    """Names in quotes with a colon: keys of JSON or of a dictionary."""


def find_last_block(text: str, max_tokens: int = MAX_TOKENS) -> AssignedLists:
    """The last complete block of the model's own turn. Never raises, for any text.

    `max_tokens` bounds a list. Only the last few thousand assignments are examined.
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
    """`text` up to the end of the model's turn, and its assignments; marks in a closed list's strings are words."""
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
    """The assignments of a text in order, but for those that were replaced at once; each read once, when asked for."""

    def __init__(self, text: str, matches: Iterable[re.Match[str]], max_tokens: int) -> None:
        self._text, self._max_tokens = text, max_tokens
        self._budget = _MAX_LISTS * (max_tokens + _LIST_OVERHEAD)
        self._readings: dict[int, Reading] = {}
        self._matches: list[re.Match[str]] = []
        self.names: list[str] = []
        self.keys: set[str] = set()
        """Names in quotes with a colon."""
        for match in matches:
            name = _assigned_name(match)
            if match["key"]:
                self.keys.add(name)
            elif match["list"] is None and match["colon"] and not _recognize_other_form(text, match.end()):
                continue  # a name, a colon and words: prose
            elif self.names and self.names[-1] == name and not self._matches[-1]["closed"]:
                self._matches[-1] = match
            else:
                self._matches.append(match)
                self.names.append(name)

    def read_list(self, place: int) -> Reading:
        """The list of an assignment, or its defect; `TOO_LONG` for what is beyond the text's budget."""
        if place not in self._readings:
            if self._budget <= 0:
                return FormatFailure.TOO_LONG
            self._readings[place], tokens = _read_list(self._text, self._matches[place], self._max_tokens)
            self._budget -= tokens + _LIST_OVERHEAD
        return self._readings[place]

    def is_complete_block(self, start: int) -> bool:
        """Whether the three from `start` on are lists."""
        return all(isinstance(self.read_list(place), list) for place in range(start, start + 3))

    def read_last_of_each(self) -> dict[str, Reading]:
        """By name: what its last assignment gives."""
        return {name: self.read_list(place) for name, place in {name: i for i, name in enumerate(self.names)}.items()}


def _read_list(text: str, match: re.Match[str], max_tokens: int) -> tuple[Reading, int]:
    """The list of one assignment or its defect, and how many tokens were examined."""
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
    """Where the last whole block begins: one place, none, or more where it can be read in several ways."""
    end = len(attempts.names)
    while end >= len(NAMES):
        start = _start_of_run(attempts.names, end)
        if end - start >= len(NAMES) and (blocks := _candidate_starts(attempts, start, end)):
            return blocks
        end = start + 1 if start and attempts.names[start - 1] != attempts.names[start] else start
    return set()


def _start_of_run(names: list[str], end: int) -> int:
    """Where the run that ends before `end` begins: names of which any three in succession differ."""
    start = end - 1
    while start and names[start - 1] not in names[start : min(start + 2, end)]:
        start -= 1
    return start


def _candidate_starts(attempts: _Assignments, start: int, end: int) -> set[int]:
    """Candidates for the start of the last complete block of a run, one for each way of grouping the run."""
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
    """The last whole block of those that follow one another from `first` on; empty: none is."""
    places = range(first, end - 2, len(NAMES))
    return list(islice(filter(attempts.is_complete_block, reversed(places)), 1))
