"""A conversation as one question: what the Conductor and its workers are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ops.serving.request_options import RequestError

_WORDS = {"system": "Instructions", "developer": "Instructions", "user": "User", "assistant": "Assistant"}


def question_text(messages: Sequence[object], place: str) -> str:
    """The text of a conversation that ends with the user.

    One user message is the question as it stands. What comes before it (instructions, earlier turns) is put above it,
    each under its role: the Conductor was trained on single questions, so how well it does then was not measured.
    Raises `RequestError` for what is no text.
    """
    turns = [turn for i, message in enumerate(messages) if (turn := _turn(message, f"{place}[{i}]")) is not None]
    if not turns or turns[-1][0] != "user":
        raise RequestError(place, "does not end with a user message", "Put the question last, with role user")
    *before, (_, last) = turns
    if not before:
        return last
    return "\n\n".join([*(f"{_WORDS[role]}:\n{text}" for role, text in before), f"Question:\n{last}"])


def _turn(message: object, place: str) -> tuple[str, str] | None:
    if not isinstance(message, Mapping):
        raise RequestError(place, "is not an object", 'Send {"role": "user", "content": "…"}')
    if message.get("type") == "reasoning":  # steps of an earlier response, sent back as they came
        return None
    role = message.get("role")
    if role not in _WORDS:
        raise RequestError(f"{place}.role", f"is {role!r}", f"Roles here: {', '.join(_WORDS)}")
    return str(role), _text(message.get("content"), f"{place}.content")


def _text(content: object, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(place, "is neither a text nor a list of parts", "Send a text")
    return "\n".join(_part(part, f"{place}[{i}]") for i, part in enumerate(content))


def _part(part: object, place: str) -> str:
    text: Any = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        raise RequestError(place, f"is {kind!r}, not text", "The workers read text alone")
    return text
