"""A recipe: its sections on data, money, workflows and evaluation, the whole, and impossible combinations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationError, field_validator, model_validator

from ops.config.base import Name, PoolName, Seed, Settings, check_http_url
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
    """Where the questions of one benchmark come from."""

    source: Literal["embedded", "file", "hub"] = "embedded"
    """The kind of source. `embedded` generates questions of the synthetic environment, `file` reads your own files, and
    `hub` downloads the dataset from the Hugging Face hub."""
    train_file: str | tuple[str, ...] | None = None
    """With `source: file`, the file with the training questions, or a list of files. A path starts from the project's
    folder. The formats are jsonl and csv (both may be compressed with gzip) and parquet."""
    test_file: str | tuple[str, ...] | None = None
    """With `source: file`, the file with the test questions, or a list of files."""
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """With `source: hub`, the commit of the dataset (40 hex digits). It is required when the data is loaded, because a
    branch or a tag can move."""
    train_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    """The release of the dataset to train on, for a benchmark that has releases (LiveCodeBench). If it is not set, the
    paper's release is used."""
    test_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    """The release of the dataset to evaluate on, for a benchmark that has releases."""
    train: int | None = Field(default=None, ge=1)
    """The maximum number of training candidates. If it is not set, all questions are candidates. An embedded benchmark
    generates exactly this many."""
    test: int | None = Field(default=None, ge=1)
    """The maximum number of test questions. If it is not set, all are used. An embedded benchmark generates exactly
    this many."""
    optional: bool = False
    """Whether the recipe may run without this benchmark. Set it for a gated dataset: the benchmark is left out if
    HF_TOKEN holds no token of an account that has accepted the dataset's terms."""
    grader: BenchmarkGrader | None = None
    """Your own way to grade the answers to this benchmark. If it is not set, the benchmark's own grader is used."""
    max_malformed_share: float = Field(default=0.01, ge=0, le=1)
    """The largest share of malformed rows in a split. Malformed rows are left out and listed in a file. If their share
    is larger, the benchmark is not loaded and the run ends with an error."""
    max_failing_gold_share: float = Field(default=0.01, ge=0, le=1)
    """The largest share of rows whose gold answer is wrong according to the grader. Up to this share, such rows of a
    file or of the hub are left out. If the share is larger, they stay in the data, and the check of the gold answers
    stops the run."""

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
    """How the questions for the training are selected."""

    per_domain: int = Field(default=240, ge=1)
    """The number of training questions for each domain, such as mathematics, of the recipe's training benchmarks."""
    shortlist_factor: float = Field(default=1.0, ge=1)
    """The number of candidate questions for each training question. All workers answer all candidates (precaching). A
    factor above 1 gives the selector a choice."""
    selector: str = "signal"
    """The rule that chooses the training questions from the candidates. It is the name of a file in
    `ops/curation/selectors`."""
    rescued: float = Field(default=0.05, ge=0, lt=1)
    """An assumption of the forecast: the share of failing rollouts that would succeed if a workflow of several workers
    answered instead of one. 0 means none."""
    near_duplicate_jaccard: float = Field(default=0.8, gt=0, le=1)
    """The similarity to a test question from which a training candidate is removed. It is measured as the Jaccard index
    of sequences of five words. Light rewordings are removed too. With 1, only equal texts are removed, which suits
    questions that are generated from templates."""
    unseen_subjects: int = Field(default=0, ge=0)
    """The number of subjects of each training benchmark that are excluded from training. The seed draws them. They
    allow a validation on other kinds of questions without using the out-of-distribution benchmarks."""

    @field_validator("selector")
    @classmethod
    def _known(cls, selector: str) -> str:
        check_names("selector", "ops.curation.selectors", [selector])
        return selector


class Grading(Settings):
    """How programs that a model has written are executed."""

    isolation: Literal["bubblewrap", "resource_limits"] = "bubblewrap"
    """The weakest isolation that you permit. With `bubblewrap`, no program is executed if bubblewrap does not work on
    the machine. With `resource_limits`, programs are then executed with limits, an audit hook and the kernel's Landlock
    if it exists. These stop accidents but no attacker, so use this value only for programs of known origin."""
    environments: Mapping[str, str] = Field(default={})
    """For each benchmark, the virtual environment with the libraries that its programs import, as a path from the
    project's folder. The default is `.venv-BENCHMARK`, if it exists."""


class Versions(Settings):
    """What happens to data after a stage has finished and DVC has recorded it in dvc.lock."""

    push: bool = False
    """Whether the new files of each stage are copied to a DVC remote. If it is false, you can copy the files of all
    stages with `dvc push`."""
    remote: str | None = None
    """The DVC remote to copy to, as you named it with `dvc remote add NAME URL`. If it is not set, DVC's default remote
    is used."""


class Precaching(Settings):
    """How the workers answer the candidate questions before the training."""

    samples: int = Field(default=1, ge=1)
    """The number of responses of each worker to each question."""


class Replay(Settings):
    """A rehearsal in which workers answer from recorded responses, so that nothing is paid for."""

    match: Literal["prompt", "problem"] = "prompt"
    """Which recorded response answers a call. `prompt` takes only a response to exactly the same messages, with the
    same settings and sample number. `problem` otherwise takes the worker's answer to the question alone, whatever the
    subtask says."""
    on_miss: Literal["unscorable", "live"] = "unscorable"
    """What happens if no response was recorded for a call. `unscorable` leaves the rollout out of the training and of
    all averages. `live` makes the call, which costs money."""


class Budget(Settings):
    """How much the calls of workers may cost."""

    run_usd: float = Field(default=10.0, gt=0)
    """The maximum that one run may spend on workers, in US dollars. Each call reserves the highest price that it can
    have before it is made."""
    month_usd: float | None = Field(default=None, gt=0)
    """The maximum that all runs of a calendar month (UTC) may spend together, in US dollars. If it is not set, there is
    no such limit."""


class Prompting(Settings):
    """What the Conductor's prompt contains."""

    style: Literal["full", "compact"] = "full"
    """The length of the prompt. `full` explains the task and the format of a workflow. `compact` contains only the
    question and the numbers of the workers. It suits a policy that has learned the format in its cold start."""
    few_shots: Literal["none", "out_of_distribution", "in_distribution", "mixed"] = "out_of_distribution"
    """The file in `data/few_shots` whose example workflows the prompt shows. With `none` it shows no examples."""
    max_steps: int = Field(default=5, ge=1)
    """The maximum number of steps of a workflow."""
    access: Literal["binary", "fine_grained"] = "binary"
    """Which earlier steps a step may see. With `binary`, it sees all of them or none. With `fine_grained`, the
    Conductor lists those that it sees."""
    subtasks: bool = True
    """Whether workers receive the subtasks that the Conductor writes. If it is false, every subtask is "Solve the
    problem.", which is an ablation of arXiv:2512.04388."""
    shuffle_ordinals: bool = True
    """Whether the seed decides which worker has which number in the prompt, so that a number tells the policy nothing
    about the worker."""
    cards: bool = False
    """Whether the prompt describes each worker by its price and its measured accuracy in each domain."""
    unknown_words: float = Field(default=0.0, ge=0, lt=1)
    """The share of a question's words that training replaces by random letters in the Conductor's prompt. The Conductor
    then learns what to write for words that it does not know. Workers, evaluation and serving see the unchanged
    question."""


class Generation(Settings):
    """How the Conductor's tokens are sampled in training, evaluation and serving, in addition to the temperature.

    A model's own `generation_config.json` is ignored (Qwen2.5-7B-Instruct's: top-p 0.8, top-k 20, repetition penalty
    1.05), except for the tokens that end a text.
    """

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling: a token is drawn from the most likely tokens that together have this probability. 1 turns it
    off."""
    top_k: int = Field(default=0, ge=0)
    """A token is drawn from this many most likely tokens. 0 turns it off."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Tokens are not drawn if their probability is below this share of the most likely token's. If it is not set, there
    is no such bound."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """A value above 1 makes tokens less likely that the prompt or the text already contains, in greedy decoding too. 1
    turns it off."""


class Execution(Settings):
    """How a workflow is executed."""

    deadline_s: float | None = Field(default=None, gt=0)
    """The maximum time of a workflow in seconds, added up along its longest chain of steps and without the time that
    steps wait because of rate limits. A workflow that takes longer is unscorable: it gets no reward and is left out of
    averages."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """The maximum number of tokens of a response that later steps see. The middle of a longer response is cut out. If
    it is not set, later steps see the whole response."""
    traces: int = Field(default=2, ge=0)
    """The number of executed workflows of each benchmark that an evaluation exports to MLflow as traces."""

    @property
    def answer_settings(self) -> dict[str, object]:
        """Return the settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}


TRANSFORMERS, VLLM = "transformers", "vllm"
"""Writers other than a server's URL: transformers in this process, a vLLM server that Podium starts."""
MAX_VARIANCE = 0.25
"""The largest variance of a correct-or-wrong outcome: p (1 - p) at p = ½."""


class Vote(Settings):
    """How many workflows answer one question. The first is written as without a vote, and the others are drawn at
    random."""

    workflows: Annotated[int, Strict()] = Field(default=1, ge=1, le=64)
    """The maximum number of workflows for one question. The most frequent answer counts. If several answers are equally
    frequent, the one that was given first counts."""
    agree: Annotated[int, Strict()] | None = Field(default=None, ge=1)
    """The number of workflows with the same answer after which no further one is written. If it is not set, this is
    more than half of `workflows`."""
    temperature: Annotated[float, Strict()] = Field(default=0.7, ge=0.01, le=10, allow_inf_nan=False)
    """The temperature at which the workflows after the first are drawn."""

    @model_validator(mode="after")
    def _can_agree(self) -> Self:
        if self.agree is not None and self.agree > self.workflows:
            raise ValueError(f"agree: {self.agree} of {self.workflows} workflows can never agree")
        return self

    @property
    def needed_votes(self) -> int:
        """Return the number of equal answers that ends the vote."""
        return self.agree or self.workflows // 2 + 1


class Asked(Settings):
    """How one benchmark is evaluated, as far as it differs from the others."""

    repeats: int | None = Field(default=None, ge=1)
    """The number of workflows for each question of this benchmark. If it is not set, the general number is used."""
    questions: int | None = Field(default=None, ge=1)
    """The maximum number of questions of this benchmark. If it is not set, the general number is used."""
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    """The standard error to reach on this benchmark. If it is not set, the general one is used."""
    pool: PoolName | None = None
    """The pool that answers this benchmark. If it is not set, the general one is used."""


class OpponentsAsked(Settings):
    """How the other systems are evaluated, as far as it differs from the Conductor."""

    repeats: int | None = Field(default=None, ge=1)
    """The number of answers of each single worker and of each baseline to each question. If it is not set, it is that
    of the Conductor."""


class Evaluation(Settings):
    """How the Conductor is evaluated and compared with other systems."""

    pool: PoolName | None = None
    """Another pool, or another variant of the pool, whose workers answer in the evaluation. Its workers must have the
    same names. With it you can, for example, train with short answers and evaluate with long ones. If it is not set,
    the recipe's pool is used."""
    repeats: int = Field(default=1, ge=1)
    """The number of workflows that are written and executed for each question."""
    questions: int | None = Field(default=None, ge=1)
    """The maximum number of questions of each benchmark. The questions are the same for every system and seed, and a
    larger number includes the questions of a smaller one. If it is not set, all questions are used."""
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    """The standard error of an accuracy to reach on each benchmark. It limits the evaluation to 0.25 ÷ target_error²
    questions. If it is not set, it limits nothing."""
    benchmarks: dict[str, Asked] = Field(default_factory=dict)
    """Settings for single benchmarks that differ from those above, for example `aime25: {repeats: 16}`."""
    workers: OpponentsAsked = OpponentsAsked()
    """Settings for the single workers and the baselines that differ from those above, for example `{repeats: 1}`."""
    temperature: float = Field(default=0.0, ge=0)
    """The temperature at which the Conductor writes workflows. 0 means greedy decoding."""
    vote: Vote = Vote()
    """How many workflows of the Conductor answer a question. It does not concern the other systems."""
    batch: int = Field(default=128, ge=1)
    """The number of workflows that are generated at once. Workers answer one batch while the next is generated."""
    writer: str = TRANSFORMERS
    """The program that generates workflows. `transformers` runs in the same process. `vllm` is a server that Podium
    starts with one replica on each GPU, and that needs the extra `gpu`. A URL `http://HOST:PORT` names a vLLM server
    that already serves the policy under its key."""
    baselines: tuple[str, ...] | None = None
    """The systems to compare the Conductor with, in the order of the table. [Baselines](baselines.md) lists them. If it
    is not set, these are the best worker, a random worker and the oracle, which cost nothing more."""

    @field_validator("writer")
    @classmethod
    def _can_write(cls, writer: str) -> str:
        if writer in (TRANSFORMERS, VLLM):
            return writer
        try:
            return check_http_url(writer)
        except ValueError as error:
            raise ValueError(f"{writer!r} is neither {TRANSFORMERS} nor {VLLM}, and {error}") from None

    @property
    def has_vote(self) -> bool:
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

    def for_benchmark(self, benchmark: str) -> Self:
        """Return the settings for one benchmark, whose own settings override the general ones."""
        own = self.benchmarks.get(benchmark, Asked()).model_dump(exclude_none=True)
        return self.model_copy(update={**own, "benchmarks": {}})

    @property
    def for_opponents(self) -> Self:
        """Return the settings for the workers alone and the baselines."""
        if self.workers.repeats is None:
            return self
        benchmarks = {name: own.model_copy(update={"repeats": None}) for name, own in self.benchmarks.items()}
        return self.model_copy(update={"repeats": self.workers.repeats, "benchmarks": benchmarks})

    @property
    def max_questions(self) -> int | None:
        """Return the maximum number of questions of one benchmark (see `for_benchmark`); None: all."""
        wanted = None if self.target_error is None else math.ceil(MAX_VARIANCE / self.target_error**2)
        limits = [limit for limit in (self.questions, wanted) if limit is not None]
        return min(limits, default=None)

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the named pools, each once."""
        named = (self.pool, *(each.pool for each in self.benchmarks.values()))
        return tuple(dict.fromkeys(name for name in named if name is not None))


class Recipe(Settings):
    """All settings of one training and its evaluation."""

    name: Name
    """The name of the recipe, which is that of its file."""
    description: str = ""
    """A sentence that says what the recipe is for."""
    trained_as: Name | None = None
    """The recipe whose trained policies this one uses. Set it for a recipe that only evaluates differently or trains
    further. If it is not set, the recipe trains its own policies."""
    seed: Seed = 0
    """The seed of all random choices."""
    pool: PoolName
    """The pool of models that the Conductor asks: the name of a file in config/pools without `.yaml`, or `NAME:VARIANT`
    for one of its variants. The option `--pool` replaces it."""
    max_output_price: float | None = Field(default=None, gt=0)
    """The highest price of output that a worker may have, in US dollars per million tokens. More expensive workers are
    left out if `without` names them. Otherwise the run is refused. If it is not set, there is no limit."""
    without: tuple[str, ...] = ()
    """The workers that may be left out because their price is above `max_output_price`."""
    benchmarks: dict[str, BenchmarkSource]
    """The benchmarks to train and to evaluate on, each with the source of its questions."""
    curation: Curation = Curation()
    """How the questions for the training are selected."""
    precaching: Precaching = Precaching()
    """How the workers answer the candidate questions before the training."""
    replay: Replay | None = None
    """If it is set, all calls are answered from recorded responses, at no cost. Otherwise the workers are called."""
    prompting: Prompting = Prompting()
    """What the Conductor's prompt contains."""
    execution: Execution = Execution()
    """How a workflow is executed."""
    policy: Policy = Field(discriminator="kind")
    """The model that writes the workflows."""
    cold_start: ColdStart | None = None
    """The supervised training that teaches the policy the format of workflows. If it is not set, the base model must
    already write it, for example a pretrained model whose prompt shows examples."""
    generation: Generation = Generation()
    """How the policy's tokens are sampled."""
    grpo: Grpo = Grpo()
    """The training with rewards."""
    adaptive: Adaptive | None = None
    """A further stage of GRPO in which each question offers a random subset of the pool. If it is not set, there is no
    such stage."""
    recursive: Recursive | None = None
    """A further stage of GRPO in which the Conductor writes a second workflow after it has seen the answer of the
    first. If it is not set, there is no such stage."""
    fine_tune: GrpoStage = GrpoStage()
    """The training that adapts the champion after the pool has changed. It repeats the last stage from the champion's
    weights."""
    guards: Guards = Guards()
    """Bounds for warnings about a finished training."""
    evaluation: Evaluation = Evaluation()
    """How the Conductor is evaluated and compared with other systems."""
    grading: Grading = Grading()
    """How programs that a model has written are executed."""
    budget: Budget = Budget()
    """How much the calls of workers may cost."""
    versions: Versions = Versions()
    """Whether the data is copied to a DVC remote."""

    @property
    def policy_name(self) -> str:
        """Return the prefix of the names of its policies and runs."""
        return self.trained_as or self.name

    @property
    def is_trained(self) -> bool:
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
    def can_call_workers(self) -> bool:
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
        if self.is_trained:
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
                "is. If it is false, the workers keep their numbers"
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
    return {"recipe": recipe.name, **dict(_flatten(settings, ""))}


def _flatten(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)
