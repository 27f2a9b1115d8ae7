"""Messages to a worker, and its response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Message = dict[str, str]
"""One turn of a chat: ``{"role": "user" | "assistant", "content": text}``."""


class Namespace(StrEnum):
    """The meaning of a sample index. Uses of the same namespace share responses; different namespaces never do."""

    ANSWERS = "answers"
    """Precaching, training, evaluation, baselines, serving: an answer is paid for once and shared."""
    AGAIN = "again"
    """A question whose answer is stored is asked again: to detect drift (the index is the day), or by `podium ping`."""

    @classmethod
    def _missing_(cls, value: object) -> Namespace | None:
        """Return the namespace of stored responses that were asked for under one of its two earlier names."""
        return cls.AGAIN if value in ("probes", "nights") else None


@dataclass(frozen=True, slots=True)
class Sample:
    """Identifies one of a worker's answers to the same messages."""

    index: int = 0
    repetition: int = 0
    """Above 0: a later step of the same workflow with the same worker and messages."""
    namespace: Namespace = Namespace.ANSWERS

    @classmethod
    def of(cls, sample: int | Sample) -> Sample:
        """Return the sample itself; for a number, the first answer at that index."""
        return sample if isinstance(sample, Sample) else cls(sample)

    @classmethod
    def from_json(cls, value: int | tuple[str, int, int]) -> Sample:
        """Undo `as_json`."""
        if isinstance(value, int):
            return cls(value)
        namespace, index, repetition = value
        return cls(index, repetition, Namespace(namespace))

    def as_json(self) -> int | tuple[str, int, int]:
        """Return only the index for a first answer, else a list of all three, which never equals a number."""
        if self == Sample(self.index):
            return self.index
        return self.namespace.value, self.index, self.repetition


ResponseStatus = Literal["answered", "cut", "withheld", "declined", "tool_calls", "reasoning", "empty"]


@dataclass(frozen=True, slots=True)
class Response:
    """A worker's answer and its cost.

    ``cost_usd`` is in US dollars and ``latency_s`` in seconds; both are those of the original paid call, also if the
    response now comes from the cache. ``retries`` counts the failed attempts before this answer. ``replayed``: recorded
    earlier and returned by a rehearsal, which pays for nothing (``cached`` is then true as well).
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    latency_s: float
    finish_reason: str
    """"stop", "length" (cut at the worker's `max_tokens`), "tool_calls", "content_filter" (the provider withheld the
    answer), "refusal" (the model declined to answer), or "reasoning" (the reply is nothing but reasoning)."""
    cached: bool = False
    retries: int = 0
    replayed: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def status(self) -> ResponseStatus:
        """Return what the reply was: only one that is "answered" or "cut" has a text."""
        if self.finish_reason == "content_filter":
            return "withheld"
        if self.finish_reason == "refusal":
            return "declined"
        if not self.is_blank:
            return "cut" if self.finish_reason == "length" else "answered"
        if self.finish_reason in ("tool_calls", "function_call"):
            return "tool_calls"
        if self.finish_reason == "reasoning":
            return "reasoning"
        return "cut" if self.finish_reason == "length" else "empty"

    @property
    def is_blank(self) -> bool:
        """Return whether the text is empty or only white space: paid for, but not an answer."""
        return not self.text.strip()


NO_RESPONSE = Response("", 0, 0, 0.0, 0.0, "")
"""A placeholder for a missing response: no text, tokens or cost. The row's status has the reason."""

STORED = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")
"""The stored fields of a response; the others depend on the run."""
