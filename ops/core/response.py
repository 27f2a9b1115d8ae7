"""The response of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ops.core.status import Status
from ops.core.usage import USAGE_COLUMNS, Usage


@dataclass(frozen=True, slots=True)
class Response:
    """A worker's answer to one call, with its usage and cost.

    ``cost_usd`` (US dollars) and ``latency_s`` (seconds) are those of the original paid call, also if the response now
    comes from the store; then ``cached`` is True. ``retries`` is the number of failed attempts before this answer.
    ``replayed`` is True if a rehearsal, which pays for nothing, returned a recorded response; ``cached`` is then True
    as well.
    """

    text: str
    usage: Usage
    cost_usd: float
    latency_s: float
    finish_reason: str
    """Why the reply ended.

    "stop" is the regular end. "length" means that the reply was cut at the worker's `max_tokens`. The others are
    "tool_calls", "content_filter" (the provider withheld the answer), "refusal" (the model declined to answer) and
    "reasoning" (the reply consists of reasoning only).
    """
    cached: bool = False
    retries: int = 0
    replayed: bool = False

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage.prompt_tokens)

    @property
    def completion_tokens(self) -> int:
        return int(self.usage.completion_tokens)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return int(self.usage.tokens)

    def as_stored(self) -> dict[str, Any]:
        """Return the stored fields by name; the fields of the usage are on the same level as the others.

        Fields that depend on the run (`cached`, `retries`, `replayed`) are left out.
        """
        return {name: getattr(self, name) for name in _STORED} | self.usage.as_dict()

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], *, cached: bool = False) -> Response:
        """Return the response with these stored fields.

        A missing field that has a default, as in responses of an earlier version, gets the default. Raises `TypeError`
        if a field without a default is missing.
        """
        usage = Usage(**{name: stored[name] for name in USAGE_COLUMNS if name in stored})
        response_fields = {name: stored[name] for name in _STORED if name in stored}
        return cls(usage=usage, cached=cached, **response_fields)

    @property
    def status(self) -> Status:
        """What kind of reply this was. Only a reply that was `ANSWERED` or `CUT` contains text of an answer."""
        if self.finish_reason == "content_filter":
            return Status.WITHHELD
        if self.finish_reason == "refusal":
            return Status.DECLINED
        if not self.is_blank:
            return Status.CUT if self.finish_reason == "length" else Status.ANSWERED
        return _STATUS_WITHOUT_TEXT.get(self.finish_reason, Status.EMPTY)

    @property
    def is_blank(self) -> bool:
        """Whether the text is empty or only white space. Such a reply was paid for, but is not an answer."""
        return not self.text.strip()


_STATUS_WITHOUT_TEXT = {
    "tool_calls": Status.TOOL_CALLS,
    "function_call": Status.TOOL_CALLS,
    "reasoning": Status.REASONING,
    "length": Status.CUT,
}
"""Maps the finish reason of a blank reply to its status; every other reason gives `EMPTY`."""
_RUN_DEPENDENT_FIELDS = ("usage", "cached", "retries", "replayed")
"""Fields that are stored in another form (`usage`), or that depend on the run and are not stored."""
_ARROW_TYPES = {"str": "string", "int": "int64", "float": "float64"}
_STORED = {
    each.name: _ARROW_TYPES[str(each.type)] for each in fields(Response) if each.name not in _RUN_DEPENDENT_FIELDS
}
RESPONSE_COLUMNS = _STORED | USAGE_COLUMNS
"""The columns of a response in a table with their Arrow types: its own stored fields, then those of its usage."""

NO_RESPONSE = Response("", Usage(), 0.0, 0.0, "")
"""The response of a row without one. It has no text, tokens or cost; the row's status says why."""
