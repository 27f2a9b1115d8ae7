"""How much of a long response later steps are shown, in tokens.

One tokenizer (tiktoken's cl100k_base, which LiteLLM brings along) counts for every worker: a limit is a limit on
length, and nothing has to be downloaded.
"""

from __future__ import annotations

from typing import NamedTuple

from ops.workers.litellm_private import encoding


class Carried(NamedTuple):
    """A response as later steps see it; `cut` tokens of it are left out."""

    text: str
    cut: int = 0


def carried(text: str, limit: int | None) -> Carried:
    """`text` itself, or its beginning and its end with `limit` tokens together and a mark between.

    The end is kept as well as the beginning because that is where an answer stands. A character is
    never cut in two.
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
