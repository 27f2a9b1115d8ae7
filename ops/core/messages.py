"""Messages to a worker, and which of its answers to the same messages is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Message = dict[str, str]
"""One turn of a chat: ``{"role": "user" | "assistant", "content": text}``."""


class Namespace(StrEnum):
    """The meaning of a sample index. Uses of the same namespace share responses; different namespaces never do."""

    ANSWERS = "answers"
    """Precaching, training, evaluation, baselines, serving: an answer is paid for once and shared."""
    REPEATED = "again"
    """A question whose answer is stored is asked again: to detect drift (the index is the day), or by `podium ping`."""

    @classmethod
    def _missing_(cls, value: object) -> Namespace | None:
        """Return the namespace of stored responses that were asked for under one of its two earlier names."""
        return cls.REPEATED if value in ("probes", "nights") else None


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
