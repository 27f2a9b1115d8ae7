"""A recipe's training: the policy, its cold start, GRPO, the further stages of GRPO, and the guards of a run."""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ops.config.base import DAY_S, HttpUrl, Name, Settings
from ops.core.registry import check_names

PACKAGE = "package:"


class ScratchPolicy(Settings):
    """A small Qwen2-architecture policy with random weights and its own tokenizer."""

    kind: Literal["scratch"] = "scratch"
    vocabulary: int = Field(default=1024, ge=300)
    hidden: int = Field(default=192, ge=16)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    max_tokens: int = Field(default=2048, ge=64)
    """Longest sequence, prompt and completion together (tokens)."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden = {self.hidden} is not a multiple of 2 × heads = {2 * self.heads}: rotary positions need "
                "heads of an even width"
            )
        return self


class PretrainedPolicy(Settings):
    """A language model from a hub, a folder or an installed Python package."""

    kind: Literal["pretrained"] = "pretrained"
    model: str
    """A name on the hub, a folder, or `package:NAME` (the folder of an installed Python package)."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    gguf_file: str | None = None
    """File name inside the folder, when the weights are in GGUF."""

    @property
    def package(self) -> str | None:
        """Return the package of its files; None if they come from elsewhere."""
        return self.model.removeprefix(PACKAGE) if self.model.startswith(PACKAGE) else None


class PromptedPolicy(Settings):
    """A worker of the pool that is prompted to write the workflows, with its own sampling. It is not trained."""

    kind: Literal["prompted"] = "prompted"
    worker: str = ""
    """A worker of the pool, which may also run steps. Empty: the first worker of the median
    output price, since a more expensive one can cost more than it gains."""


class PolicyStep(Settings):
    """One step of a static policy's workflow."""

    worker: str
    """A worker of the pool."""
    subtask: str = Field(default="Solve the problem.", pattern=r"\S")
    access: Literal["all"] | tuple[Annotated[int, Field(ge=0)], ...] = ()
    """The earlier steps that it sees: none, "all", or with `prompting.access: fine_grained` their places, the first is
    0."""


class StaticPolicy(Settings):
    """One fixed workflow for every question. It is not trained."""

    kind: Literal["static"] = "static"
    workflow: tuple[PolicyStep, ...] = Field(min_length=1)


UntrainedPolicy = PromptedPolicy | StaticPolicy
Policy = ScratchPolicy | PretrainedPolicy | UntrainedPolicy


class Lora(Settings):
    """Low-rank updates of every linear layer instead of new weights (arXiv:2106.09685), merged into the weights when
    the cold start ends, so that GRPO and servers load a plain model."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    """The updates are scaled by `alpha` ÷ `rank`."""


class Validation(Settings):
    """The result of the cold start that GRPO requires."""

    problems: int = Field(default=100, ge=1)
    """Number of problems of the mix to hold out; the policy writes one workflow for each, sampled as in GRPO."""
    least_valid: float = Field(default=0.95, ge=0, le=1)
    """Minimum share of valid workflows. Not part of a policy's key."""


class Teacher(Settings):
    """An untrained policy whose workflows for the training mix become SFT examples where they answer right."""

    policy: UntrainedPolicy = Field(discriminator="kind")
    samples: int = Field(default=1, ge=1)
    """Workflows that it writes for each problem."""


class ColdStart(Settings):
    """Supervised learning of the grammar on workflows sampled with the precached successes."""

    steps: int = Field(default=500, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    success_share: float = Field(default=0.7, ge=0, le=1)
    """Share of the examples that are workflows known to work, or whose last worker solved the problem alone."""
    attempts: int = Field(default=0, ge=0)
    """Random workflows tried on each problem that no worker solves alone; successful ones become examples."""
    teacher: Teacher | None = None
    """Writes further workflows for every problem; successful ones become examples."""
    recursive_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the examples that are recursive rounds: half keep a right answer, half replace a wrong one."""
    parts_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the other examples that offer a subset of the pool, drawn as in the adaptive stage."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Examples in one forward and backward pass, to save memory; divides `batch`. None: the whole batch."""
    lora: Lora | None = None
    """None: all weights are trained."""
    validation: Validation | None = None
    """Problems held out to check the grammar. None: `least_valid` is checked instead."""
    least_valid: float = Field(default=0.5, ge=0, le=1)
    """Without `validation`: minimum share of valid workflows on problems outside the mix that GRPO requires. 0: not
    checked. Not part of a policy's key."""

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise ValueError(f"batch = {self.batch} is not a multiple of micro_batch = {self.micro_batch}")
        return self


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
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    clip: float = Field(default=0.2, gt=0)
    clip_high: float | None = Field(default=None, gt=0)
    """Upper bound of the ratio if it differs from the lower one (DAPO, arXiv:2503.14476)."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL term; 0: no reference model is loaded."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of a bonus for the mean entropy per token (nats)."""
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = "grpo"
    max_grad_norm: float = Field(default=1.0, gt=0)
    micro_batch: int = Field(default=256, ge=1)
    """Rollouts per device in one forward and backward pass."""
    gradient_checkpointing: bool = False
    staleness: int = Field(default=0, ge=0, le=4)
    """Number of updates between the policy that wrote a rollout and the one trained on it. From 1 on, rollouts of the
    next steps are generated while workers answer this step's, and the ratio of the two policies corrects for it
    (docs/training.md)."""
    vllm: bool = False
    """Generate rollouts with vLLM (needs the `gpu` extra)."""
    vllm_memory: float = Field(default=0.3, gt=0, lt=1)
    """Share of each GPU's memory for a colocated vLLM's weights and cache."""
    vllm_max_model_length: int | None = Field(default=None, ge=16)
    """Longest sequence, prompt and completion together (tokens), that vLLM reserves memory for; a longer prompt is
    refused before training. None: the model's maximum."""
    vllm_sleep: bool = False
    """Free vLLM's memory while the policy is updated; the weights are sent to it again at every step."""
    vllm_mode: Literal["colocate", "server"] = "colocate"
    """"colocate": vLLM shares the GPUs of the training processes. "server": it has its own GPUs behind
    `vllm_server_url` and is started first (docs/training.md)."""
    vllm_server_url: HttpUrl | None = None
    """The server's URL, `http://HOST:PORT`."""
    vllm_tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one colocated vLLM is spread over; must divide `processes`."""
    vllm_correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        "sequence_mask"
    )
    """Correction for the difference between vLLM's probabilities and the policy's: the ratio, per token or sequence,
    weights the loss and beyond `vllm_correction_max` is cut (truncate) or leaves the token or sequence out (mask).
    "none": no correction."""
    vllm_correction_max: float = Field(default=3.0, gt=0)
    """Largest ratio of that correction."""
    deepspeed: Name | None = None
    """A file in config/deepspeed. None: no DeepSpeed, one process."""
    processes: int = Field(default=1, ge=1, le=4096)
    sampling: Literal["epochs", "signal"] = "epochs"
    """"epochs": every problem once per epoch, in random order. "signal": problems in proportion to the expected
    variance of their rewards."""
    stop_without_signal: int | None = Field(default=None, ge=1)
    """Consecutive steps with (nearly) no group of differing rewards after which the run ends. None: never."""
    worker_samples: Annotated[int, Field(ge=1)] | Literal["every"] = 1
    """Answers per worker and prompt that training uses: epoch n uses sample n modulo this. 1: each prompt is paid for
    once. "every": each rollout has its own answers, as in the paper, and every call is paid for."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints: the most that a crash can lose."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Checkpoints that are kept; one more exists while it is written."""
    collective_timeout_s: float = Field(default=4 * 3600.0, gt=0, le=7 * DAY_S)
    """Seconds that a rank waits for the others; must exceed the slowest step, waits for workers included."""
    max_unscorable: float = Field(default=0.5, ge=0, le=1)
    """Share of a step's rollouts that may have no reward because workers were unreachable. With more, the step pauses
    and asks again; 1: it never pauses."""
    outage_s: float = Field(default=2 * 3600.0, ge=0, le=7 * DAY_S)
    """Total seconds of such pauses in a step after which the run ends; it can be continued. Less than
    `collective_timeout_s` on several processes."""
    reward_terms: dict[str, Annotated[float, Field(ge=-1e6, le=1e6)]] = Field(default={})
    """File in `ops/training/rewards/terms` → weight of one unit, added to the 0, 0.5 or 1 of a scorable rollout.
    Negative weights penalise; keep their effect below 0.5, the worth of the format."""

    @property
    def rollouts_per_step(self) -> int:
        return self.questions_per_step * self.rollouts_per_question

    @field_validator("reward_terms")
    @classmethod
    def _known(cls, weights: dict[str, float]) -> dict[str, float]:
        check_names("reward term", "ops.training.rewards.terms", weights)
        return weights

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.rollouts_per_step % (self.micro_batch * self.processes) != 0:
            raise ValueError(
                f"questions_per_step × rollouts_per_question = {self.rollouts_per_step} is not a multiple of "
                f"micro_batch × processes = {self.micro_batch * self.processes}"
            )
        if self.processes > 1 and self.deepspeed is None:
            raise ValueError("processes > 1 needs a deepspeed file")
        if self.processes > 1 and self.outage_s >= self.collective_timeout_s:
            raise ValueError(
                f"outage_s = {self.outage_s:g} is not less than collective_timeout_s = {self.collective_timeout_s:g}: "
                "ranks would give up on one that waits for workers"
            )
        return self

    @model_validator(mode="after")
    def _staleness_is_corrected(self) -> Self:
        if self.staleness and self.sampling == "signal":
            raise ValueError("staleness excludes sampling: signal, which asks by what the step before showed")
        if self.staleness and self.vllm and self.vllm_correction == "none":
            raise ValueError(
                "staleness needs a vllm_correction beside vLLM: nothing else weighs what an older policy wrote"
            )
        return self

    @model_validator(mode="after")
    def _vllm_can_start(self) -> Self:
        if (self.vllm_mode == "server") != (self.vllm_server_url is not None):
            raise ValueError("vllm_server_url goes with vllm_mode: server, and the other way round")
        if self.vllm_mode == "server" and (self.vllm_sleep or self.vllm_tensor_parallel > 1):
            raise ValueError("vllm_sleep and vllm_tensor_parallel are a colocated vLLM's: a server has GPUs of its own")
        if self.processes % self.vllm_tensor_parallel:
            raise ValueError(
                f"vllm_tensor_parallel = {self.vllm_tensor_parallel} does not divide processes = {self.processes}"
            )
        if self.vllm_max_model_length is not None and self.vllm_max_model_length <= self.max_completion_tokens:
            raise ValueError(
                f"vllm_max_model_length = {self.vllm_max_model_length} leaves no room for a prompt beside "
                f"max_completion_tokens = {self.max_completion_tokens}"
            )
        return self


class Guards(Settings):
    """Thresholds for warnings about a finished training run.

    The guards change no result and are not part of a run's key. The last `window` steps are compared with the first
    `window` steps. Shares are in [0, 1].
    """

    window: int = Field(default=10, ge=1)
    """Steps compared at the beginning and at the end of a run, at most half of it."""
    max_invalid: float = Field(default=0.1, ge=0, le=1)
    """Share of completions that are not valid workflows. Twice the gate's limit, since training samples and serving is
    greedy."""
    max_invalid_first_step: float = Field(default=0.5, ge=0, le=1)
    """Share of completions in the first step of fine-tuning a champion that are not valid workflows. Above it, training
    stops before a worker is called; 1: never. The only guard that acts."""
    max_worker_share: float = Field(default=0.75, ge=0, le=1)
    """Share of steps given to one worker, in the domain that uses it least."""
    max_worker_gap: float = Field(default=0.15, ge=0, le=1)
    """Accuracy by which a domain's most used worker may, alone, be below the best one there."""
    max_pattern_share: float = Field(default=0.7, ge=0, le=1)
    """Share of workflows with the most common pattern."""
    min_entropy_kept: float = Field(default=0.25, ge=0)
    """Entropy of the patterns at the end relative to the beginning."""
    min_gain: float = Field(default=0.01, ge=-1, le=1)
    """Rise of the share of correct answers among valid workflows; below it, the reward rose only because of the
    format."""
    max_unscorable: float = Field(default=0.05, ge=0, le=1)
    """Share of the run's rollouts without a reward."""
    max_loops: float = Field(default=0.25, ge=0, le=1)
    """Share of recursive rounds that repeat the workflow or turn more right answers wrong than wrong ones right."""
    max_zero_variance: float = Field(default=0.8, ge=0, le=1)
    """Share of groups with uniform rewards, which have no gradient."""


class GrpoStage(Settings):
    """GRPO again, from the last policy: the settings that differ from `grpo`. None: none differs."""

    steps: int = Field(default=20, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, gt=0)
    questions_per_step: int | None = Field(default=None, ge=1)
    rollouts_per_question: int | None = Field(default=None, ge=2)
    micro_batch: int | None = Field(default=None, ge=1)

    def grpo(self, before: Grpo) -> Grpo:
        """Return the settings of this stage; `before` are those of the previous stage. Raises `ValidationError` for an
        impossible combination."""
        own: dict[str, Any] = self.model_dump(include=set(GrpoStage.model_fields), exclude_none=True)
        return Grpo.model_validate(before.model_dump() | own)


class Adaptive(GrpoStage):
    """GRPO from the Conductor's policy in which each question offers a random subset of the workers.

    Section 3.2 of arXiv:2512.04388, which states neither the number of offered workers nor the number of steps.
    """

    smallest: int = Field(default=1, ge=1)
    """Workers in the smallest subset."""
    largest: int | None = Field(default=None, ge=1)
    """Workers in the largest subset; None: the whole pool. All sizes are equally likely."""
    whole_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the questions that offer the whole pool instead, so that the policy does not unlearn to use it."""
    reshuffle: bool = False
    """False: workers keep their ordinals, and absent ones are missing from the list. True: the subset is numbered from
    0 in random order, which needs worker descriptions (`prompting.cards`)."""

    @model_validator(mode="after")
    def _sizes_in_order(self) -> Self:
        if self.largest is not None and self.largest < self.smallest:
            raise ValueError(f"largest = {self.largest} is below smallest = {self.smallest}")
        return self

    def offered(self, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
        """Return the ordinals of `workers` that the stage offers for the problem of this key in this epoch.

        These are all in order for `whole_share` of the questions, and those of `drawn` for the others.
        """
        whole = Random(f"{seed} {epoch} {problem} whole").random() < self.whole_share
        return tuple(range(workers)) if whole else self.drawn(workers, seed, problem, epoch)

    def drawn(self, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
        """Return the ordinals of a subset for the problem of this key in this epoch, always the same.

        The size is drawn first, with every size equally likely; if there are fewer workers than the size, all are
        offered. The ordinals are in order, or shuffled if the stage reshuffles.
        """
        random = Random(f"{seed} {epoch} {problem}")
        most = min(self.largest or workers, workers)
        ordinals = random.sample(range(workers), random.randint(min(self.smallest, most), most))
        return tuple(ordinals if self.reshuffle else sorted(ordinals))


class RoundLimits(Settings):
    """Limits of a Conductor's rounds in evaluation and serving (Section 3.2 of arXiv:2512.04388)."""

    rounds: int = Field(default=1, ge=0)
    """Maximum number of rounds after the first."""
    calls_ratio: float = Field(default=2.0, ge=1)
    """All rounds of a set of questions together make at most this many times the calls of their first rounds."""
    answer_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of the final response that the Conductor sees; longer ones lose their middle. None: whole."""


class Recursive(GrpoStage):
    """GRPO from the last policy in which half of a question's rollouts continue from the answers of the other half.

    Section 3.2 of arXiv:2512.04388: 20 iterations on 175 problems of LiveCodeBench and 175 of RLPR.
    """

    gamma: float = Field(default=0.25, ge=0, le=1)
    """Weight of the second round's outcome in the reward of the first."""
    benchmarks: tuple[str, ...] | None = None
    """Benchmarks of the mix whose problems are used. None: all."""
    per_benchmark: int | None = Field(default=None, ge=1)
    """Maximum number of problems per benchmark, drawn by the recipe's seed. None: all."""
    limits: RoundLimits = RoundLimits()
    """Limits on rounds that evaluation and serving apply to the trained policy."""
    rollouts_per_question: int | None = Field(default=None, ge=4)
    """Rollouts of both rounds together: an even number."""

    def grpo(self, before: Grpo) -> Grpo:
        """Return the settings of this stage; `before` are those of the previous stages. Nothing overlaps, because a
        round waits for the previous round's answers.

        Raises `ValidationError` for an impossible combination, and `ValueError` if rollouts cannot be halved.
        """
        grpo = super().grpo(before.model_copy(update={"staleness": 0}))
        if grpo.rollouts_per_question % 2 or grpo.rollouts_per_step // grpo.processes % 2:
            raise ValueError(
                f"rollouts_per_question = {grpo.rollouts_per_question} on {grpo.processes} processes cannot be halved: "
                "half of a question's rollouts are recursive rounds"
            )
        return grpo
