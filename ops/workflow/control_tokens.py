"""Break up control tokens of chat templates in texts of users and models, so that tokenizers read them as text.

Most tokenizers turn `<|im_end|>` into the one token that ends a turn, wherever it appears. A worker's answer that
contains it could end its own turn and open another one. One blank after the first character is sufficient, also for
templates with plain-text markers, and readers still understand the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ops.core.messages import Message

KNOWN_CONTROL_TOKENS = re.compile(
    r"""<\|[\w .:/-]{1,64}\|>                                      # ChatML, Llama 3, Phi, Qwen and many others
      | <｜[\w▁ .:/-]{1,64}｜>                                      # DeepSeek
      | </?(?:s|bos|eos|pad|unk|turn|start_of_turn|end_of_turn)>   # Mistral, Gemma
      | \[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\] | <</?SYS>>""",
    re.VERBOSE,
)
"""The control tokens of common model families, for messages whose tokenizer runs on a server."""

_TOKEN_IN_TEMPLATE = re.compile(r"<[|｜]?[\w▁/ -]{1,64}[|｜]?>|<</?\w+>>|\[/?[A-Z_]{2,32}\]")


def escape_control_tokens(text: str, controls: re.Pattern[str] = KNOWN_CONTROL_TOKENS) -> str:
    """Return `text` with a blank after the first visible character of every control token.

    A text without control tokens is returned unchanged.
    """
    while controls.search(text):  # breaking up two overlapping tokens may leave a third one
        text = controls.sub(_break_up, text)
    return text


def _break_up(token: re.Match[str]) -> str:
    after = len(token[0]) - len(token[0].lstrip()) + 1
    return f"{token[0][:after]} {token[0][after:]}"


def escape_messages(tokenizer: Any, messages: Sequence[Message]) -> list[Message]:
    """Return the messages with all control tokens in their contents broken up.

    The control tokens are those of `tokenizer` and of its chat template. The roles are unchanged. Call this before
    every application of a chat template.
    """
    controls = control_token_pattern(tokenizer)
    return [message | {"content": escape_control_tokens(message["content"], controls)} for message in messages]


def control_token_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Return a pattern that matches the control tokens of a transformers tokenizer.

    These are its special tokens and the marks that its chat template writes around the contents.
    """
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    template = tokenizer.chat_template
    marks = _TOKEN_IN_TEMPLATE.findall(template) if isinstance(template, str) else []
    return _pattern_of(tuple(sorted({*special, *marks})))


@lru_cache(maxsize=16)
def _pattern_of(tokens: tuple[str, ...]) -> re.Pattern[str]:
    # A single character (or white space) cannot be broken up. Longest first, as a tokenizer matches them.
    breakable = sorted((token for token in tokens if len(token.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, breakable)) or r"(?!)")
