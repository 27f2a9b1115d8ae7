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

from ops.config.base import DAY_S, HttpUrl, Name, PoolName, Settings, digest, find_key, key_problem
from ops.core.atomic import write_text
from ops.core.errors import ConfigError
from ops.core.settings_files import read_yaml
from ops.core.usage import TOKEN_PARTS, Usage, Whole

Tag = Literal["closed", "code", "generalist", "open", "reasoning", "tool"]
"""Facts about a worker: closed or open weights, a tool instead of a model, its speciality."""


_ACCOUNT_CHOOSES = ("openai/", "azure/", "gpt-")
"""Beginnings of models for which a setting of the account chooses the service tier if a request names none."""
_STANDARD_TIERS, _PRIORITY = ("auto", "default", "on_demand", "standard"), "priority"


def normalize_tier(name: str) -> str:
    """Return a provider's name of a service tier in lower case, and "" for its standard tier."""
    return "" if name.lower() in _STANDARD_TIERS else name.lower()


class Rates(Settings):
    """Prices in US dollars for a million tokens."""

    input: float = Field(ge=0)
    """The price of a million prompt tokens."""
    output: float = Field(ge=0)
    """The price of a million completion tokens."""
    cached_input: float | None = Field(default=None, ge=0)
    """The price of a million prompt tokens that the provider reads from its cache. If it is not set, it is that of
    `input`."""
    cache_write: float | None = Field(default=None, ge=0)
    """The price of a million prompt tokens that the provider writes into its cache. If it is not set, it is that of
    `input`."""
    reasoning: float | None = Field(default=None, ge=0)
    """The price of a million completion tokens that are reasoning. If it is not set, it is that of `output`."""

    def highest(self, whole: Whole) -> float:
        """Return the highest rate at which the tokens of a prompt, or of a completion, may be billed."""
        highest = self.input if whole == "prompt_tokens" else self.output
        for part in TOKEN_PARTS:
            if part.whole == whole:
                highest = max(highest, getattr(self, part.rate) or 0.0)
        return highest

    def __str__(self) -> str:
        special = {part.rate: getattr(self, part.rate) for part in TOKEN_PARTS}
        stated = "".join(f", {name.replace('_', ' ')} {rate:g}" for name, rate in special.items() if rate is not None)
        return f"{self.input:g} / {self.output:g}{stated}"


class RatesOfTier(Rates):
    """Prices of calls with a long prompt, of calls in a service tier, or of calls with both."""

    above_prompt_tokens: int | None = Field(default=None, ge=1)
    """These prices apply to prompts with more tokens than this. If it is not set, they apply to prompts of any
    length."""
    service_tier: str | None = Field(default=None, min_length=1)
    """The service tier to which these prices apply, as the provider names it in its reply, for example `priority`. If
    it is not set, this is the standard tier."""

    @field_validator("service_tier")
    @classmethod
    def _is_special(cls, name: str | None) -> str | None:
        if name is not None and not (tier := normalize_tier(name)):
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
    """Prices in US dollars for a million tokens, which may depend on the length of the prompt and on the service
    tier."""

    tiers: tuple[RatesOfTier, ...] = ()
    """Prices that replace the others for long prompts or in a service tier. Several of them may apply to a call in its
    service tier. Then the one with the highest `above_prompt_tokens` that the prompt exceeds is used."""

    @field_validator("tiers")
    @classmethod
    def _different(cls, tiers: tuple[RatesOfTier, ...]) -> tuple[RatesOfTier, ...]:
        conditions = [(tier.service_tier, tier.above_prompt_tokens) for tier in tiers]
        if len(set(conditions)) < len(conditions):
            raise ValueError("two tiers have the same above_prompt_tokens and service_tier")
        return tiers

    def rates_for(self, prompt_tokens: float, service_tier: str) -> Rates:
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
    """Prices that the provider has announced for a later day."""

    since: date
    """The first day (UTC) on which these prices are valid."""


class Price(TieredRates):
    """The prices of a worker in US dollars for a million tokens, with announced changes."""

    later: tuple[LaterRates, ...] = ()
    """Announced changes of the prices, the earliest first."""

    @field_validator("later")
    @classmethod
    def _one_after_another(cls, later: tuple[LaterRates, ...]) -> tuple[LaterRates, ...]:
        days = [rates.since for rates in later]
        if days != sorted(set(days)):
            raise ValueError("dates must be different and in ascending order")
        return later

    def rates_on(self, day: date | None = None) -> TieredRates:
        """Return the rates of that day; None: today (UTC)."""
        if not self.later:
            return self
        day = day or datetime.now(UTC).date()
        return next((rates for rates in reversed(self.later) if rates.since <= day), self)

    def as_stated(self) -> dict[str, Any]:
        """Return today's rates as a pool file states them, for a key or a record: without dates and defaults."""
        return self.rates_on().model_dump(exclude_defaults=True, exclude={"since", "later"})

    def compute_usd(self, usage: Usage, day: date | None = None) -> float:
        """Return what the usage costs (USD) on that day; None: today (UTC).

        A cost that the provider states counts if it is higher than this count.
        """
        rates = self.rates_on(day).rates_for(usage.prompt_tokens, usage.service_tier)
        rate_of = {"prompt_tokens": rates.input, "completion_tokens": rates.output}
        tokens_of: dict[str, float] = {whole: getattr(usage, whole) for whole in rate_of}
        for part in TOKEN_PARTS:
            if tokens := getattr(usage, part.name):
                rate = getattr(rates, part.rate)
                rate_of[part.name] = rate_of[part.whole] if rate is None else rate
                tokens_of[part.whole], tokens_of[part.name] = tokens_of[part.whole] - tokens, tokens
        counted = 0.0
        for name, tokens in tokens_of.items():
            counted += tokens * rate_of[name]
        return max(counted / 1e6, usage.stated_usd or 0.0)

    def compute_max_usd(
        self, prompt_tokens: float, completion_tokens: float, service_tier: str | None = None, day: date | None = None
    ) -> float:
        """Return the most (USD) that a call costs which uses at most so many tokens, however the provider bills them.

        `service_tier`: the tier that the request names, which the provider may replace by the standard one. None: the
        request names none, and the account's settings at the provider may choose "priority".
        """
        dated = self.rates_on(day)
        limits = {float(tier.above_prompt_tokens) for tier in dated.tiers if tier.above_prompt_tokens is not None}
        return max(
            (prompt * rates.highest("prompt_tokens") + completion_tokens * rates.highest("completion_tokens")) / 1e6
            for prompt in {prompt_tokens, *(limit for limit in limits if limit < prompt_tokens)}
            for tier in {"", _PRIORITY if service_tier is None else service_tier}
            for rates in [dated.rates_for(prompt, tier)]
        )


class Serve(Settings):
    """How Podium serves the model of a worker with vLLM, at the port of its `api_base`.

    No field is part of a cache key: raise the worker's `revision` if a change here changes answers.
    """

    model_path: str = Field(min_length=1)
    """The folder of the model (safetensors and tokenizer) as a path from the project's folder, or the name of the model
    on the Hugging Face hub."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "bfloat16"
    """The number format of the weights."""
    max_model_len: int | None = Field(default=None, ge=1)
    """The maximum length of prompt and answer together, in tokens. If it is not set, it is the model's own limit."""
    args: tuple[str, ...] = ()
    """Further arguments of the command `vllm serve`, which are passed unchanged."""


class ReasoningMarks(Settings):
    """The texts with which a model marks its reasoning."""

    opening: str = Field(min_length=2)
    """The text before the reasoning, for example `<think>`."""
    closing: str = Field(min_length=2)
    """The text after the reasoning, for example `</think>`."""
    prefilled: bool = False
    """Whether the chat template writes the opening mark itself. A text without a closing mark is then unfinished
    reasoning."""


class Worker(Settings):
    """One entry of the pool: a model with its endpoint, its settings, its price and its limits."""

    name: Name
    """The name of the worker, which must be unique in the pool. It is also the name of the folder of its responses."""
    model: str = Field(min_length=1)
    """The model, named as LiteLLM names it: `provider/model`. A model of the form `local/…` is one of the small
    programs that Podium contains."""
    revision: str = ""
    """A text that you change if another model answers under the same name. Stored responses of the old revision are
    then not used any more."""
    model_in_replies: str | None = None
    """The name of the model in the endpoint's replies, if it differs from the requested one, for example because the
    requested one is an alias."""
    api_base: HttpUrl | None = None
    """The address of the endpoint, for models that you host yourself."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    """The name of the environment variable that holds the API key. Never write the key itself here."""
    api_version: str | None = Field(default=None, min_length=1)
    """The version of the provider's API (for Azure)."""
    region: str | None = Field(default=None, min_length=1)
    """The region in which the provider computes (for Bedrock and Vertex AI)."""
    project: str | None = Field(default=None, min_length=1)
    """The project of your account that pays (for Vertex AI). Changing it invalidates no stored responses."""
    organization: str | None = Field(default=None, min_length=1)
    """The organization of your account that pays (for OpenAI). Changing it invalidates no stored responses."""
    extra_headers: dict[str, str] | None = Field(default=None, min_length=1)
    """HTTP headers that are added to every request, for example to turn on a provider's beta feature. They must not
    contain a key."""
    temperature: float | None = Field(default=0.2, ge=0, le=2)
    """The temperature. If it is null, no temperature is sent, as some reasoning models require."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling. If it is not set, the provider's default is used."""
    top_k: int | None = Field(default=None, ge=1)
    """The number of most likely tokens to draw from. If it is not set, the provider's default is used."""
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    """The penalty for tokens that the text already contains. If it is not set, the provider's default is used."""
    max_tokens: int = Field(default=4096, ge=1)
    """The maximum length of an answer in tokens, including reasoning."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How much the model reasons before it answers, for providers that accept such a word. If it is not set, the
    provider's default is used."""
    thinking_budget: int | None = Field(default=None, ge=0)
    """The maximum number of reasoning tokens, for providers that accept a number. It must be less than `max_tokens`."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request, which are sent to the provider unchanged, for example the `chat_template_kwargs`
    of a vLLM server. They must not contain a key."""
    response_format: dict[str, Any] | None = Field(default=None, min_length=1)
    """The form of every answer, as OpenAI's parameter of the same name describes it. The form that a request asks for
    replaces it."""
    reasoning_marks: tuple[ReasoningMarks, ...] | None = None
    """The marks with which the model encloses reasoning in its text, which Podium removes. An empty list means that it
    does not mark reasoning. If it is not set, Podium removes reasoning in all notations that it knows, such as
    `<think>` and `[THINK]`."""
    control_tokens: tuple[Annotated[str, Field(min_length=2)], ...] | None = None
    """Tokens that the server leaves in the text by mistake and that Podium removes, in addition to those that it knows,
    such as `<|im_end|>` and `</s>`."""
    finish_reasons: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Finish reasons with which the provider ends a complete answer, in addition to those that Podium knows."""
    price: Price | None = None
    """The prices of the model. If it is not set, the prices of LiteLLM's table are used."""
    concurrency: int = Field(default=16, ge=1, le=10_000)
    """The maximum number of calls at the same time. After a response with status 429, Podium makes fewer calls for a
    while."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """The maximum number of requests in a minute. Podium spreads them evenly. If it is not set, there is no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """The maximum number of prompt and completion tokens in a minute. Podium estimates the tokens before a call and
    corrects the number after it. If it is not set, there is no limit."""
    refuses_with: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    """Phrases that tell that the provider has refused the content of a request with a status from 400 to 499, in
    addition to those that Podium knows. Capital letters do not matter."""
    timeout_s: float = Field(default=120.0, gt=0, le=DAY_S)
    """The maximum duration of a call in seconds."""
    connect_timeout_s: float = Field(default=10.0, gt=0, le=DAY_S)
    """The maximum time to connect to the endpoint, in seconds."""
    retries: int = Field(default=4, ge=0, le=20)
    """The number of further attempts after a transient failure (status 429, status 500 or above, or a broken
    connection)."""
    breaker_failures: int = Field(default=5, ge=1)
    """The number of consecutive failed calls after which the worker is paused. A call has failed if all of its attempts
    have."""
    breaker_rest_s: float = Field(default=30.0, gt=0, le=DAY_S)
    """The duration of this pause in seconds. During the pause all calls fail at once. After it, one call is made as a
    test."""
    latency_s: float | None = Field(default=None, ge=0, le=DAY_S)
    """The latency in seconds that is recorded for a worker that answers at once, such as one of the small programs of
    the synthetic environment. If it is not set, the latency is measured."""
    serve: Serve | None = None
    """If it is set, Podium serves the worker's model with vLLM while it is needed."""
    tags: tuple[Tag, ...] = ()
    """Facts about the worker: whether its weights are open or closed, and its speciality."""
    retired: date | None = None
    """The day from which the provider no longer serves the model, if it is known. Stored responses stay valid."""

    @field_validator("extra_body", "extra_headers")
    @classmethod
    def _no_key_inside(cls, values: dict[str, Any] | None) -> dict[str, Any] | None:
        if values is not None and (secret := find_key(values)):
            raise ValueError(secret)
        return values

    @property
    def service_tier(self) -> str | None:
        """Return the service tier that requests name in `extra_body`, "" for the standard one.

        None: they name none, and the account's settings at the provider choose one.
        """
        named = self.extra_body.get("service_tier")
        if isinstance(named, str) and named != "auto":
            return normalize_tier(named)
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
                "extra_headers", "reasoning_marks", "control_tokens", "response_format",
            },
            exclude_none=True,
        )  # fmt: skip


class Pool(Settings):
    """The models that a Conductor may ask, in a fixed order."""

    name: PoolName
    """The name of the pool, which is that of its file."""
    description: str = ""
    """A sentence that says what the pool contains."""
    workers: tuple[Worker, ...] = Field(min_length=1)
    """The workers of the pool."""

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
        return digest(sorted([w.name, w.price.as_stated() if w.price else None] for w in self.workers))

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


FIXED_FIELDS = ("name", "model", "api_key_env")
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
            workers=tuple(_change_worker(worker, changes.get(worker.name, {}), variant) for worker in self.workers),
        )


def _change_worker(worker: Worker, settings: dict[str, Any], variant: str) -> Worker:
    where = f"variants.{variant}.{worker.name}"
    if fixed := sorted(settings.keys() & set(FIXED_FIELDS)):
        raise ValueError(f"{where}: a variant may not change {', '.join(fixed)}")
    try:
        return Worker.from_file_values(worker.model_dump(mode="json") | settings)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}{'.' if field else ''}{field}: {problem}") from None


REVISIONS_FILE = "revisions.yaml"
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
        file = config / REVISIONS_FILE
        if not os.path.lexists(file):
            return cls()
        models = read_yaml(file)
        try:
            return cls.from_file_values({"models": models or {}})
        except ValidationError as error:
            remedy = 'Write lines of `"provider/model": revision`, or delete the file'
            raise ConfigError(file, "", f"is not a table of revisions ({error})", remedy) from None

    def with_revision(self, worker: Worker, revision: str) -> Self:
        """Return the revisions with a new one for that worker's model."""
        return type(self)(models={**self.models, revised_model_name(worker): revision})

    def write(self, config: Path) -> Path:
        """Replace the file atomically."""
        lines = (f"{json.dumps(model)}: {json.dumps(noted)}\n" for model, noted in sorted(self.models.items()))
        write_text(config / REVISIONS_FILE, _HEAD + "".join(lines))
        return config / REVISIONS_FILE

    def apply_to(self, pool: Pool) -> Pool:
        """Return the pool with every noted revision added to that of its own file."""
        if not any(revised_model_name(worker) in self.models for worker in pool.workers):
            return pool
        return pool.model_copy(update={"workers": tuple(map(self._apply_to_worker, pool.workers))})

    def _apply_to_worker(self, worker: Worker) -> Worker:
        noted = self.models.get(revised_model_name(worker))
        if noted is None:
            return worker
        return worker.model_copy(update={"revision": f"{worker.revision}+{noted}" if worker.revision else noted})


def revised_model_name(worker: Worker) -> str:
    """Return what a worker's provider could replace: the model at its endpoint."""
    return f"{worker.model} @ {worker.api_base}" if worker.api_base else worker.model
