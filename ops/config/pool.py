"""The worker pool: its file, its variants, and models that changed under their names (`config/revisions.yaml`).

The drift test writes a model's revision, and a person may remove it. The revision becomes part of every cache key of
the model's workers, in every pool: old answers stay in the cache, and no later run uses them.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from ops.config.base import DAY_S, HttpUrl, Name, PoolName, Settings, digest, find_in, key_problem
from ops.core.atomic import write_text
from ops.core.errors import ConfigError
from ops.core.settings_files import read_yaml
from ops.core.usage import MeanUsage, Usage

Tag = Literal["closed", "code", "generalist", "open", "reasoning", "tool"]
"""Facts about a worker: closed or open weights, a tool instead of a model, its speciality."""


_ACCOUNT_CHOOSES = ("openai/", "azure/", "gpt-")
"""Beginnings of models for which a setting of the account chooses the service tier if a request names none."""
_STANDARD_TIERS, _PRIORITY = ("auto", "default", "on_demand", "standard"), "priority"


def tier_named(name: str) -> str:
    """Return a provider's name of a service tier in lower case, and "" for its standard tier."""
    return "" if name.lower() in _STANDARD_TIERS else name.lower()


class Rates(Settings):
    """USD per million tokens."""

    input: float = Field(ge=0)
    """Tokens of the prompt."""
    output: float = Field(ge=0)
    """Tokens of the completion."""
    cached_input: float | None = Field(default=None, ge=0)
    """Tokens of the prompt that the provider reads from its cache. None: as `input`."""
    cache_write: float | None = Field(default=None, ge=0)
    """Tokens of the prompt that the provider writes to its cache. None: as `input`."""
    reasoning: float | None = Field(default=None, ge=0)
    """Tokens of the completion that are reasoning. None: as `output`."""

    def __str__(self) -> str:
        special = {"cached input": self.cached_input, "cache write": self.cache_write, "reasoning": self.reasoning}
        stated = "".join(f", {name} {rate:g}" for name, rate in special.items() if rate is not None)
        return f"{self.input:g} / {self.output:g}{stated}"


class RatesOfTier(Rates):
    """Rates of calls with a long prompt, at a service tier, or with both."""

    above_prompt_tokens: int | None = Field(default=None, ge=1)
    """The prompt has more tokens than this. None: of any length."""
    service_tier: str | None = Field(default=None, min_length=1)
    """The service tier that the provider's reply names, for example `priority`. None: the standard one."""

    @field_validator("service_tier")
    @classmethod
    def _is_special(cls, name: str | None) -> str | None:
        if name is not None and not (tier := tier_named(name)):
            raise ValueError(f"{name!r} is the standard tier: its rates stand beside `tiers`")
        return tier if name is not None else None

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if self.above_prompt_tokens is None and self.service_tier is None:
            raise ValueError("a tier needs above_prompt_tokens, service_tier, or both")
        return self

    def __str__(self) -> str:
        tier = f"at {self.service_tier}" if self.service_tier else ""
        length = f"above {self.above_prompt_tokens:,} prompt tokens" if self.above_prompt_tokens else ""
        return f"{super().__str__()} {' '.join(part for part in (tier, length) if part)}"


class TieredRates(Rates):
    """USD per million tokens, which may differ with the length of the prompt and the service tier."""

    tiers: tuple[RatesOfTier, ...] = ()
    """Rates that replace the others. Of the tiers for a reply's service tier, the one with the highest
    `above_prompt_tokens` that the prompt exceeds is valid."""

    @field_validator("tiers")
    @classmethod
    def _different(cls, tiers: tuple[RatesOfTier, ...]) -> tuple[RatesOfTier, ...]:
        conditions = [(tier.service_tier, tier.above_prompt_tokens) for tier in tiers]
        if len(set(conditions)) < len(conditions):
            raise ValueError("two tiers have the same above_prompt_tokens and service_tier")
        return tiers

    def of(self, prompt_tokens: float, service_tier: str) -> Rates:
        """Return the rates of a call with a prompt of that length at that service tier ("": the standard one)."""
        if not self.tiers:
            return self
        valid = [tier for tier in self.tiers if prompt_tokens > (tier.above_prompt_tokens or 0)]
        own = [tier for tier in valid if (tier.service_tier or "") == service_tier]
        own = own or [tier for tier in valid if tier.service_tier is None]
        return max(own, key=lambda tier: tier.above_prompt_tokens or 0, default=self)

    def __str__(self) -> str:
        return ", ".join([super().__str__(), *map(str, self.tiers)])


class LaterRates(TieredRates):
    """Rates that the provider has announced."""

    since: date
    """The first day (UTC) of these rates."""


class Price(TieredRates):
    """USD per million tokens, with announced changes."""

    later: tuple[LaterRates, ...] = ()
    """Announced changes, earliest first."""

    @field_validator("later")
    @classmethod
    def _one_after_another(cls, later: tuple[LaterRates, ...]) -> tuple[LaterRates, ...]:
        days = [rates.since for rates in later]
        if days != sorted(set(days)):
            raise ValueError("dates must be different and in ascending order")
        return later

    def on(self, day: date | None = None) -> TieredRates:
        """Return the rates of that day; None: today (UTC)."""
        if not self.later:
            return self
        day = day or datetime.now(UTC).date()
        return next((rates for rates in reversed(self.later) if rates.since <= day), self)

    def stated(self) -> dict[str, Any]:
        """Return today's rates as a pool file states them, for a key or a record: without dates and defaults."""
        return self.on().model_dump(exclude_defaults=True, exclude={"since", "later"})

    def usd(self, usage: Usage | MeanUsage, day: date | None = None) -> float:
        """Return what the usage costs (USD) on that day; None: today (UTC).

        A cost that the provider states counts if it is higher than this count.
        """
        rates = self.on(day).of(usage.prompt_tokens, usage.service_tier)
        prompt = usage.prompt_tokens - usage.cached_prompt_tokens - usage.cache_write_tokens
        counted = prompt * rates.input + (usage.completion_tokens - usage.reasoning_tokens) * rates.output
        for tokens, rate, usual in (
            (usage.cached_prompt_tokens, rates.cached_input, rates.input),
            (usage.cache_write_tokens, rates.cache_write, rates.input),
            (usage.reasoning_tokens, rates.reasoning, rates.output),
        ):
            if tokens:
                counted += tokens * (usual if rate is None else rate)
        return max(counted / 1e6, usage.stated_usd or 0.0)

    def most_usd(
        self, prompt_tokens: float, completion_tokens: float, service_tier: str | None = None, day: date | None = None
    ) -> float:
        """Return the most (USD) that a call costs which uses at most so many tokens, however the provider bills them.

        `service_tier`: the tier that the request names, which the provider may replace by the standard one. None: the
        request names none, and the account's settings at the provider may choose "priority".
        """
        tiers = self.on(day).tiers
        limits = {float(tier.above_prompt_tokens) for tier in tiers if tier.above_prompt_tokens is not None}
        return max(
            self.usd(MeanUsage(prompt, completion_tokens, *prompt_parts, reasoning, tier), day)
            for prompt in {prompt_tokens, *(limit for limit in limits if limit < prompt_tokens)}
            for tier in {"", _PRIORITY if service_tier is None else service_tier}
            for prompt_parts in ((0.0, 0.0), (prompt, 0.0), (0.0, prompt))
            for reasoning in (0.0, completion_tokens)
        )


class Serve(Settings):
    """How Podium serves a worker's model with vLLM, at the port of its `api_base`.

    No field is part of a cache key: raise the worker's `revision` if a change here changes answers.
    """

    model_path: str = Field(min_length=1)
    """Folder of the model (safetensors, tokenizer), from the project's root; or an id on a model hub."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "bfloat16"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens of prompt and answer together; None: the model's own limit."""
    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`, passed unchanged."""


class ReasoningMarks(Settings):
    """How a model marks the reasoning in its text."""

    opening: str = Field(min_length=2)
    closing: str = Field(min_length=2)
    prefilled: bool = False
    """The chat template writes the opening mark, so that a text without a closing mark is unfinished reasoning."""


class Worker(Settings):
    """One entry of the pool: a model with its endpoint, sampling, price and limits."""

    name: Name
    """Unique in the pool; the folder name of its responses."""
    model: str = Field(min_length=1)
    """LiteLLM model string, `provider/model`. `local/…` names an embedded tool worker."""
    revision: str = ""
    """Raise it if another model answers under the same name: it is part of every cache key."""
    model_in_replies: str | None = None
    """The model's name in the endpoint's replies, if it differs (an alias, a deployment)."""
    api_base: HttpUrl | None = None
    """Endpoint, for self-hosted models."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    """The NAME of the environment variable that holds the key; never the key itself."""
    api_version: str | None = Field(default=None, min_length=1)
    """Version of the provider's API (Azure)."""
    region: str | None = Field(default=None, min_length=1)
    """Where the provider computes (Bedrock, Vertex AI)."""
    project: str | None = Field(default=None, min_length=1)
    """The account's project that pays (Vertex AI); in no key."""
    organization: str | None = Field(default=None, min_length=1)
    """The account's organization that pays (OpenAI); in no key."""
    extra_headers: dict[str, str] | None = Field(default=None, min_length=1)
    """HTTP headers of every request (a provider's beta switch); never a key."""
    temperature: float | None = Field(default=0.2, ge=0, le=2)
    """None: not sent (for reasoning models that accept only their default)."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int = Field(default=4096, ge=1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    thinking_budget: int | None = Field(default=None, ge=0)
    """Reasoning tokens, for providers that accept a number."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Passed to the provider unchanged (for example a vLLM server's `chat_template_kwargs`); never a key."""
    response_format: dict[str, Any] | None = Field(default=None, min_length=1)
    """The form of every answer, as OpenAI's parameter of this name says it; a request's own replaces it."""
    reasoning_marks: tuple[ReasoningMarks, ...] | None = None
    """How the model marks reasoning in its text, which is removed; `[]`: not at all. None: all notations that Podium
    knows (`<think>`, `[THINK]`, channels …)."""
    control_tokens: tuple[Annotated[str, Field(min_length=2)], ...] | None = None
    """Tokens that the server leaves in the text, in addition to those that Podium knows (`<|im_end|>`, `</s>` …)."""
    finish_reasons: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Finish reasons with which the provider ends a whole answer, in addition to those that Podium knows."""
    price: Price | None = None
    """USD per million tokens. None: LiteLLM's price table."""
    concurrency: int = Field(default=16, ge=1, le=10_000)
    """Maximum calls in flight; fewer for a while after a 429."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Maximum requests per minute, spaced evenly. None: no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Maximum prompt and completion tokens per minute, estimated before a call and corrected after it."""
    refuses_with: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    """Phrases by which this provider refuses content with a 4xx, in addition to the known ones; any case."""
    timeout_s: float = Field(default=120.0, gt=0, le=DAY_S)
    """Seconds for a whole call."""
    connect_timeout_s: float = Field(default=10.0, gt=0, le=DAY_S)
    """Seconds to connect."""
    retries: int = Field(default=4, ge=0, le=20)
    """Further attempts after a transient failure (429, 5xx, connection)."""
    breaker_failures: int = Field(default=5, ge=1)
    """Consecutive failed calls, each after its retries, after which the worker is paused."""
    breaker_rest_s: float = Field(default=30.0, gt=0, le=DAY_S)
    """Seconds of that pause: calls fail at once, then one call is made as a test."""
    latency_s: float | None = Field(default=None, ge=0, le=DAY_S)
    """Declared latency of a worker that answers at once (embedded tools). None: as measured."""
    serve: Serve | None = None
    """How Podium serves this worker's model with vLLM while assets use it. None: Podium does not serve it."""
    tags: tuple[Tag, ...] = ()
    retired: date | None = None
    """The day from which its provider no longer answers, if known. Earlier responses stay valid."""

    @field_validator("extra_body", "extra_headers")
    @classmethod
    def _no_key_inside(cls, values: dict[str, Any] | None) -> dict[str, Any] | None:
        if values is not None and (secret := find_in(values)):
            raise ValueError(secret)
        return values

    @property
    def service_tier(self) -> str | None:
        """Return the service tier that requests name in `extra_body`, "" for the standard one.

        None: they name none, and the account's settings at the provider choose one.
        """
        named = self.extra_body.get("service_tier")
        if isinstance(named, str) and named != "auto":
            return tier_named(named)
        return None if self.model.startswith(_ACCOUNT_CHOOSES) else ""

    @model_validator(mode="after")
    def _can_think(self) -> Self:
        if self.thinking_budget and self.thinking_budget >= self.max_tokens:
            raise ValueError(
                f"thinking_budget {self.thinking_budget} leaves nothing of max_tokens {self.max_tokens} for the answer"
            )
        if self.thinking_budget and self.model.startswith("anthropic/") and self.temperature not in (None, 1):
            raise ValueError(
                "Anthropic models do not accept a temperature together with thinking: write `temperature: null`"
            )
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Return everything that can change this worker's answers: its part of a cache key, without name and price."""
        return self.model_dump(
            include={
                "model", "revision", "api_base", "temperature", "top_p", "top_k", "presence_penalty",
                "max_tokens", "reasoning_effort", "thinking_budget", "extra_body", "api_version", "region",
                "extra_headers", "response_format", "reasoning_marks", "control_tokens",
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
        """Return a hash (12 hex digits) of everything that can change an answer, in order of the workers' names.

        It is part of the keys of policies, training runs and scores, which do not depend on prices.
        """
        return digest(sorted([worker.name, worker.identity] for worker in self.workers))

    @property
    def prices_key(self) -> str:
        """Return a hash (12 hex digits) of today's prices, in order of the workers' names, from which costs are
        computed."""
        return digest(sorted([w.name, w.price.stated() if w.price else None] for w in self.workers))

    def worker(self, name: str) -> Worker:
        """Return the worker of that name. Raises `KeyError`."""
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise KeyError(f"no worker {name!r} in pool {self.name!r}: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)

    def missing_keys(self) -> dict[str, str]:
        """Return worker name → environment variable that it needs and that holds no key (`base.key_problem`)."""
        return {w.name: w.api_key_env for w in self.workers if w.api_key_env and key_problem(w.api_key_env)}


FIXED = ("name", "model", "api_key_env")
"""Fields that a variant may not change, because another model would be another worker."""


class PoolFile(Pool):
    """The contents of `config/pools/NAME.yaml`; `resolve` returns the pool that all other code uses."""

    variants: dict[Name, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Variant → worker → the settings that differ there; `NAME:VARIANT` in a recipe chooses it."""

    @model_validator(mode="after")
    def _variants_are_pools(self) -> Self:
        for variant in self.variants:
            self.resolve(variant)
        return self

    def resolve(self, variant: str = "") -> Pool:
        """Return the pool itself, or that variant of it. Raises `ValueError` for invalid settings of a worker."""
        if not variant:
            return Pool(name=self.name, description=self.description, workers=self.workers)
        changes = self.variants[variant]
        if unknown := sorted(changes.keys() - set(self.names)):
            raise ValueError(f"variants.{variant}: no worker {', '.join(unknown)} in this pool")
        return Pool(
            name=f"{self.name}:{variant}",
            description=self.description,
            workers=tuple(_changed(worker, changes.get(worker.name, {}), variant) for worker in self.workers),
        )


def _changed(worker: Worker, settings: dict[str, Any], variant: str) -> Worker:
    where = f"variants.{variant}.{worker.name}"
    if fixed := sorted(settings.keys() & set(FIXED)):
        raise ValueError(f"{where}: a variant may not change {', '.join(fixed)}")
    try:
        return Worker.of_file(worker.model_dump(mode="json") | settings)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}{'.' if field else ''}{field}: {problem}") from None


FILE = "revisions.yaml"
_HEAD = """\
# Models that changed behind their names, found by `podium drift` (docs/retraining.md). The revision is part of every
# cache key of the model's workers: answers of before are kept, and none is mixed with those of after. Remove a line to
# take the old answers back.
"""


class Revisions(Settings):
    """Model, or `model @ endpoint` → the revision of its later answers."""

    models: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def read(cls, config: Path) -> Self:
        """Read the file in `config`; empty if there is none. Raises `ConfigError`."""
        file = config / FILE
        if not os.path.lexists(file):
            return cls()
        models = read_yaml(file)
        try:
            return cls.of_file({"models": models or {}})
        except ValidationError as error:
            remedy = 'Write lines of `"provider/model": revision`, or delete the file'
            raise ConfigError(file, "", f"is not a table of revisions ({error})", remedy) from None

    def noting(self, worker: Worker, revision: str) -> Self:
        """Return the revisions with a new one for that worker's model."""
        return type(self)(models={**self.models, model_of(worker): revision})

    def write(self, config: Path) -> Path:
        """Replace the file atomically."""
        lines = (f"{json.dumps(model)}: {json.dumps(noted)}\n" for model, noted in sorted(self.models.items()))
        write_text(config / FILE, _HEAD + "".join(lines))
        return config / FILE

    def of(self, pool: Pool) -> Pool:
        """Return the pool with every noted revision added to that of its own file."""
        if not any(model_of(worker) in self.models for worker in pool.workers):
            return pool
        return pool.model_copy(update={"workers": tuple(map(self._of, pool.workers))})

    def _of(self, worker: Worker) -> Worker:
        noted = self.models.get(model_of(worker))
        if noted is None:
            return worker
        return worker.model_copy(update={"revision": f"{worker.revision}+{noted}" if worker.revision else noted})


def model_of(worker: Worker) -> str:
    """Return what a worker's provider could replace: the model at its endpoint."""
    return f"{worker.model} @ {worker.api_base}" if worker.api_base else worker.model
