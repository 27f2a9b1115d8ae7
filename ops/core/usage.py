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
    """The field of `Usage` that counts these tokens. No token is counted in two categories."""
    whole: Whole
    """The field of `Usage` whose count includes these tokens."""
    rate: str
    """The field of a price that holds the rate. If it is not set, these tokens cost as much as the others of `whole`.
    """
    litellm_key: str
    """The key of the rate in LiteLLM's table of prices."""
    reply_fields: tuple[str, ...]
    """The fields of a reply's usage in which providers state the count, the most reliable first. It is OpenAI's field
    if there is one."""
    zero_means_unknown: bool = False
    """True if LiteLLM's table states a rate of 0 for models whose provider bills these tokens as the others of `whole`.
    """


TOKEN_PARTS = (
    TokenPart(
        "cached_prompt_tokens",
        "prompt_tokens",
        "cached_input",
        litellm_key="cache_read_input_token_cost",
        reply_fields=("prompt_tokens_details.cached_tokens", "cache_read_input_tokens"),
    ),
    TokenPart(
        "cache_write_tokens",
        "prompt_tokens",
        "cache_write",
        litellm_key="cache_creation_input_token_cost",
        reply_fields=(
            "prompt_tokens_details.cache_write_tokens",
            "prompt_tokens_details.cache_creation_tokens",
            "cache_creation_input_tokens",
        ),
        zero_means_unknown=True,
    ),
    TokenPart(
        "reasoning_tokens",
        "completion_tokens",
        "reasoning",
        litellm_key="output_cost_per_reasoning_token",
        reply_fields=("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    ),
)
"""All categories. Prices, reservations, plans, the reading of replies and the usage of served answers iterate over
them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, by the categories in which they are billed.

    The counts of a call are whole numbers; means and expected counts may be fractions. `prompt_tokens` includes cached
    tokens and tokens written to the cache, and `completion_tokens` includes reasoning tokens, even if the provider
    counts them separately.
    """

    prompt_tokens: float = 0
    completion_tokens: float = 0
    cached_prompt_tokens: float = 0
    """Prompt tokens that the provider read from its prompt cache."""
    cache_write_tokens: float = 0
    """Prompt tokens that the provider wrote to its prompt cache."""
    reasoning_tokens: float = 0
    """Completion tokens that belong to the model's reasoning."""
    service_tier: str = ""
    """The service tier of the call, for example "priority" or "flex"; "" for the standard tier."""
    stated_usd: float | None = None
    """The cost in USD that the provider states; None if it states none."""

    @classmethod
    def mean(cls, usages: Iterable[Usage]) -> Usage:
        """Return the mean counts over these calls, for the standard service tier. Raises `ValueError` if there are no
        calls."""
        usages = list(usages)
        names = ("prompt_tokens", "completion_tokens", *(part.name for part in TOKEN_PARTS))
        means: dict[str, Any] = {name: fmean(getattr(usage, name) for usage in usages) for name in names}
        return cls(**means)

    @property
    def tokens(self) -> float:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return all fields by name."""
        return asdict(self)


_ARROW_TYPES = {"float": "int64", "str": "string", "float | None": "float64"}
USAGE_COLUMNS = {part.name: _ARROW_TYPES[str(part.type)] for part in fields(Usage)}
"""The columns of a call's usage in a table with their Arrow types."""
