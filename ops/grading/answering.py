"""Find the part of a response that answers the question; rewrite JSON and the mark `####` in it as "Answer: …"."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ops.grading.extract import CORRECTION, find_line_end, take_tail

_MAX_NEXT_QUESTIONS = 20
"""The maximum number of beginnings of a next question that are tried."""
_MAX_OBJECTS = 100
_MAX_DICTIONARY_CHARACTERS = 4_000
"""The maximum length in characters of a Python dictionary that is read like a JSON object."""
NEXT_QUESTION = re.compile(
    r"^[ \t>#*_-]{0,12}(?:(?:next|new|another)[ \t]+)?(?:question|problem|exercise|instruction|human|user|q)"
    r"[ \t]*#?\d{0,3}[ \t]*[*_]{0,3}(?:[:.]|$)|\[INST\]|<\|user\|>|<(?:\|im_start\||start_of_turn)>user",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a question that a model asks itself after its answer, or repeats before it."""
_NUMBER_ALONE = re.compile(r"^[-+$€£\d.,/% ]+\s*\Z", re.MULTILINE)
_ASKED_BY_LETTER, _OPTION_B = (re.compile(rf"^{letter}\d?:", re.MULTILINE) for letter in "QB")
_ANSWERED_BY_LETTER = re.compile(r"^A\d?:(?=.*\S)", re.MULTILINE)
"""An answer in a dialogue of "Q:" and "A:"; in a list of options, "B:" follows."""
_MARK = re.compile(r"(?<!#)####(?!#)")
_VALUE = re.compile(r"(?!\d+(?:[.)]\s+[^\W\d]|[\d.]*\s+[A-Z]))[-+]?[.\d$\\€£][^=\n]*|\(?[A-J]\)?[*_.]*")
"""An answer on a line that could also be a heading: a number, a formula or a letter."""
_OBJECT = re.compile(r"\{\s*[\"']")
_FIELD = re.compile(
    r"(?:the|my|final|correct|right|best|chosen|selected)*(?:answer|ans|choice|option|letter|selection|result)"
    r"(?:letter|choice|option|value)?"
)
_LONE_BACKSLASH = re.compile(r"(\\\\)|\\(?=(?!u[0-9a-fA-F]{4}|n(?!eq|abla|ot))[A-Za-z]{2}|[^\w\"\\/])")
"""A backslash of LaTeX, which JSON requires to be doubled; group 1 is a doubled one."""
_STAND_IN = "\ue000"
"""A private character that stands for such a backslash while JSON is decoded."""
_JSON = json.JSONDecoder(strict=False, parse_float=str, parse_int=str)
"""A decoder that keeps numbers as they are spelled and accepts unescaped line ends in strings."""


def extract_answer_part(response: str, states_answer: Callable[[str], bool]) -> str:
    """Return the part of a response that answers the question: its text up to a next question.

    `states_answer` says whether a text states an answer. A line such as "Question: …" begins a next question if an
    answer is stated before it; otherwise the model repeats the question that it was asked. The mark `####` also ends
    the answer.
    """
    text = _announce_marked_answer(_announce_answer_fields(response))
    if _ASKED_BY_LETTER.search(text) and not _OPTION_B.search(text):
        text = _ANSWERED_BY_LETTER.sub("Answer:", text)
    for question in islice(NEXT_QUESTION.finditer(text), _MAX_NEXT_QUESTIONS):
        before = take_tail(text[: question.start()])
        if before.strip() and (_NUMBER_ALONE.search(before) or states_answer(before)):
            return before
    return take_tail(text)


def _announce_marked_answer(text: str) -> str:
    """Return the text up to the first `####` that marks an answer; a correction after it may announce another
    answer."""
    for mark in _MARK.finditer(text):
        start, end = text.rfind("\n", 0, mark.start()) + 1, find_line_end(text, mark.end())
        before, answer, behind = text[start : mark.start()].strip(), text[mark.end() : end].strip(), text[end:]
        if answer and (before or _VALUE.fullmatch(answer) or not behind.strip()):
            question = NEXT_QUESTION.search(behind)
            is_corrected = CORRECTION.search(behind, 0, question.start() if question else len(behind))
            announced = f"{text[: mark.start()].rstrip()}\nAnswer: {answer}\n"
            return announced + (_announce_marked_answer(behind) if is_corrected else "")
    return text


# ── JSON ─────────────────────────────────────────────────────────────────────


def _announce_answer_fields(text: str) -> str:
    """Return the text with "Answer: …" in place of each JSON object or Python dictionary that has an answer field."""
    pieces: list[str] = []
    position = 0
    decodable = _LONE_BACKSLASH.sub(lambda match: match[0] if match[1] else _STAND_IN, text) if "{" in text else ""
    for match in islice(_OBJECT.finditer(decodable), _MAX_OBJECTS):
        if match.start() < position or (read := _decode_object(decodable, match.start())) is None:
            continue
        value, end = read
        if (answer := next(_find_answers(value), None)) is not None:
            line = "Answer: " + answer.replace(_STAND_IN, "\\") if answer.strip() else ""
            pieces.append(f"{text[position : match.start()]}\n{line}\n")
            position = end
    return "".join((*pieces, text[position:]))


def _decode_object(text: str, start: int) -> tuple[Any, int] | None:
    """Return the JSON object or Python dictionary that begins at `start`, and its end; None if there is none."""
    try:
        return _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    for brace in islice(re.finditer("}", text[start : start + _MAX_DICTIONARY_CHARACTERS]), 5):
        try:
            return ast.literal_eval(text[start : start + brace.end()]), start + brace.end()
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _find_answers(value: Any) -> Iterator[str]:
    """Yield the answers in a decoded value: fields called "answer" first, those of inner objects last."""
    if isinstance(value, list):
        for item in value:
            yield from _find_answers(item)
    if isinstance(value, dict):
        fields = [(re.sub(r"[\W_]", "", str(key)).casefold(), content) for key, content in value.items()]
        for key, content in sorted(fields, key=lambda field: "ans" not in field[0]):
            if _FIELD.fullmatch(key) and not isinstance(content, dict):
                members = content if isinstance(content, (list, tuple, set)) else [content]
                yield ", ".join("" if member is None else str(member) for member in members)
        for _, content in fields:
            yield from _find_answers(content)
