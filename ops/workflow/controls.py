"""Chat-template control tokens in texts from outside: broken up, so that they stay text.

Why: most tokenizers turn `<|im_end|>` into the one token that ends a turn wherever it stands. A worker's
answer that contains it could end its own turn and open another's. One blank after the first
character is enough, also for templates whose markers are plain text, and a reader sees what was meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ops.core.response import Message

KNOWN = re.compile(
    r"""<\|[\w .:/-]{1,64}\|>                                      # ChatML, Llama 3, Phi, Qwen and many others
      | <｜[\w▁ .:/-]{1,64}｜>                                      # DeepSeek
      | </?(?:s|bos|eos|pad|unk|turn|start_of_turn|end_of_turn)>   # Mistral, Gemma
      | \[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\] | <</?SYS>>""",
    re.VERBOSE,
)
"""The control tokens of the model families in use, for messages whose tokenizer runs on a server."""

_IN_TEMPLATE = re.compile(r"<[|｜]?[\w▁/ -]{1,64}[|｜]?>|<</?\w+>>|\[/?[A-Z_]{2,32}\]")


def plain(text: str, controls: re.Pattern[str] = KNOWN) -> str:
    """`text` with a blank after the first visible character of every control token; unchanged without any."""
    while controls.search(text):  # what is left of two that overlap may be a third
        text = controls.sub(_broken, text)
    return text


def _broken(token: re.Match[str]) -> str:
    after = len(token[0]) - len(token[0].lstrip()) + 1
    return f"{token[0][:after]} {token[0][after:]}"


def plain_messages(tokenizer: Any, messages: Sequence[Message]) -> list[Message]:
    """The messages with nothing in their contents that `tokenizer` or its chat template reads as control.

    Roles are left alone. To be called before a template is applied, wherever one is.
    """
    controls = controls_of(tokenizer)
    return [message | {"content": plain(message["content"], controls)} for message in messages]


def controls_of(tokenizer: Any) -> re.Pattern[str]:
    """The special tokens of a (transformers) tokenizer, and what its chat template has between the contents."""
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    template = tokenizer.chat_template
    marks = _IN_TEMPLATE.findall(template) if isinstance(template, str) else []
    return _pattern(tuple(sorted({*special, *marks})))


@lru_cache(maxsize=16)
def _pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    # A single character (or white space) cannot be broken up. Longest first, as a tokenizer takes them.
    breakable = sorted((token for token in tokens if len(token.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, breakable)) or r"(?!)")
