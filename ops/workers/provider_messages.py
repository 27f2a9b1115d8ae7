"""A provider's message about a failed call, without its quotations of the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ops.config.base import KEY_SHAPE
from ops.core.messages import Message
from ops.core.reply_text import replace_surrogates

_QUOTE_WORDS = 8
"""This many consecutive words of a prompt count as a quotation; a provider's own message shares fewer with it."""
_SHOWN_WORDS = 3
"""Text shown to a person contains at most two consecutive words of a prompt."""
_MAX_CHARS = 200_000
_SHOWN_CHARS = 240
_PARAMETER = re.compile(r"[A-Za-z_][\w.\[\]-]{0,59}")
_ESCAPE = re.compile(r"\\+(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_TOKEN = re.compile(r"\w+")
_LITELLM_PREFIX = re.compile(r"^(litellm\.\w+: )?(\w+Error: )?\w+Exception - ")
"""What LiteLLM writes before a provider's words."""
_LETTERS_AND_DIGITS = re.compile(r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[-\w.*]{20,}|[-\w.]*\*{2,}[-\w.*]*")
"""Long words of letters and digits, and words with stars: keys, including masked ones, and ids."""


class ProviderMessage(NamedTuple):
    """A provider's message: `text` in lower case for matching, `shown` for people; `quoted`: it quoted the prompt."""

    text: str
    shown: str
    quoted: bool


def read_provider_message(
    error: Exception, messages: Sequence[Message] = (), key: str | None = None
) -> ProviderMessage:
    """Return a provider's words in LiteLLM's error, without the prompt in `messages` and without keys.

    `text` omits only long quotations and keeps the provider's codes; `shown` is short, and stricter.
    """
    said, codes, parameter = _read_message(error)
    said = replace_surrogates(said)
    ours = [_unescape(message["content"]) for message in messages]
    text, quoted = _remove_quotations(_unescape(said), ours, _QUOTE_WORDS)
    shown, _ = _remove_quotations(_unescape(said), ours, _SHOWN_WORDS)
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
    """Return the provider's message, its codes, and the parameter that it names ("" if none).

    LiteLLM gives either the body, or all of it as one text.
    """
    body = getattr(error, "body", None)
    if not isinstance(body, dict):
        said = str(getattr(error, "message", error))[:_MAX_CHARS]
        body = _find_json(said)
        if body is None:
            return _LITELLM_PREFIX.sub("", said), "", ""
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return str(inner)[:_MAX_CHARS], "", ""
    codes = (inner.get(name) for name in ("code", "type", "status"))
    named = str(inner.get("param") or "")
    parameter = named if _PARAMETER.fullmatch(named) else ""
    said = str(inner.get("message", ""))[:_MAX_CHARS]
    return said, replace_surrogates(" ".join(str(code) for code in codes if code is not None)), parameter


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


def _remove_quotations(text: str, ours: Iterable[str], row: int) -> tuple[str, bool]:
    """Return `text` with every run of `row` words, or of a whole shorter content, replaced by "…", and whether there
    was any."""
    spans = [match.span() for match in _TOKEN.finditer(text)]
    tokens = [text[start:end].lower() for start, end in spans]
    theirs = dict.fromkeys(range(len(tokens)), False)
    for length, grams in _word_sequences(ours, row):
        for at in range(len(tokens) - length + 1):
            if tuple(tokens[at : at + length]) in grams:
                theirs.update(dict.fromkeys(range(at, at + length), True))
    if not any(theirs.values()):
        return text, False
    pieces, end = [], 0
    for index, quoted in theirs.items():
        if not quoted:
            continue
        before = text[end : spans[index][0]]
        continued = index and theirs[index - 1]
        pieces.append("" if continued else f"{before}…")
        end = spans[index][1]
    return "".join([*pieces, text[end:]]), True


def _word_sequences(ours: Iterable[str], row: int) -> Iterator[tuple[int, set[tuple[str, ...]]]]:
    by_length: dict[int, set[tuple[str, ...]]] = {}
    for content in ours:
        tokens = [match[0].lower() for match in _TOKEN.finditer(content)]
        length = min(row, len(tokens))
        if length:
            grams = by_length.setdefault(length, set())
            grams.update(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))
    yield from by_length.items()
