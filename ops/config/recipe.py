"""A recipe: its sections on data, money, workflows and evaluation, the whole, and impossible combinations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationError, field_validator, model_validator

from ops.config.base import Name, PoolName, Seed, Settings, http_url
from ops.config.graders import BenchmarkGrader, JudgeGrader
from ops.config.training import (
    Adaptive,
    ColdStart,
    Grpo,
    GrpoStage,
    Guards,
    Policy,
    Recursive,
    StaticPolicy,
    UntrainedPolicy,
)
from ops.core.registry import check_names


class BenchmarkSource(Settings):
    """The source of one benchmark's problems."""

    source: Literal["embedded", "file", "hub"] = "embedded"
    train_file: str | tuple[str, ...] | None = None
    """For `source: file`: a path from the project's root, or several (jsonl, csv, each also .gz; parquet)."""
    test_file: str | tuple[str, ...] | None = None
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """For `source: hub`: the dataset's commit, since a branch or tag can move. Required when the data is loaded."""
    train_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    """For benchmarks with releases (LiveCodeBench): the release to train on. None: the paper's."""
    test_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    train: int | None = Field(default=None, ge=1)
    """Maximum number of training candidates; None: all. Embedded families generate exactly this many."""
    test: int | None = Field(default=None, ge=1)
    optional: bool = False
    """For a gated dataset: without a token of the hub (HF_TOKEN) of an account that has accepted its terms, the recipe
    is one without this benchmark."""
    grader: BenchmarkGrader | None = None
    """How answers are graded here. None: as the benchmark says."""
    max_malformed_share: float = Field(default=0.01, ge=0, le=1)
    """Malformed rows are quarantined; a larger share of a split fails the load."""
    max_failing_gold_share: float = Field(default=0.01, ge=0, le=1)
    """Rows from a file or the hub whose gold answer fails its own grader are quarantined, up to this share of a split.
    A larger share stays in, and the check of gold answers blocks."""

    @model_validator(mode="after")
    def _file_needs_a_path(self) -> Self:
        if self.source == "file" and not (self.train_file or self.test_file):
            raise ValueError("source is 'file' but neither train_file nor test_file is given")
        return self

    def files(self, split: Literal["train", "test"]) -> tuple[str, ...]:
        """Return the paths for `split`; none if the recipe has none."""
        named = self.train_file if split == "train" else self.test_file
        return (named,) if isinstance(named, str) else named or ()


class Curation(Settings):
    """How the training mix is selected."""

    per_domain: int = Field(default=240, ge=1)
    """Places in the mix for each domain of the recipe's training benchmarks."""
    shortlist_factor: float = Field(default=1.0, ge=1)
    """Candidates shortlisted (and precached) per place; more than 1 leaves the selector a choice."""
    selector: str = "signal"
    """Selection rule: the name of a file in `ops/curation/selectors`."""
    rescued: float = Field(default=0.05, ge=0, lt=1)
    """For the forecast: share of failing rollouts that a chain of workers rescues (an assumption; 0: none)."""
    near_duplicate_jaccard: float = Field(default=0.8, gt=0, le=1)
    """Training candidates with at least this similarity (word 5-grams) to an evaluation question are removed, and light
    rewordings too. 1: equal texts only, for templates filled with numbers."""
    unseen_subjects: int = Field(default=0, ge=0)
    """Subjects of each training benchmark, drawn by the seed, of which no problem is trained on: validation on other
    kinds of problems without the OOD benchmarks. 0: none."""

    @field_validator("selector")
    @classmethod
    def _known(cls, selector: str) -> str:
        check_names("selector", "ops.curation.selectors", [selector])
        return selector


class Grading(Settings):
    """How programs of unknown origin are executed."""

    isolation: Literal["bubblewrap", "resource_limits"] = "bubblewrap"
    """The weakest permitted isolation. "bubblewrap": without it, no program is executed. "resource_limits": without
    bubblewrap, limits, an audit hook and the kernel's Landlock, if any, which stop accidents but not an attacker;
    for programs of known origin."""
    environments: Mapping[str, str] = Field(default={})
    """Benchmark → the virtual environment with the libraries of its programs, if it exists; a path from the project's
    folder. Default: `.venv-BENCHMARK`."""


class Versions(Settings):
    """Treatment of data after a stage has been materialized and recorded in dvc.lock."""

    push: bool = False
    """Copy each stage's new files to a DVC remote. Off: run `dvc push` by hand for all stages."""
    remote: str | None = None
    """A remote of .dvc/config or .dvc/config.local (`dvc remote add NAME URL`); None: DVC's default one."""


class Precaching(Settings):
    samples: int = Field(default=1, ge=1)
    """Responses per worker and problem (sample indices 0 … samples-1)."""


class Replay(Settings):
    """A rehearsal: workers answer from recorded responses, and nothing is paid for."""

    match: Literal["prompt", "problem"] = "prompt"
    """"prompt": only a response to exactly the same messages, settings and sample. "problem": otherwise the worker's
    answer to that problem alone, for any subtask."""
    on_miss: Literal["unscorable", "live"] = "unscorable"
    """For a call that was never recorded: leave the rollout out ("unscorable"), or make the call ("live"), which
    costs."""


class Budget(Settings):
    run_usd: float = Field(default=10.0, gt=0)
    """Maximum that one run may spend on workers; each call reserves its worst case first."""
    month_usd: float | None = Field(default=None, gt=0)
    """Maximum that all runs of a calendar month (UTC) may spend. None: no limit."""


class Prompting(Settings):
    """What the Conductor's prompt shows."""

    style: Literal["full", "compact"] = "full"
    """"full" explains the task and the grammar; "compact" shows only the problem and the workers'
    ordinals, for a policy that learned the grammar in its cold start."""
    few_shots: Literal["none", "out_of_distribution", "in_distribution", "mixed"] = "out_of_distribution"
    max_steps: int = Field(default=5, ge=1)
    access: Literal["binary", "fine_grained"] = "binary"
    subtasks: bool = True
    """Whether workers receive the Conductor's subtasks; false: every subtask is "Solve the problem." (an ablation of
    arXiv:2512.04388)."""
    shuffle_ordinals: bool = True
    """Whether the seed decides which worker is "Model 0", so that a worker's position carries no prior."""
    cards: bool = False
    """Whether each worker's measured accuracy by domain and its price are shown beside its ordinal."""
    unknown_words: float = Field(default=0.0, ge=0, lt=1)
    """Share of a question's words in whose place training shows the Conductor random letters, so that it learns what to
    write for words that it does not know. Workers, evaluation and serving see the question."""


class Generation(Settings):
    """How the Conductor's tokens are sampled, besides the temperature: in training, evaluation and serving alike.

    A model's own `generation_config.json` is ignored (Qwen2.5-7B-Instruct's: top-p 0.8, top-k 20, repetition penalty
    1.05), except for the tokens that end a text.
    """

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability to sample from, likeliest tokens first; 1: all of it."""
    top_k: int = Field(default=0, ge=0)
    """Number of tokens to sample from, likeliest first; 0: all of them."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Tokens below this share of the likeliest token's probability are not sampled; None: no limit."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Above 1, tokens of the prompt or the text become less likely, also in greedy texts; 1: no effect."""


class Execution(Settings):
    """How a workflow is executed."""

    deadline_s: float | None = Field(default=None, gt=0)
    """Maximum seconds of a workflow's own work along its longest chain, without waits for limits. Longer: timed out,
    which is unscorable."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of a response that later steps see; longer ones lose their middle. None: whole."""
    traces: int = Field(default=2, ge=0)
    """Executions per benchmark whose traces an evaluation exports to MLflow."""

    @property
    def what_answers_depend_on(self) -> dict[str, object]:
        """Return the settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}


TRANSFORMERS, VLLM = "transformers", "vllm"
"""Writers other than a server's URL: transformers in this process, a vLLM server that Podium starts."""
WORST_VARIANCE = 0.25
"""The largest variance of a correct-or-wrong outcome: p (1 - p) at p = ½."""


class Vote(Settings):
    """How many workflows answer a question. The first is written as without a vote, the others are drawn."""

    workflows: Annotated[int, Strict()] = Field(default=1, ge=1, le=64)
    """The most workflows that answer a question; the most frequent answer counts, of equals the one given first."""
    agree: Annotated[int, Strict()] | None = Field(default=None, ge=1)
    """Workflows with the same answer after which no other is written. None: more than half of `workflows`."""
    temperature: Annotated[float, Strict()] = Field(default=0.7, ge=0.01, le=10, allow_inf_nan=False)
    """Temperature of the workflows after the first."""

    @model_validator(mode="after")
    def _can_agree(self) -> Self:
        if self.agree is not None and self.agree > self.workflows:
            raise ValueError(f"agree: {self.agree} of {self.workflows} workflows can never agree")
        return self

    @property
    def enough(self) -> int:
        """Return the number of equal answers that ends the vote."""
        return self.agree or self.workflows // 2 + 1


class Asked(Settings):
    """How one benchmark is evaluated if it differs from the others; None: as the others."""

    repeats: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    pool: PoolName | None = None


class OpponentsAsked(Settings):
    """How the Conductor's opponents are evaluated if it differs from the Conductor; None: as the Conductor."""

    repeats: int | None = Field(default=None, ge=1)
    """Answers per question of each worker alone, and of each baseline, on every benchmark."""


class Evaluation(Settings):
    pool: PoolName | None = None
    """Another pool or variant with the same workers' names for the answers (for example, trained with short answers,
    evaluated with long ones). None: the recipe's pool. Not part of a policy's key."""
    repeats: int = Field(default=1, ge=1)
    """Workflows written and executed per question (sample indices 0 … repeats-1)."""
    questions: int | None = Field(default=None, ge=1)
    """Maximum number of questions per benchmark, the same for every system and seed; a larger number contains a smaller
    one's questions. None: all."""
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    """Standard error to reach per benchmark: 0.25 ÷ target_error² questions, within `questions` and what exists. None:
    no target."""
    benchmarks: dict[str, Asked] = Field(default_factory=dict)
    """Benchmark → settings that differ there (`aime25: {repeats: 16}`)."""
    workers: OpponentsAsked = OpponentsAsked()
    """Settings that differ for the workers alone and the baselines (`{repeats: 1}`)."""
    temperature: float = Field(default=0.0, ge=0)
    """0: greedy."""
    vote: Vote = Vote()
    """How many workflows of the Conductor answer a question; opponents are asked as their methods say."""
    batch: int = Field(default=128, ge=1)
    """Workflows generated at once; workers answer one batch while the next is generated."""
    writer: str = TRANSFORMERS
    """Where workflows are generated: `transformers`; `vllm`, a server that Podium starts with one replica on each GPU
    (the `gpu` extra); or the URL `http://HOST:PORT` of a vLLM server that serves the policy under its key. Not part of
    a content key, because the scores are the policy's in each case."""
    baselines: tuple[str, ...] | None = None
    """Files in `ops/evaluation/baselines` to compare with, in the table's order (docs/reference/baselines.md). None:
    best worker, random worker and oracle, which cost nothing more."""

    @field_validator("writer")
    @classmethod
    def _can_write(cls, writer: str) -> str:
        if writer in (TRANSFORMERS, VLLM):
            return writer
        try:
            return http_url(writer)
        except ValueError as error:
            raise ValueError(f"{writer!r} is neither {TRANSFORMERS} nor {VLLM}, and {error}") from None

    @property
    def votes(self) -> bool:
        """Return whether several workflows may answer a question."""
        return self.vote.workflows > 1

    @property
    def server(self) -> str | None:
        """Return the server's URL if the writer is a server."""
        return None if self.writer in (TRANSFORMERS, VLLM) else self.writer

    @field_validator("baselines")
    @classmethod
    def _known(cls, baselines: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_names("baseline", "ops.evaluation.baselines", baselines or ())
        return baselines

    @field_validator("benchmarks")
    @classmethod
    def _known_benchmarks(cls, benchmarks: dict[str, Asked]) -> dict[str, Asked]:
        check_names("benchmark", "ops.benchmarks.catalogue", benchmarks)
        return benchmarks

    def of(self, benchmark: str) -> Self:
        """Return the settings for one benchmark, whose own settings override the general ones."""
        own = self.benchmarks.get(benchmark, Asked()).model_dump(exclude_none=True)
        return self.model_copy(update={**own, "benchmarks": {}})

    @property
    def of_opponents(self) -> Self:
        """Return the settings for the workers alone and the baselines."""
        if self.workers.repeats is None:
            return self
        benchmarks = {name: own.model_copy(update={"repeats": None}) for name, own in self.benchmarks.items()}
        return self.model_copy(update={"repeats": self.workers.repeats, "benchmarks": benchmarks})

    @property
    def most_questions(self) -> int | None:
        """Return the maximum number of questions of one benchmark (see `of`); None: all."""
        wanted = None if self.target_error is None else math.ceil(WORST_VARIANCE / self.target_error**2)
        limits = [limit for limit in (self.questions, wanted) if limit is not None]
        return min(limits, default=None)

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the named pools, each once."""
        named = (self.pool, *(each.pool for each in self.benchmarks.values()))
        return tuple(dict.fromkeys(name for name in named if name is not None))


class Recipe(Settings):
    """A named training or evaluation configuration."""

    name: Name
    description: str = ""
    trained_as: Name | None = None
    """For a recipe that evaluates differently or trains further: the recipe whose policies it uses. None: its own."""
    seed: Seed = 0
    pool: PoolName
    """A file in config/pools, without `.yaml`; `NAME:VARIANT` for one of its variants. `--pool` replaces it."""
    max_output_price: float | None = Field(default=None, gt=0)
    """Workers whose stated price of output (USD per million tokens) is higher are left out, if `without` names them;
    otherwise the run is refused. None: no limit."""
    without: tuple[str, ...] = ()
    """Workers that the recipe may go without where they cost more than `max_output_price`."""
    benchmarks: dict[str, BenchmarkSource]
    curation: Curation = Curation()
    precaching: Precaching = Precaching()
    replay: Replay | None = None
    """Answer every call from recorded responses, at no cost. None: call the workers."""
    prompting: Prompting = Prompting()
    execution: Execution = Execution()
    policy: Policy = Field(discriminator="kind")
    cold_start: ColdStart | None = None
    """None: the base model already writes the grammar (a pretrained one with few-shot examples)."""
    generation: Generation = Generation()
    grpo: Grpo = Grpo()
    adaptive: Adaptive | None = None
    """A stage of GRPO on random subsets of the pool. None: no such stage."""
    recursive: Recursive | None = None
    """A stage of GRPO with second rounds. None: no such stage."""
    fine_tune: GrpoStage = GrpoStage()
    """Repeat the last training stage from the champion after the pool has changed."""
    guards: Guards = Guards()
    evaluation: Evaluation = Evaluation()
    grading: Grading = Grading()
    budget: Budget = Budget()
    versions: Versions = Versions()

    @property
    def policy_name(self) -> str:
        """Return the prefix of the names of its policies and runs."""
        return self.trained_as or self.name

    @property
    def trains(self) -> bool:
        """Whether its policy is trained: not a prompted or a static one."""
        return not isinstance(self.policy, UntrainedPolicy)

    @property
    def own_graders(self) -> tuple[BenchmarkGrader, ...]:
        """Return the graders that it states for its benchmarks."""
        return tuple(source.grader for source in self.benchmarks.values() if source.grader is not None)

    @property
    def judges(self) -> dict[str, JudgeGrader]:
        """Return benchmark → its judge, for those that have one."""
        return {
            name: source.grader for name, source in self.benchmarks.items() if isinstance(source.grader, JudgeGrader)
        }

    @property
    def asks_workers(self) -> bool:
        """Return whether any worker may be called: not in a rehearsal that skips unrecorded responses."""
        return self.replay is None or self.replay.on_miss == "live"

    @field_validator("benchmarks")
    @classmethod
    def _known(cls, sources: dict[str, BenchmarkSource]) -> dict[str, BenchmarkSource]:
        check_names("benchmark", "ops.benchmarks.catalogue", sources)
        return sources

    @model_validator(mode="after")
    def _scratch_needs_a_cold_start(self) -> Self:
        if self.policy.kind == "scratch" and self.cold_start is None:
            raise ValueError("a policy made from scratch needs a cold_start section")
        return self

    @model_validator(mode="after")
    def _untrained_has_no_training(self) -> Self:
        if self.trains:
            return self
        kind = self.policy.kind
        if named := [name for name in ("cold_start", "adaptive", "recursive") if getattr(self, name) is not None]:
            raise ValueError(
                f"policy.kind {kind} is not trained, and {named[0]} is a stage of training: leave it out (`{named[0]}: "
                "null` over a base that has it)"
            )
        if self.evaluation.writer != TRANSFORMERS:
            raise ValueError(
                f"evaluation.writer {self.evaluation.writer} loads weights, and policy.kind {kind} has none: leave it "
                f"out (`writer: {TRANSFORMERS}` over a base that has it)"
            )
        if kind == "prompted" and self.prompting.style == "compact":
            raise ValueError(
                "prompting.style compact does not explain the grammar, and policy.kind prompted never learned it: "
                "set prompting.style: full"
            )
        return self

    @model_validator(mode="after")
    def _static_workflow_can_run(self) -> Self:
        if not isinstance(self.policy, StaticPolicy):
            return self
        steps, most = self.policy.workflow, self.prompting.max_steps
        if len(steps) > most:
            raise ValueError(f"policy.workflow has {len(steps)} steps, and prompting.max_steps allows {most}")
        for place, access in enumerate(step.access for step in steps):
            if isinstance(access, str) or not access:
                continue
            where = f"policy.workflow.{place}.access"
            if self.prompting.access != "fine_grained":
                raise ValueError(f"{where} lists steps: write [], all, or set prompting.access: fine_grained")
            if len(set(access)) < len(access) or not all(0 <= earlier < place for earlier in access):
                raise ValueError(f"{where}: {list(access)} are not earlier steps, each once")
        return self

    @model_validator(mode="after")
    def _completions_fit(self) -> Self:
        if self.policy.kind == "scratch" and self.grpo.max_completion_tokens >= self.policy.max_tokens:
            raise ValueError(
                f"policy.max_tokens = {self.policy.max_tokens} leaves no room for a prompt beside "
                f"grpo.max_completion_tokens = {self.grpo.max_completion_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _lora_needs_weights(self) -> Self:
        if self.policy.kind == "scratch" and self.cold_start is not None and self.cold_start.lora is not None:
            raise ValueError("cold_start.lora needs pretrained weights: a policy made from scratch has none")
        return self

    @model_validator(mode="after")
    def _subsets_can_be_told_apart(self) -> Self:
        if self.adaptive is None:
            if self.cold_start is not None and self.cold_start.parts_share:
                raise ValueError("cold_start.parts_share needs an adaptive section, which says how a part is drawn")
            return self
        if self.adaptive.reshuffle and not self.prompting.cards:
            raise ValueError(
                "adaptive.reshuffle needs prompting.cards: otherwise the prompt does not say which worker Model 0 "
                "is. Or leave it false,  "
                "and workers keep their ordinals"
            )
        try:
            self.adaptive.grpo(self.grpo)
        except ValidationError as error:
            raise ValueError(f"adaptive over grpo: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        return self

    @model_validator(mode="after")
    def _rounds_can_be_trained(self) -> Self:
        if self.recursive is None:
            return self
        if absent := sorted(set(self.recursive.benchmarks or ()) - set(self.benchmarks)):
            raise ValueError(f"recursive.benchmarks names {', '.join(absent)}, not among the recipe's benchmarks")
        try:
            self.recursive.grpo(self.grpo)
        except ValidationError as error:
            raise ValueError(f"recursive over grpo: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        except ValueError as error:
            raise ValueError(f"recursive over grpo: {error}") from None
        return self


_SECTIONS = ("curation", "prompting", "policy", "cold_start", "generation", "grpo", "adaptive", "recursive")
"""The sections that training depends on; evaluation, guards and budgets change no policy."""


def hyperparameters(recipe: Recipe) -> dict[str, str]:
    """Return name, seed, pool and each training setting that is set (`grpo.learning_rate` → `0.0003`)."""
    settings = recipe.model_dump(mode="json", include={"seed", "pool", *_SECTIONS})
    return {"recipe": recipe.name, **dict(_flat(settings, ""))}


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)
