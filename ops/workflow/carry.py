"""The length of long responses that later steps read, in tokens.

One tokenizer (tiktoken's cl100k_base, a dependency of LiteLLM) counts for every worker, because the limit only bounds
the length; nothing is downloaded.
"""

from __future__ import annotations

from typing import NamedTuple

from ops.workers.litellm_private import encoding


class Carried(NamedTuple):
    """A response as later steps read it; `cut` tokens of it are omitted."""

    text: str
    cut: int = 0


def carried(text: str, limit: int | None) -> Carried:
    """Return `text`, or its beginning and end with `limit` tokens together and a mark between them.

    The end is kept because the answer is usually there. A character is never cut in two.
    """
    if limit is None or len(text.encode(errors="replace")) <= limit:  # a token is at least one byte
        return Carried(text)
    tokenizer = encoding()
    tokens = tokenizer.encode_ordinary(text)
    if len(tokens) <= limit:
        return Carried(text)
    whole, offsets = tokenizer.decode_with_offsets(tokens)
    head, tail = offsets[limit // 2], offsets[len(tokens) - (limit - limit // 2)]
    mark = f"[… cut: {limit} of {len(tokens)} tokens shown]"
    return Carried(f"{whole[:head].rstrip()}\n{mark}\n{whole[tail:].lstrip()}", len(tokens) - limit)
