"""Chat messages, and the identity of one of a worker's several answers to the same messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Message = dict[str, str]
"""One turn of a chat: ``{"role": "user" | "assistant", "content": text}``."""
Parameters = Mapping[str, Any]
"""Parameters of one request under OpenAI's names, such as `response_format`. They replace the worker's settings, both
in the request and in the identity that is part of the response's key."""
NO_PARAMETERS: Parameters = MappingProxyType({})


class Namespace(StrEnum):
    """The purpose of a sample index. Calls in the same namespace share stored responses; calls in different ones never
    do."""

    ANSWERS = "answers"
    """Answers for precaching, training, evaluation, baselines and serving. Each is paid for once and shared by all of
    them."""
    REPEATED = "again"
    """A stored question is asked again, either to detect drift (the sample index is then the day) or by `podium ping`.
    """

    @classmethod
    def _missing_(cls, value: object) -> Namespace | None:
        """Return the namespace of responses that were stored under one of its two earlier names."""
        return cls.REPEATED if value in ("probes", "nights") else None


@dataclass(frozen=True, slots=True)
class Sample:
    """Identifies one of a worker's answers to the same messages. It is part of the key under which a response is
    stored."""

    index: int = 0
    repetition: int = 0
    """Number of earlier steps of the same workflow that sent the same messages to the same worker."""
    namespace: Namespace = Namespace.ANSWERS

    @classmethod
    def of(cls, sample: int | Sample) -> Sample:
        """Return the argument if it is a `Sample`, or the first answer at that index if it is a number."""
        return sample if isinstance(sample, Sample) else cls(sample)

    @classmethod
    def from_json(cls, value: int | tuple[str, int, int]) -> Sample:
        """Return the sample that `as_json` has written."""
        if isinstance(value, int):
            return cls(value)
        namespace, index, repetition = value
        return cls(index, repetition, Namespace(namespace))

    def as_json(self) -> int | tuple[str, int, int]:
        """Return the sample as a value for JSON.

        It is the index alone for a first answer in the namespace "answers", and otherwise the namespace, index and
        repetition.
        """
        if self == Sample(self.index):
            return self.index
        return self.namespace.value, self.index, self.repetition
