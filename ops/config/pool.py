"""The worker pool: what a file in `config/pools` may say, and which of it is impossible."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ops.config.base import Name, PoolName, Settings, digest
from ops.config.secret import find_in, find_in_url, key_problem

Tag = Literal["closed", "code", "generalist", "open", "reasoning", "tool"]
"""What is known of a worker: weights closed or open, a tool that is no model, what it is made for."""


class Rates(Settings):
    """USD per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def plain(self) -> Rates:
        """Without a date."""
        return Rates(input=self.input, output=self.output)

    def __str__(self) -> str:
        return f"{self.input:g} / {self.output:g}"


class LaterRates(Rates):
    """Rates that the provider has announced."""

    since: date
    """The first day (UTC) of these rates."""


class Price(Rates):
    """USD per million tokens, with what is announced to change."""

    later: tuple[LaterRates, ...] = ()
    """Announced changes, earliest first."""

    @field_validator("later")
    @classmethod
    def _one_after_another(cls, later: tuple[LaterRates, ...]) -> tuple[LaterRates, ...]:
        days = [rates.since for rates in later]
        if days != sorted(set(days)):
            raise ValueError("dates must be different and stand in their order")
        return later

    def on(self, day: date | None = None) -> Rates:
        """The rates of that day; None: today (UTC)."""
        day = day or datetime.now(UTC).date()
        return next((rates for rates in reversed(self.later) if rates.since <= day), self).plain()

    def usd(self, prompt_tokens: int, completion_tokens: int, day: date | None = None) -> float:
        """The cost of the tokens (USD) on that day; None: today (UTC)."""
        rates = self.on(day)
        return (prompt_tokens * rates.input + completion_tokens * rates.output) / 1e6


class Serve(Settings):
    """How Podium itself serves a worker's model with vLLM, at the port of its `api_base`.

    Nothing of it is part of a cache key: raise the worker's `revision` when something here changes answers.
    """

    model_path: str = Field(min_length=1)
    """Folder of the model (safetensors, tokenizer), from the project's root; or an id on a model hub."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "bfloat16"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens of prompt and answer together; None: what the model was made for."""
    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`, as they stand."""


class Worker(Settings):
    """One entry of the pool: a model with its endpoint, sampling, price and limits."""

    name: Name
    """Unique in the pool; the Dagster partition key and the folder name of its responses."""
    model: str = Field(min_length=1)
    """LiteLLM model string, `provider/model`. `local/…` names an embedded tool worker."""
    revision: str = ""
    """Raise it when another model answers under the same name: it is part of every cache key."""
    model_in_replies: str | None = None
    """The model's name in the endpoint's replies, if it differs (an alias, a deployment)."""
    api_base: str | None = None
    """Endpoint, for self-hosted models."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    """The NAME of the environment variable that holds the key; never the key itself."""
    temperature: float | None = Field(default=0.2, ge=0, le=2)
    """None: send none (reasoning models that accept only their default)."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int = Field(default=4096, ge=1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    thinking_budget: int | None = Field(default=None, ge=0)
    """Reasoning tokens, for providers that take a number."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Passed to the provider unchanged (for example a vLLM server's `chat_template_kwargs`); never a key."""
    price: Price | None = None
    """USD per million tokens. None: LiteLLM's price table."""
    concurrency: int = Field(default=16, ge=1)
    """Maximum calls in flight; fewer for a while after a 429."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Maximum requests per minute, spaced evenly. None: no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Maximum prompt and completion tokens per minute: estimated before a call, corrected after it."""
    refuses_with: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    """Phrases by which this provider refuses content with a 4xx, in addition to the known ones; any case."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Seconds for a whole call."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to connect."""
    retries: int = Field(default=4, ge=0)
    """Further attempts after a transient failure (429, 5xx, connection)."""
    breaker_failures: int = Field(default=5, ge=1)
    """Consecutive failed calls, each after its retries, after which the worker rests."""
    breaker_rest_s: float = Field(default=30.0, gt=0)
    """Seconds of that rest: calls fail at once, then one is let through as a test."""
    latency_s: float | None = Field(default=None, ge=0)
    """Declared latency of a worker that answers at once (embedded tools). None: as measured."""
    serve: Serve | None = None
    """How Podium serves this worker's model with vLLM while assets ask it. None: it is served already."""
    tags: tuple[Tag, ...] = ()
    retired: date | None = None
    """The day from which its provider no longer answers, if known. Earlier responses stay valid."""

    @field_validator("api_base")
    @classmethod
    def _is_an_http_address_without_a_key(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of the port or of an IPv6 address
            is_http = False
        if is_http and (secret := find_in_url(url)):
            raise ValueError(secret)
        if not is_http or any(character <= " " for character in url):
            raise ValueError("is no address of an HTTP server: write http://HOST:PORT/v1 or https://HOST/v1")
        return url

    @field_validator("extra_body")
    @classmethod
    def _no_key_in_the_body(cls, values: dict[str, Any]) -> dict[str, Any]:
        if secret := find_in(values):
            raise ValueError(secret)
        return values

    @model_validator(mode="after")
    def _can_think(self) -> Self:
        if self.thinking_budget and self.thinking_budget >= self.max_tokens:
            raise ValueError(
                f"thinking_budget {self.thinking_budget} leaves nothing of max_tokens {self.max_tokens} for the answer"
            )
        if self.thinking_budget and self.model.startswith("anthropic/") and self.temperature not in (None, 1):
            raise ValueError("anthropic models that think take no temperature: write `temperature: null`")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What can change this worker's answers: the worker's part of a cache key. Not its name, not its price."""
        return self.model_dump(
            include={
                "model", "revision", "api_base", "temperature", "top_p", "top_k", "presence_penalty",
                "max_tokens", "reasoning_effort", "thinking_budget", "extra_body",
            },
            exclude_none=True,
        )  # fmt: skip


class Pool(Settings):
    """An ordered list of workers."""

    name: PoolName
    description: str = ""
    workers: tuple[Worker, ...] = Field(min_length=1)

    @field_validator("workers")
    @classmethod
    def _unique_names(cls, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        names = [worker.name for worker in workers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"duplicate worker name {', '.join(twice)}")
        return workers

    @property
    def answers_key(self) -> str:
        """Hash (12 hex digits) of what can change an answer, in order of the workers' names.

        It keys policies, training runs, scores: another price leaves all of them as they are.
        """
        return digest(sorted([worker.name, worker.identity] for worker in self.workers))

    @property
    def prices_key(self) -> str:
        """Hash (12 hex digits) of today's prices, in order of the workers' names: what costs are computed with."""
        return digest(sorted([w.name, w.price.on().model_dump() if w.price else None] for w in self.workers))

    def worker(self, name: str) -> Worker:
        """The worker of that name. Raises `KeyError`."""
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise KeyError(f"no worker {name!r} in pool {self.name!r}: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)

    def missing_keys(self) -> dict[str, str]:
        """Worker name → environment variable that it needs and that holds no key (`secret.key_problem`)."""
        return {w.name: w.api_key_env for w in self.workers if w.api_key_env and key_problem(w.api_key_env)}
