"""The one record of what a call used: its tokens as the provider bills them, and the cost that the provider states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any, Literal, NamedTuple

Whole = Literal["prompt_tokens", "completion_tokens"]


class TokenPart(NamedTuple):
    """A part of the prompt's or of the completion's tokens that providers bill at a rate of its own."""

    name: str
    """The field of `Usage` that counts these tokens."""
    whole: Whole
    """The field of `Usage` that includes them."""
    rate: str
    """The field of a price with their rate. Without a rate of their own they cost as much as the rest of the whole."""


TOKEN_PARTS = (
    TokenPart("cached_prompt_tokens", "prompt_tokens", "cached_input"),
    TokenPart("cache_write_tokens", "prompt_tokens", "cache_write"),
    TokenPart("reasoning_tokens", "completion_tokens", "reasoning"),
)
"""All parts. Price, reservation, plan and the reading of a reply loop over them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, by the rates at which they are billed.

    The prompt's tokens include the cached ones and those that are written to the cache, and the completion's include
    those of reasoning, whichever way the provider counts them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Tokens of the prompt that the provider read from its own cache."""
    cache_write_tokens: int = 0
    """Tokens of the prompt that the provider wrote to its own cache."""
    reasoning_tokens: int = 0
    """Tokens of the completion that are reasoning."""
    service_tier: str = ""
    """The service tier at which the call was served ("priority", "flex" …); "" for the standard one."""
    stated_usd: float | None = None
    """The cost in USD that the provider states; None if it states none."""

    @property
    def tokens(self) -> int:
        """All tokens of the prompt and of the completion."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return every field by its name."""
        return asdict(self)


_ARROW_TYPES = {"int": "int64", "str": "string", "float | None": "float64"}
USAGE_COLUMNS = {part.name: _ARROW_TYPES[str(part.type)] for part in fields(Usage)}
"""The columns of a usage in a table, each with its Arrow type."""


@dataclass(frozen=True, slots=True)
class MeanUsage:
    """The mean tokens of several calls, or the tokens that are expected of one; a part is named as in `Usage`."""

    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    cached_prompt_tokens: float = 0.0
    cache_write_tokens: float = 0.0
    reasoning_tokens: float = 0.0
    service_tier: str = ""
    stated_usd: None = None

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> MeanUsage:
        """Return the means of the standard service tier's parts. Raises `ValueError` for no usage."""
        usages = list(usages)
        names = ("prompt_tokens", "completion_tokens", *(part.name for part in TOKEN_PARTS))
        means: dict[str, Any] = {name: fmean(getattr(usage, name) for usage in usages) for name in names}
        return cls(**means)
