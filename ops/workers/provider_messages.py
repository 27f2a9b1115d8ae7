"""Read a provider's message about a failed call, without its quotations of the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ops.config.base import KEY_SHAPE
from ops.core.messages import Message
from ops.core.reply_text import replace_surrogates

_QUOTE_WORDS = 8
"""So many consecutive words of a prompt count as a quotation. A provider's own message shares fewer words with the
prompt."""
_SHOWN_WORDS = 3
"""So many consecutive words of a prompt are removed from text that is shown to a user."""
_MAX_CHARS = 200_000
_SHOWN_CHARS = 240
_PARAMETER = re.compile(r"[A-Za-z_][\w.\[\]-]{0,59}")
_ESCAPE = re.compile(r"\\+(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_TOKEN = re.compile(r"\w+")
_LITELLM_PREFIX = re.compile(r"^(litellm\.\w+: )?(\w+Error: )?\w+Exception - ")
"""The text that LiteLLM adds before the provider's message."""
_LETTERS_AND_DIGITS = re.compile(r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[-\w.*]{20,}|[-\w.]*\*{2,}[-\w.*]*")
"""Long words of letters and digits, and words with asterisks, which are keys (possibly masked) or ids."""


class ProviderMessage(NamedTuple):
    """A provider's message: `text` in lower case for matching, and `shown` for users. `quoted` says whether it quoted
    the prompt."""

    text: str
    shown: str
    quoted: bool


def read_provider_message(
    error: Exception, messages: Sequence[Message] = (), key: str | None = None
) -> ProviderMessage:
    """Return the provider's message in LiteLLM's error, without the prompt in `messages` and without keys.

    `text` leaves out long quotations only and contains the provider's error codes. `shown` is shortened and leaves out
    shorter quotations too.
    """
    raw_message, codes, parameter = _read_message(error)
    raw_message = replace_surrogates(raw_message)
    contents = [_unescape(message["content"]) for message in messages]
    text, quoted = _remove_quotations(_unescape(raw_message), contents, _QUOTE_WORDS)
    shown, _ = _remove_quotations(_unescape(raw_message), contents, _SHOWN_WORDS)
    if key:
        shown = shown.replace(key, "…")
    shown = _LETTERS_AND_DIGITS.sub("…", KEY_SHAPE.sub("…", shown))
    shown = re.sub(r"\s+", " ", shown).strip()
    if len(shown) > _SHOWN_CHARS:
        shown = shown[: _SHOWN_CHARS - 1] + "…"
    if parameter and parameter not in shown:
        shown = f"{shown} (parameter {parameter})"
    return ProviderMessage(f"{text} {codes}".lower(), shown, quoted)


def _read_message(error: Any) -> tuple[str, str, str]:
    """Return the provider's message, its error codes, and the parameter that it names ("" if none).

    LiteLLM's error holds either the parsed body or the whole body as text.
    """
    body = getattr(error, "body", None)
    if not isinstance(body, dict):
        message = str(getattr(error, "message", error))[:_MAX_CHARS]
        body = _find_json(message)
        if body is None:
            return _LITELLM_PREFIX.sub("", message), "", ""
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return str(inner)[:_MAX_CHARS], "", ""
    codes = (inner.get(name) for name in ("code", "type", "status"))
    parameter_name = str(inner.get("param") or "")
    parameter = parameter_name if _PARAMETER.fullmatch(parameter_name) else ""
    message = str(inner.get("message", ""))[:_MAX_CHARS]
    return message, replace_surrogates(" ".join(str(code) for code in codes if code is not None)), parameter


def _find_json(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unescape(text: str) -> str:
    """Remove backslash escapes of any depth, so that a quotation is spelt as in the prompt."""
    return _ESCAPE.sub(_unescape_match, text)


def _unescape_match(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    return " " if what in "nrt" else what


def _remove_quotations(text: str, contents: Iterable[str], min_words: int) -> tuple[str, bool]:
    """Replace every quotation in `text` by "…". Returns the new text, and whether there was any quotation.

    A quotation consists of `row` consecutive words of a content, or of all words of a shorter content.
    """
    spans = [match.span() for match in _TOKEN.finditer(text)]
    tokens = [text[start:end].lower() for start, end in spans]
    is_quoted = dict.fromkeys(range(len(tokens)), False)
    for length, grams in _word_sequences(contents, min_words):
        for at in range(len(tokens) - length + 1):
            if tuple(tokens[at : at + length]) in grams:
                is_quoted.update(dict.fromkeys(range(at, at + length), True))
    if not any(is_quoted.values()):
        return text, False
    pieces, end = [], 0
    for index, quoted in is_quoted.items():
        if not quoted:
            continue
        before = text[end : spans[index][0]]
        continued = index and is_quoted[index - 1]
        pieces.append("" if continued else f"{before}…")
        end = spans[index][1]
    return "".join([*pieces, text[end:]]), True


def _word_sequences(contents: Iterable[str], min_words: int) -> Iterator[tuple[int, set[tuple[str, ...]]]]:
    by_length: dict[int, set[tuple[str, ...]]] = {}
    for content in contents:
        tokens = [match[0].lower() for match in _TOKEN.finditer(content)]
        length = min(min_words, len(tokens))
        if length:
            grams = by_length.setdefault(length, set())
            grams.update(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))
    yield from by_length.items()
