"""Every setting as a pydantic model: loading, validation, the resolved dump.

What belongs here: what a user may set, and which combinations are impossible.
What does not: anything that acts on a setting, and any heavy import (torch,
dagster, litellm, mlflow): `podium` commands parse first and import after.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ops.errors import ConfigError

TRAINING_BENCHMARKS = ("math500", "mmlu", "rlpr", "livecodebench")
"""The benchmarks whose training split feeds the mix, one per domain."""
UNSEEN_BENCHMARKS = ("aime25", "gpqa_diamond", "bigcodebench")
"""Evaluation only: nothing of them is ever trained on."""
BENCHMARKS = TRAINING_BENCHMARKS + UNSEEN_BENCHMARKS


class Settings(BaseModel):
    """Base of every model here: unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


# ── the worker pool ──────────────────────────────────────────────────────────


class Price(Settings):
    """USD per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class Worker(Settings):
    """One entry of the pool: a model with its endpoint, sampling, price and limits."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Unique in the pool; the Dagster partition key and the folder name of its responses."""
    model: str = Field(min_length=1)
    """LiteLLM model string, `provider/model`. `local/…` names an embedded tool worker."""
    revision: str = ""
    """Raise it when the model behind the same name has changed: it is part of every cache key."""
    api_base: str | None = None
    """Endpoint, for self-hosted models."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    """NAME of the environment variable that holds the key; never the key itself."""
    temperature: float | None = Field(default=0.2, ge=0, le=2)
    """None: do not send one (reasoning models that accept only their default)."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int = Field(default=4096, ge=1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    thinking_budget: int | None = Field(default=None, ge=0)
    """Reasoning tokens, for the providers that take a number."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Passed to the provider as it stands (a vLLM server's `chat_template_kwargs`, say)."""
    price: Price | None = None
    """None: LiteLLM's own price table."""
    concurrency: int = Field(default=16, ge=1)
    """Calls in flight at once."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    timeout_s: float = Field(default=120.0, gt=0)
    retries: int = Field(default=4, ge=0)
    """Further attempts after a transient failure (429, 5xx, connection)."""
    latency_s: float | None = Field(default=None, ge=0)
    """Declared latency of a worker that answers at once (tool workers); None: as measured."""
    tags: tuple[str, ...] = ()

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

    name: str
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
    def fingerprint(self) -> str:
        """Hash (12 hex digits) of what can change an answer or a price, in order of the workers' names."""
        facts = sorted([w.name, w.identity, w.price.model_dump() if w.price else None] for w in self.workers)
        return digest(facts)

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
        """Worker name → environment variable that it needs and the environment lacks."""
        return {w.name: w.api_key_env for w in self.workers if w.api_key_env and not os.environ.get(w.api_key_env)}


# ── the recipe ───────────────────────────────────────────────────────────────


class BenchmarkSource(Settings):
    """Where one benchmark's problems come from."""

    source: Literal["embedded", "file", "hub"] = "embedded"
    train_file: str | None = None
    """Path from the project's root (jsonl or jsonl.gz), for `source: file`."""
    test_file: str | None = None
    revision: str | None = None
    """Pinned revision, for `source: hub`."""
    train: int | None = Field(default=None, ge=1)
    """At most so many training candidates; None: all. Embedded families generate exactly so many."""
    test: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _file_needs_a_path(self) -> Self:
        if self.source == "file" and not (self.train_file or self.test_file):
            raise ValueError("source is 'file' but neither train_file nor test_file is given")
        return self


class Curation(Settings):
    """How the training mix is chosen."""

    per_domain: int = Field(default=240, ge=1)
    """Places in the mix for each of the four domains."""
    shortlist_factor: float = Field(default=1.0, ge=1)
    """Candidates precached per place; more than 1: the mix is chosen by measured worker disagreement."""
    selector: Literal["disagreement", "uniform"] = "disagreement"
    near_duplicate_jaccard: float = Field(default=0.8, gt=0, le=1)
    """Training candidates at least this similar (word 5-grams) to an evaluation question are removed."""


class Precaching(Settings):
    samples: int = Field(default=1, ge=1)
    """Responses per worker and problem (sample indices 0 … samples-1)."""


class Prompting(Settings):
    """What the Conductor is shown."""

    style: Literal["full", "compact"] = "full"
    """"full" explains the task and the grammar; "compact" shows only the problem and the workers'
    ordinals, for a policy that learned the grammar in its cold start."""
    few_shots: Literal["none", "out_of_distribution", "in_distribution", "mixed"] = "out_of_distribution"
    max_steps: int = Field(default=5, ge=1)
    access: Literal["binary", "fine_grained"] = "binary"
    shuffle_ordinals: bool = True
    """Whether the seed decides which worker is "Model 0": no prior about a worker's place."""


class ScratchPolicy(Settings):
    """A small Qwen2-architecture policy made here, with its own tokenizer."""

    kind: Literal["scratch"] = "scratch"
    vocabulary: int = Field(default=1024, ge=300)
    hidden: int = Field(default=192, ge=16)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    max_tokens: int = Field(default=512, ge=64)
    """Longest sequence, prompt and completion together (tokens)."""


class PretrainedPolicy(Settings):
    """A language model from a hub or a folder."""

    kind: Literal["pretrained"] = "pretrained"
    model: str
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    gguf_file: str | None = None
    """File name inside the folder, when the weights are in GGUF."""


class ColdStart(Settings):
    """Supervised learning of the grammar on workflows sampled with the precached successes."""

    steps: int = Field(default=500, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    success_share: float = Field(default=0.7, ge=0, le=1)
    """Share of sampled workflows that are known to work, or whose last worker answered the problem in the
    precache, where there are such."""
    attempts: int = Field(default=0, ge=0)
    """Random workflows tried on each problem that no worker solves alone; those that work are learned from."""


class Grpo(Settings):
    """GRPO (Appendix A.1 of arXiv:2512.04388 where the recipe is `paper`)."""

    steps: int = Field(default=200, ge=1)
    questions_per_step: int = Field(default=4, ge=1)
    rollouts_per_question: int = Field(default=64, ge=2)
    temperature: float = Field(default=1.0, gt=0)
    max_completion_tokens: int = Field(default=1024, ge=8)
    learning_rate: float = Field(default=1e-6, gt=0)
    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    clip: float = Field(default=0.2, gt=0)
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL term; 0: no reference model is loaded."""
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = "grpo"
    max_grad_norm: float = Field(default=1.0, gt=0)
    micro_batch: int = Field(default=256, ge=1)
    """Rollouts per device in one forward and backward pass."""
    gradient_checkpointing: bool = False
    vllm: bool = False
    """Generate with vLLM (needs the `gpu` extra)."""
    vllm_memory: float = Field(default=0.3, gt=0, lt=1)
    """Share of each GPU's memory for vLLM's weights and cache."""
    deepspeed: str | None = None
    """File in config/deepspeed, or None for a single process."""
    processes: int = Field(default=1, ge=1)
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints: what a crash can cost."""

    @property
    def rollouts_per_step(self) -> int:
        return self.questions_per_step * self.rollouts_per_question

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.rollouts_per_step % (self.micro_batch * self.processes) != 0:
            raise ValueError(
                f"questions_per_step × rollouts_per_question = {self.rollouts_per_step} is not a multiple of "
                f"micro_batch × processes = {self.micro_batch * self.processes}"
            )
        if self.processes > 1 and self.deepspeed is None:
            raise ValueError("processes > 1 needs a deepspeed file")
        return self


class Evaluation(Settings):
    repeats: int = Field(default=1, ge=1)
    """Workflows written and executed per question (sample indices 0 … repeats-1)."""
    temperature: float = Field(default=0.0, ge=0)
    """0: greedy."""
    batch: int = Field(default=128, ge=1)


class Budget(Settings):
    run_usd: float = Field(default=10.0, gt=0)
    """What one run may spend on workers; each call reserves its worst case first."""
    month_usd: float | None = Field(default=None, gt=0)


class Recipe(Settings):
    """A named training or evaluation configuration."""

    name: str
    description: str = ""
    seed: int = 0
    pool: str
    """A file in config/pools, without `.yaml`."""
    benchmarks: dict[str, BenchmarkSource]
    curation: Curation = Curation()
    precaching: Precaching = Precaching()
    prompting: Prompting = Prompting()
    policy: ScratchPolicy | PretrainedPolicy = Field(discriminator="kind")
    cold_start: ColdStart | None = None
    """None: the base model writes the grammar already (a pretrained one, shown few-shots)."""
    grpo: Grpo = Grpo()
    evaluation: Evaluation = Evaluation()
    budget: Budget = Budget()

    @field_validator("benchmarks")
    @classmethod
    def _known(cls, sources: dict[str, BenchmarkSource]) -> dict[str, BenchmarkSource]:
        if unknown := sorted(set(sources) - set(BENCHMARKS)):
            raise ValueError(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
        if missing := sorted(set(TRAINING_BENCHMARKS) - set(sources)):
            raise ValueError(f"missing training benchmark {', '.join(missing)}")
        return sources

    @model_validator(mode="after")
    def _scratch_needs_a_cold_start(self) -> Self:
        if self.policy.kind == "scratch" and self.cold_start is None:
            raise ValueError("a policy made from scratch needs a cold_start section")
        return self


# ── the promotion gate ───────────────────────────────────────────────────────


class PromotionGate(Settings):
    """When a challenger becomes the champion."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    bootstrap_samples: int = Field(default=10_000, ge=100)
    min_gain_over_best_worker: float = 0.0
    """Accuracy (0–1) by which the mean must exceed the best single worker's: lower bound of the paired bootstrap."""
    max_loss_against_champion: float = Field(default=0.01, ge=0)
    """The paired bootstrap's lower bound against the champion may not fall below minus this."""
    max_benchmark_loss: float = Field(default=0.05, ge=0)
    """No benchmark may be worse than the champion's by more than this."""
    max_cost_ratio: float = Field(default=1.5, gt=0)
    """USD per question against the champion's."""
    max_latency_ratio: float = Field(default=1.5, gt=0)
    min_format_compliance: float = Field(default=0.95, ge=0, le=1)
    min_paired_share: float = Field(default=0.9, gt=0, le=1)
    """Share of the other side's questions that both scored; below it the two cannot be compared."""


# ── loading ──────────────────────────────────────────────────────────────────

S = TypeVar("S", bound=Settings)
_KEY_SHAPE = re.compile(r"\b(sk|pk|AIza|hf|xai)[-_A-Za-z0-9]{20,}")


def load(model: type[S], file: Path) -> S:
    """Read one YAML file into `model`. Raises `ConfigError` naming file, field and remedy."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml"))) or "none"
        raise ConfigError(file, "(file)", "does not exist", f"Files there: {known}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(file, "(file)", f"is not UTF-8 ({error.reason})", "Save it as UTF-8") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}" if where else "(file)"
        raise ConfigError(file, line, "is not valid YAML", str(getattr(error, "problem", error))) from None
    if not isinstance(values, dict):
        raise ConfigError(file, "(file)", "is not a mapping", f"Write the fields of {model.__name__}")
    if _KEY_SHAPE.search(text):
        raise ConfigError(
            file,
            "(file)",
            "seems to hold an API key",
            "Put it in the environment and name the variable in api_key_env",
        )
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _readable(file, model, error) from None


def _readable(file: Path, model: type[Settings], error: ValidationError) -> ConfigError:
    first, more = error.errors()[0], error.error_count() - 1
    field = ".".join(str(part) for part in first["loc"]) or "(file)"
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        problem, remedy = (
            "is not a known key",
            f"Remove it or mend its spelling (see {model.__name__} in ops/config.py)",
        )
    elif first["type"] == "missing":
        problem, remedy = "is missing", "Add it"
    else:
        remedy = f"Found {first['input']!r:.120}"
    return ConfigError(file, field, problem, remedy + (f" (and {more} more)" if more else ""))


def load_pool(config: Path, name: str) -> Pool:
    """`config/pools/NAME.yaml`. Raises `ConfigError`."""
    return load(Pool, config / "pools" / f"{name}.yaml")


def load_recipe(config: Path, name: str) -> Recipe:
    """`config/recipes/NAME.yaml`. Raises `ConfigError`."""
    return load(Recipe, config / "recipes" / f"{name}.yaml")


def load_gate(config: Path) -> PromotionGate:
    """`config/promotion.yaml`. Raises `ConfigError`."""
    return load(PromotionGate, config / "promotion.yaml")


def resolved(settings: Settings) -> str:
    """The resolved settings as YAML, defaults written out: what lies beside a run."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def digest(value: object) -> str:
    """Twelve hex digits of the SHA-256 of `value`'s canonical JSON: content keys and fingerprints."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
