"""Messages to a worker, and its response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Message = dict[str, str]
"""One turn of a chat: ``{"role": "user" | "assistant", "content": text}``."""


class Namespace(StrEnum):
    """What a sample index counts. Uses of one namespace share responses; uses of two never do."""

    ANSWERS = "answers"
    """Precaching, training, evaluation, baselines, serving: an answer is paid for once and used by all of them."""
    PROBES = "probes"
    NIGHTS = "nights"
    """The nightly evaluation: the index is the night."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Which of a worker's answers to the same messages is meant."""

    index: int = 0
    repetition: int = 0
    """Above 0: a further step of one workflow that asks the same worker the same."""
    namespace: Namespace = Namespace.ANSWERS

    @classmethod
    def of(cls, sample: int | Sample) -> Sample:
        """The sample itself; of a number, the first answer at that index."""
        return sample if isinstance(sample, Sample) else cls(sample)

    @classmethod
    def from_json(cls, value: int | tuple[str, int, int]) -> Sample:
        """Undo `as_json`."""
        if isinstance(value, int):
            return cls(value)
        namespace, index, repetition = value
        return cls(index, repetition, Namespace(namespace))

    def as_json(self) -> int | tuple[str, int, int]:
        """The index alone of a first answer, else all three, which JSON makes a list: none equals a number."""
        if self == Sample(self.index):
            return self.index
        return self.namespace.value, self.index, self.repetition


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

    @property
    def is_blank(self) -> bool:
        """Whether the text is empty or white space alone: paid for, and no answer."""
        return not self.text.strip()


NO_RESPONSE = Response("", 0, 0, 0.0, 0.0, "")
"""A placeholder for a missing response: no text, tokens or cost. The row's status has the reason."""

STORED = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")
"""The fields of a response that are stored; the others depend on the run."""
