"""The response of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from ops.core.usage import USAGE_COLUMNS, Usage

ResponseStatus = Literal["answered", "cut", "withheld", "declined", "tool_calls", "reasoning", "empty"]


@dataclass(frozen=True, slots=True)
class Response:
    """A worker's answer, its usage and its cost.

    ``cost_usd`` is in US dollars and ``latency_s`` in seconds; both are those of the original paid call, also if the
    response now comes from the cache. ``retries`` counts the failed attempts before this answer. ``replayed``: recorded
    earlier and returned by a rehearsal, which pays for nothing (``cached`` is then true as well).
    """

    text: str
    usage: Usage
    cost_usd: float
    latency_s: float
    finish_reason: str
    """"stop", "length" (cut at the worker's `max_tokens`), "tool_calls", "content_filter" (the provider withheld the
    answer), "refusal" (the model declined to answer), or "reasoning" (the reply is nothing but reasoning)."""
    cached: bool = False
    retries: int = 0
    replayed: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self.usage.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        return self.usage.completion_tokens

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.usage.tokens

    def as_stored(self) -> dict[str, Any]:
        """Return the stored fields by name, with those of the usage beside the others.

        The fields that are left out depend on the run.
        """
        return {name: getattr(self, name) for name in _STORED} | self.usage.as_dict()

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], *, cached: bool = False) -> Response:
        """Return the response with these stored fields. Raises `TypeError` if one without a default is missing.

        A missing field with a default, as in what an earlier version stored, has its default.
        """
        usage = Usage(**{name: stored[name] for name in USAGE_COLUMNS if name in stored})
        own = {name: stored[name] for name in _STORED if name in stored}
        return cls(usage=usage, cached=cached, **own)

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


_RUN_DEPENDENT_FIELDS = ("usage", "cached", "retries", "replayed")
"""Fields that are stored in another form, or that depend on the run and are not stored."""
_ARROW_TYPES = {"str": "string", "int": "int64", "float": "float64"}
_STORED = {
    each.name: _ARROW_TYPES[str(each.type)] for each in fields(Response) if each.name not in _RUN_DEPENDENT_FIELDS
}
RESPONSE_COLUMNS = _STORED | USAGE_COLUMNS
"""The columns of a response in a table, each with its Arrow type: its own stored fields, then those of its usage."""

NO_RESPONSE = Response("", Usage(), 0.0, 0.0, "")
"""A placeholder for a missing response: no text, tokens or cost. The row's status has the reason."""
