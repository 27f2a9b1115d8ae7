"""A recipe's training: the policy, its cold start, GRPO, the further stages of GRPO, and the guards of a run."""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ops.config.base import DAY_S, HttpUrl, Name, Settings
from ops.core.registry import check_names

PACKAGE = "package:"


class ScratchPolicy(Settings):
    """A small policy with the architecture of Qwen2, random weights and its own tokenizer."""

    kind: Literal["scratch"] = "scratch"
    """Must be `scratch`."""
    vocabulary: int = Field(default=1024, ge=300)
    """The number of tokens of the tokenizer."""
    hidden: int = Field(default=192, ge=16)
    """The width of the hidden layers. It must be a multiple of twice the number of heads."""
    layers: int = Field(default=4, ge=1)
    """The number of layers."""
    heads: int = Field(default=4, ge=1)
    """The number of attention heads."""
    max_tokens: int = Field(default=2048, ge=64)
    """The maximum length of prompt and completion together, in tokens."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden = {self.hidden} is not a multiple of 2 × heads = {2 * self.heads}: rotary positions need "
                "heads of an even width"
            )
        return self


class PretrainedPolicy(Settings):
    """A language model from the Hugging Face hub, from a folder or from an installed Python package."""

    kind: Literal["pretrained"] = "pretrained"
    """Must be `pretrained`."""
    model: str
    """The name of the model on the hub, a folder, or `package:NAME` for the folder of an installed Python package."""
    revision: str | None = None
    """The commit, tag or branch of the model on the hub. If it is not set, this is the default branch."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """The number format of the weights."""
    gguf_file: str | None = None
    """The name of the file in the folder, if the weights are in the GGUF format."""

    @property
    def package(self) -> str | None:
        """Return the package of its files; None if they come from elsewhere."""
        return self.model.removeprefix(PACKAGE) if self.model.startswith(PACKAGE) else None


class PromptedPolicy(Settings):
    """A worker of the pool that writes the workflows because its prompt tells it how. It is not trained, and it is
    sampled with its own settings."""

    kind: Literal["prompted"] = "prompted"
    """Must be `prompted`."""
    worker: str = ""
    """The name of the worker. It may also execute steps. If the name is empty, the first worker with the median output
    price is used, because a more expensive one can cost more than it gains."""


class PolicyStep(Settings):
    """One step of the workflow of a static policy."""

    worker: str
    """The name of the worker that executes the step."""
    subtask: str = Field(default="Solve the problem.", pattern=r"\S")
    """The instruction of the step."""
    access: Literal["all"] | tuple[Annotated[int, Field(ge=0)], ...] = ()
    """The earlier steps that this step sees. An empty list means none, and `all` means all. With `prompting.access:
    fine_grained` you can list their numbers, beginning with 0."""


class StaticPolicy(Settings):
    """One fixed workflow that answers every question. It is not trained."""

    kind: Literal["static"] = "static"
    """Must be `static`."""
    workflow: tuple[PolicyStep, ...] = Field(min_length=1)
    """The steps of the workflow, in their order."""


UntrainedPolicy = PromptedPolicy | StaticPolicy
Policy = ScratchPolicy | PretrainedPolicy | UntrainedPolicy


class Lora(Settings):
    """Low-rank adaptation (arXiv:2106.09685): instead of all weights, a low-rank update of every linear layer is
    trained. When the cold start ends, the updates are merged into the weights, so that GRPO and servers load an
    ordinary model."""

    rank: int = Field(default=16, ge=1)
    """The rank of the updates."""
    alpha: int = Field(default=32, ge=1)
    """The updates are multiplied by `alpha` divided by `rank`."""


class Validation(Settings):
    """What the policy must achieve after the cold start before GRPO begins."""

    problems: int = Field(default=100, ge=1)
    """The number of training questions to hold out. The policy writes one workflow for each of them, sampled as in
    GRPO."""
    least_valid: float = Field(default=0.95, ge=0, le=1)
    """The smallest share of valid workflows with which GRPO begins. You can change it and continue a run."""


class Teacher(Settings):
    """A policy that is not trained and that writes workflows for the training questions. Those that lead to a right
    answer become examples of the cold start."""

    policy: UntrainedPolicy = Field(discriminator="kind")
    """The policy that writes these workflows."""
    samples: int = Field(default=1, ge=1)
    """The number of workflows that it writes for each question."""


class ColdStart(Settings):
    """Supervised training that teaches the policy the format of workflows. Its examples are sampled workflows, many of
    which are known to work from the stored responses."""

    steps: int = Field(default=500, ge=1)
    """The number of optimizer steps."""
    batch: int = Field(default=32, ge=1)
    """The number of examples in each optimizer step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The learning rate at its highest. It falls along a cosine."""
    success_share: float = Field(default=0.7, ge=0, le=1)
    """The share of examples that are known to work. These are workflows that gave a right answer, or whose last worker
    answers the question rightly on its own."""
    attempts: int = Field(default=0, ge=0)
    """The number of random workflows that are tried on each question that no worker answers rightly on its own. Those
    that succeed become examples."""
    teacher: Teacher | None = None
    """A policy that writes further workflows for every question. Those that succeed become examples. If it is not set,
    there is no teacher."""
    recursive_share: float = Field(default=0.0, ge=0, lt=1)
    """The share of examples in which the Conductor sees an earlier answer. In half of them it keeps a right answer, and
    in the other half it replaces a wrong one."""
    parts_share: float = Field(default=0.0, ge=0, le=1)
    """The share of the other examples that offer a subset of the pool, drawn as in the adaptive stage."""
    micro_batch: int | None = Field(default=None, ge=1)
    """The number of examples in one forward and backward pass. A smaller number needs less memory. It must divide
    `batch`. If it is not set, it is the whole batch."""
    lora: Lora | None = None
    """If it is set, low-rank updates are trained instead of all weights."""
    validation: Validation | None = None
    """Questions that are held out to check that the policy writes valid workflows. If it is not set, `least_valid` is
    checked instead."""
    least_valid: float = Field(default=0.5, ge=0, le=1)
    """Without `validation`, the smallest share of valid workflows, on questions that are not trained on, with which
    GRPO begins. 0 turns the check off. You can change it and continue a run."""

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise ValueError(f"batch = {self.batch} is not a multiple of micro_batch = {self.micro_batch}")
        return self


class Grpo(Settings):
    """The training by reinforcement learning with GRPO. The recipe `paper` uses the values of Appendix A.1 of
    arXiv:2512.04388."""

    steps: int = Field(default=200, ge=1)
    """The number of optimizer steps."""
    questions_per_step: int = Field(default=4, ge=1)
    """The number of questions in each step."""
    rollouts_per_question: int = Field(default=64, ge=2)
    """The number of rollouts (workflows that are written, executed and graded) for each question. They form one group,
    whose rewards are compared."""
    temperature: float = Field(default=1.0, gt=0)
    """The temperature at which workflows are sampled."""
    max_completion_tokens: int = Field(default=1024, ge=8)
    """The maximum length of a completion of the policy, in tokens."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """The learning rate at its highest."""
    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    """How the learning rate changes after the warm-up."""
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    """The share of the steps in which the learning rate rises from 0."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """The coefficient β1 of the optimizer AdamW."""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """The coefficient β2 of the optimizer AdamW."""
    clip: float = Field(default=0.2, gt=0)
    """The bound ε of the probability ratio: the ratio is clipped to 1 − ε and 1 + ε."""
    clip_high: float | None = Field(default=None, gt=0)
    """Another upper bound of the probability ratio (DAPO, arXiv:2503.14476). If it is not set, it is that of `clip`."""
    kl: float = Field(default=0.0, ge=0)
    """The weight of the KL divergence from the reference policy. With 0 no reference policy is loaded."""
    entropy: float = Field(default=0.0, ge=0)
    """The weight of a bonus for the mean entropy of a token, in nats."""
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = "grpo"
    """The form of the loss, named as in TRL."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The norm to which the gradient is clipped."""
    micro_batch: int = Field(default=256, ge=1)
    """The number of rollouts on each device in one forward and backward pass."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass. This saves memory and takes more time."""
    staleness: int = Field(default=0, ge=0, le=4)
    """The number of updates between the policy that wrote a rollout and the policy that is trained on it. With 1 or
    more, the rollouts of the next steps are generated while workers answer those of this step. The probability ratio of
    the two policies corrects for the difference. [Training](../training.md) explains it."""
    vllm: bool = False
    """Whether vLLM generates the rollouts. It needs the extra `gpu`."""
    vllm_memory: float = Field(default=0.3, gt=0, lt=1)
    """The share of each GPU's memory that vLLM uses for weights and cache, if it shares the GPU with the trainer."""
    vllm_max_model_length: int | None = Field(default=None, ge=16)
    """The maximum length of prompt and completion together, in tokens, for which vLLM reserves memory. A longer prompt
    is refused before the training begins. If it is not set, this is the model's maximum."""
    vllm_sleep: bool = False
    """Whether vLLM frees its memory while the policy is updated. The weights are then copied to it again in every
    step."""
    vllm_mode: Literal["colocate", "server"] = "colocate"
    """Where vLLM runs. With `colocate` it shares the GPUs of the training processes. With `server` it has its own GPUs
    behind `vllm_server_url`, and you start it before the training."""
    vllm_server_url: HttpUrl | None = None
    """The URL of the server, `http://HOST:PORT`, with `vllm_mode: server`."""
    vllm_tensor_parallel: int = Field(default=1, ge=1)
    """The number of GPUs over which one colocated vLLM is spread. It must divide `processes`."""
    vllm_correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        "sequence_mask"
    )
    """How the training corrects for the difference between vLLM's token probabilities and those of the trainer. The
    ratio of the two, of each token or of each sequence, is a weight in the loss. A ratio above `vllm_correction_max` is
    cut (`truncate`), or the token or sequence is left out (`mask`). `none` corrects nothing."""
    vllm_correction_max: float = Field(default=3.0, gt=0)
    """The largest ratio of this correction."""
    deepspeed: Name | None = None
    """The name of a file in config/deepspeed. If it is not set, the training runs without DeepSpeed in one process."""
    processes: int = Field(default=1, ge=1, le=4096)
    """The number of training processes. With GPUs it is the number of GPUs."""
    sampling: Literal["epochs", "signal"] = "epochs"
    """How questions are chosen. With `epochs`, every question is used once in each epoch, in random order. With
    `signal`, questions are drawn in proportion to the expected variance of their rewards."""
    stop_without_signal: int | None = Field(default=None, ge=1)
    """The number of consecutive steps after which the training ends if (nearly) no group has different rewards. If it
    is not set, the training never ends for this reason."""
    worker_samples: Annotated[int, Field(ge=1)] | Literal["every"] = 1
    """The number of different answers of a worker to the same prompt that the training uses, in turn from epoch to
    epoch. With 1, each prompt is paid for once. With `every`, each rollout gets its own answers as in the paper, and
    every call is paid for."""
    checkpoint_every: int = Field(default=10, ge=1)
    """The number of steps between two checkpoints. A crash loses at most this many steps."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """The number of checkpoints that are kept. One more exists while it is written."""
    collective_timeout_s: float = Field(default=4 * 3600.0, gt=0, le=7 * DAY_S)
    """The time in seconds that a training process waits for the others. It must be longer than the slowest step,
    including the time that it waits for workers."""
    max_unscorable: float = Field(default=0.5, ge=0, le=1)
    """The largest share of the rollouts of a step that may have no reward because workers could not be reached. If the
    share is larger, the step pauses and asks the workers again. With 1 it never pauses."""
    outage_s: float = Field(default=2 * 3600.0, ge=0, le=7 * DAY_S)
    """The total time of such pauses in one step, in seconds, after which the training ends. You can continue it later.
    With several processes, it must be less than `collective_timeout_s`."""
    reward_terms: dict[str, Annotated[float, Field(ge=-1e6, le=1e6)]] = Field(default={})
    """Further terms of the reward, each with the weight of one unit. A name is that of a file in
    `ops/training/rewards/terms`. The terms are added to the reward of 0, 0.5 or 1 of a rollout. A negative weight is a
    penalty. Keep the effect of a term below 0.5, which is the reward for a valid workflow."""

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
    """Bounds for warnings about a finished training. The last `window` steps are compared with the first `window`
    steps. Shares are numbers from 0 to 1. The warnings change no result."""

    window: int = Field(default=10, ge=1)
    """The number of steps that are compared, at most half of the training."""
    max_invalid: float = Field(default=0.1, ge=0, le=1)
    """The largest share of completions that are not valid workflows. The default is twice the bound of the promotion
    gate, because training samples workflows while serving decodes greedily."""
    max_invalid_first_step: float = Field(default=0.5, ge=0, le=1)
    """The largest share of completions that are not valid workflows in the first step when the champion is trained
    further. If it is exceeded, the training stops before a worker is called. With 1 it never stops. This is the only
    guard that stops a training."""
    max_worker_share: float = Field(default=0.75, ge=0, le=1)
    """The largest share of all steps that one worker executes, in the domain in which it executes the fewest."""
    max_worker_gap: float = Field(default=0.15, ge=0, le=1)
    """The largest difference in accuracy between the best worker of a domain and the worker that the Conductor uses
    most there, both on their own."""
    max_pattern_share: float = Field(default=0.7, ge=0, le=1)
    """The largest share of workflows with the same pattern (the workers and what they see, without the subtasks)."""
    min_entropy_kept: float = Field(default=0.25, ge=0)
    """The smallest ratio of the entropy of patterns at the end of the training to that at its beginning."""
    min_gain: float = Field(default=0.01, ge=-1, le=1)
    """The smallest rise of the accuracy among valid workflows. With less, the reward rose only because more workflows
    became valid."""
    max_unscorable: float = Field(default=0.05, ge=0, le=1)
    """The largest share of rollouts without a reward."""
    max_loops: float = Field(default=0.25, ge=0, le=1)
    """The largest share of recursive rounds that repeat the previous workflow, or that turn more right answers into
    wrong ones than the reverse."""
    max_zero_variance: float = Field(default=0.8, ge=0, le=1)
    """The largest share of groups in which all rewards are equal. Such a group has no gradient."""


class GrpoStage(Settings):
    """A further stage of GRPO that starts from the last policy. It lists the settings that differ from those of `grpo`.
    A setting that is not set is the same."""

    steps: int = Field(default=20, ge=1)
    """The number of optimizer steps of this stage."""
    learning_rate: float | None = Field(default=None, gt=0)
    """The learning rate of this stage at its highest."""
    temperature: float | None = Field(default=None, gt=0)
    """The temperature at which workflows are sampled."""
    questions_per_step: int | None = Field(default=None, ge=1)
    """The number of questions in each step."""
    rollouts_per_question: int | None = Field(default=None, ge=2)
    """The number of rollouts for each question."""
    micro_batch: int | None = Field(default=None, ge=1)
    """The number of rollouts on each device in one forward and backward pass."""

    def grpo(self, before: Grpo) -> Grpo:
        """Return the settings of this stage; `before` are those of the previous stage. Raises `ValidationError` for an
        impossible combination."""
        own: dict[str, Any] = self.model_dump(include=set(GrpoStage.model_fields), exclude_none=True)
        return Grpo.model_validate(before.model_dump() | own)


class Adaptive(GrpoStage):
    """A stage of GRPO in which each question offers a random subset of the workers.

    Section 3.2 of arXiv:2512.04388, which states neither the number of offered workers nor the number of steps.
    """

    smallest: int = Field(default=1, ge=1)
    """The number of workers in the smallest subset."""
    largest: int | None = Field(default=None, ge=1)
    """The number of workers in the largest subset. If it is not set, this is the whole pool. All sizes are equally
    likely."""
    whole_share: float = Field(default=0.0, ge=0, lt=1)
    """The share of questions that offer the whole pool instead of a subset, so that the policy does not forget how to
    use it."""
    reshuffle: bool = False
    """Whether the workers of a subset get new numbers, from 0 in random order. This requires descriptions of the
    workers in the prompt (`prompting.cards`). If it is false, workers keep their numbers, and those that are not
    offered are missing from the list."""

    @model_validator(mode="after")
    def _sizes_in_order(self) -> Self:
        if self.largest is not None and self.largest < self.smallest:
            raise ValueError(f"largest = {self.largest} is below smallest = {self.smallest}")
        return self

    def offer_workers(self, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
        """Return the ordinals of `workers` that the stage offers for the problem of this key in this epoch.

        These are all in order for `whole_share` of the questions, and those of `draw_subset` for the others.
        """
        whole = Random(f"{seed} {epoch} {problem} whole").random() < self.whole_share
        return tuple(range(workers)) if whole else self.draw_subset(workers, seed, problem, epoch)

    def draw_subset(self, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
        """Return the ordinals of a subset for the problem of this key in this epoch, always the same.

        The size is drawn first, with every size equally likely; if there are fewer workers than the size, all are
        offered. The ordinals are in order, or shuffled if the stage reshuffles.
        """
        random = Random(f"{seed} {epoch} {problem}")
        most = min(self.largest or workers, workers)
        ordinals = random.sample(range(workers), random.randint(min(self.smallest, most), most))
        return tuple(ordinals if self.reshuffle else sorted(ordinals))


class RoundLimits(Settings):
    """Limits of a recursive Conductor's rounds in evaluation and serving (Section 3.2 of arXiv:2512.04388)."""

    rounds: int = Field(default=1, ge=0)
    """The maximum number of rounds after the first."""
    calls_ratio: float = Field(default=2.0, ge=1)
    """The limit of all calls, as a multiple of the calls of the first rounds. It applies to a set of questions
    together."""
    answer_tokens: int | None = Field(default=None, ge=16)
    """The maximum number of tokens of the last answer that the Conductor sees. The middle of a longer answer is cut
    out. If it is not set, the Conductor sees the whole answer."""


class Recursive(GrpoStage):
    """A stage of GRPO in which half of the rollouts of a question are second rounds. They continue from the answers of
    the other half.

    Section 3.2 of arXiv:2512.04388: 20 iterations on 175 problems of LiveCodeBench and 175 of RLPR.
    """

    gamma: float = Field(default=0.25, ge=0, le=1)
    """The weight of the second round's outcome in the reward of the first round."""
    benchmarks: tuple[str, ...] | None = None
    """The training benchmarks whose questions are used. If it is not set, all are used."""
    per_benchmark: int | None = Field(default=None, ge=1)
    """The maximum number of questions of each benchmark, which the seed draws. If it is not set, all are used."""
    limits: RoundLimits = RoundLimits()
    """The limits of the trained policy's rounds in evaluation and serving."""
    rollouts_per_question: int | None = Field(default=None, ge=4)
    """The number of rollouts for each question, both rounds together. It must be even."""

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
