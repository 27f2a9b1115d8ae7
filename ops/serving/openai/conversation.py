"""Turn a conversation into one question, which the Conductor and its workers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ops.serving.request_options import RequestError

_HEADINGS = {
    "system": "Instructions",
    "developer": "Instructions",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool result",
}


def format_conversation(messages: Sequence[object], field: str, instructions: str | None = None) -> str:
    """Return the text of a conversation that ends with the user. `field` is its place in the request, for error
    messages.

    A single user message is used as it is. Instructions and earlier turns are written above it, each under its role.
    The Conductor was trained on single questions, so it has not been measured how well it answers conversations. Raises
    `RequestError` for content that is not text.
    """
    turns = [turn for i, message in enumerate(messages) if (turn := _read_turn(message, f"{field}[{i}]")) is not None]
    if not turns or turns[-1][0] != "user":
        raise RequestError(field, "does not end with a user message", "Put the question last, with role user")
    if instructions:
        turns.insert(0, ("system", instructions))
    *before, (_, last) = turns
    if not before:
        return last
    return "\n\n".join([*(f"{_HEADINGS[role]}:\n{text}" for role, text in before), f"Question:\n{last}"])


def _read_turn(message: object, field: str) -> tuple[str, str] | None:
    if not isinstance(message, Mapping):
        raise RequestError(field, "is not an object", 'Send {"role": "user", "content": "…"}')
    if message.get("type") == "reasoning":  # these are the steps of an earlier response
        return None
    role = message.get("role")
    if not isinstance(role, str) or role not in _HEADINGS:
        raise RequestError(f"{field}.role", f"is {role!r:.80}", f"Roles here: {', '.join(_HEADINGS)}")
    if role == "assistant":
        return _read_assistant_turn(message, field)
    return role, _read_content(message.get("content"), f"{field}.content")


def _read_assistant_turn(message: Mapping[str, Any], field: str) -> tuple[str, str] | None:
    """An assistant's turn: its text and the tools that it called, either of which may be missing."""
    content, calls = message.get("content"), message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{field}.tool_calls", "is not a list", "Send the calls unchanged, or leave them out")
    texts = [] if content is None else [_read_content(content, f"{field}.content")]
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError(f"{field}.tool_calls[{i}]", "is not a function call", "Send the call unchanged")
        texts.append(f"Called {function.get('name')}({function.get('arguments')})")
    return ("assistant", "\n".join(texts)) if texts else None


def _read_content(content: object, field: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(field, "is neither a string nor a list of parts", "Send a text")
    return "\n".join(_read_content_part(part, f"{field}[{i}]") for i, part in enumerate(content))


def _read_content_part(part: object, field: str) -> str:
    text: Any = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        raise RequestError(field, f"is {kind!r:.80}, not text", "The workers read only text")
    return text
