"""What a call used: its tokens by the categories in which providers bill them, and the cost that the provider
states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any, Literal, NamedTuple

Whole = Literal["prompt_tokens", "completion_tokens"]


class TokenPart(NamedTuple):
    """A category of prompt or completion tokens for which providers have a rate of their own."""

    name: str
    """The field of `Usage` that counts these tokens."""
    whole: Whole
    """The field of `Usage` whose count includes these tokens."""
    rate: str
    """The field of a price that holds the rate. If it is not set, these tokens cost as much as the others of `whole`.
    """


TOKEN_PARTS = (
    TokenPart("cached_prompt_tokens", "prompt_tokens", "cached_input"),
    TokenPart("cache_write_tokens", "prompt_tokens", "cache_write"),
    TokenPart("reasoning_tokens", "completion_tokens", "reasoning"),
)
"""All categories. Prices, reservations, plans and the reading of replies iterate over them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, by the categories in which they are billed.

    `prompt_tokens` includes cached tokens and tokens written to the cache, and `completion_tokens` includes reasoning
    tokens, even if the provider counts them separately.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Prompt tokens that the provider read from its prompt cache."""
    cache_write_tokens: int = 0
    """Prompt tokens that the provider wrote to its prompt cache."""
    reasoning_tokens: int = 0
    """Completion tokens that belong to the model's reasoning."""
    service_tier: str = ""
    """The service tier of the call, for example "priority" or "flex"; "" for the standard tier."""
    stated_usd: float | None = None
    """The cost in USD that the provider states; None if it states none."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return all fields by name."""
        return asdict(self)


_ARROW_TYPES = {"int": "int64", "str": "string", "float | None": "float64"}
USAGE_COLUMNS = {part.name: _ARROW_TYPES[str(part.type)] for part in fields(Usage)}
"""The columns of a usage in a table with their Arrow types."""


@dataclass(frozen=True, slots=True)
class MeanUsage:
    """Mean or expected numbers of tokens of a call. The fields are those of `Usage`."""

    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    cached_prompt_tokens: float = 0.0
    cache_write_tokens: float = 0.0
    reasoning_tokens: float = 0.0
    service_tier: str = ""
    stated_usd: None = None

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> MeanUsage:
        """Return the means over these calls, for the standard service tier. Raises `ValueError` if there are no
        calls."""
        usages = list(usages)
        names = ("prompt_tokens", "completion_tokens", *(part.name for part in TOKEN_PARTS))
        means: dict[str, Any] = {name: fmean(getattr(usage, name) for usage in usages) for name in names}
        return cls(**means)
