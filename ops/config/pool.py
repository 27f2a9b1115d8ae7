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

Tag = Literal["closed", "code", "generalist", "open", "reasoning", "tool"]
"""Facts about a worker: closed or open weights, a tool instead of a model, its speciality."""


class Rates(Settings):
    """USD per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def plain(self) -> Rates:
        """Return these rates without a date."""
        return Rates(input=self.input, output=self.output)

    def __str__(self) -> str:
        return f"{self.input:g} / {self.output:g}"


class LaterRates(Rates):
    """Rates that the provider has announced."""

    since: date
    """The first day (UTC) of these rates."""


class Price(Rates):
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

    def on(self, day: date | None = None) -> Rates:
        """Return the rates of that day; None: today (UTC)."""
        day = day or datetime.now(UTC).date()
        return next((rates for rates in reversed(self.later) if rates.since <= day), self).plain()

    def usd(self, prompt_tokens: int, completion_tokens: int, day: date | None = None) -> float:
        """Return the cost of the tokens (USD) on that day; None: today (UTC)."""
        rates = self.on(day)
        return (prompt_tokens * rates.input + completion_tokens * rates.output) / 1e6


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
        return digest(sorted([w.name, w.price.on().model_dump() if w.price else None] for w in self.workers))

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
# Models that changed behind their names, found by `podium drift` (docs/release.md). The revision is part of every
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
