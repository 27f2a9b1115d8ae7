"""Messages to a worker, and its response."""

from __future__ import annotations

from dataclasses import dataclass

Message = dict[str, str]
"""One turn of a chat: ``{"role": "user" | "assistant", "content": text}``."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a worker answered, with what it cost.

    ``cost_usd`` is in US dollars and ``latency_s`` in seconds; both are those of the
    call that was paid for, also when the response now comes from the cache.
    ``retries`` counts the failed attempts before this answer. ``replayed``: recorded earlier
    and given again by a rehearsal, which pays for nothing (``cached`` is then true as well).
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    latency_s: float
    finish_reason: str
    """As the provider gave it: "stop", "length" (cut at the worker's `max_tokens`) …"""
    cached: bool = False
    retries: int = 0
    replayed: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


NO_RESPONSE = Response("", 0, 0, 0.0, 0.0, "")
"""What stands where there is none: no text, no tokens, no cost. A status beside it says why."""

STORED = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")
"""What of a response is kept on disk; the rest says where a run had it from."""
