"""The plan of a recipe on a machine: the figures from which the printed plan and the requirements are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.config import TRANSFORMERS, Grpo, Pool, PretrainedPolicy, Recipe, Setup, load_deepspeed
from ops.core.response_rows import ResponseRow
from ops.grading.hidden_tests import hidden_tests_folder
from ops.planning import lengths as sizes
from ops.planning.estimate import Cost, MeasuredUsage, Range
from ops.planning.lengths import TokenLengths
from ops.planning.machine import USABLE_GIB_PER_GB, Machine
from ops.planning.memory import (
    CUDA_CONTEXT_GIB,
    GIB,
    HIDDEN_TESTS_BYTES,
    HIDDEN_TESTS_RATIO,
    PROCESS_GIB,
    TEST_BATCH_BYTES_PER_CHARACTER,
    TEST_BATCH_CHARACTERS,
    VLLM_WORKSPACE_GIB,
    MemoryEstimate,
    Precision,
    TrainingEngine,
    VllmEngine,
    Workload,
    alternative_workloads,
    checkpoint_bytes,
    cold_start_bytes,
    estimate_memory,
    evaluation_bytes,
)
from ops.planning.model_shape import KnownShape, find_shape
from ops.planning.speed import (
    MIN_GPU_PARAMETERS,
    estimate_cold_start_s,
    estimate_evaluation_s,
    estimate_rounds_s,
    estimate_training_s,
)
from ops.planning.stage_estimates import (
    COLD_START,
    EVALUATION,
    ROUNDS,
    SUBSETS,
    TRAINING,
    StageEstimator,
    workflows_per_answer,
)
from ops.planning.stored_results import RemainingShares, compute_remaining, open_existing_ledger, read_measurements

ASSUMED_GPU_GIB = 80 * USABLE_GIB_PER_GB
"""The memory per GPU (GiB) that is assumed if a GPU is needed and the machine has none."""


@dataclass(frozen=True)
class RecipePlan:
    """A recipe and a machine, with the memory, disk, cost and time that follow from both."""

    setup: Setup
    """The checkout, recipe and pool."""
    machine: Machine
    """The machine on which the recipe is to run."""
    deepspeed: Mapping[str, Any] | None
    """The contents of the recipe's DeepSpeed file, or None if the recipe does not use DeepSpeed."""
    today: date
    """The day on which prices and retirement dates are read."""

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the plan."""
        return self.setup.recipe

    @property
    def pool(self) -> Pool:
        """Return the pool of the plan."""
        return self.setup.pool

    @cached_property
    def known_shape(self) -> KnownShape | None:
        """Return the shape of the policy's model, or None if it is unknown."""
        return find_shape(self.recipe.policy, self.setup.workspace)

    @cached_property
    def lengths(self) -> TokenLengths:
        """Return the token lengths of questions and prompts."""
        return sizes.estimate_lengths(self.setup, self._measured[0])

    @cached_property
    def test_questions(self) -> dict[str, int | None]:
        """Return the number of test questions by benchmark. None stands for an unknown number."""
        return sizes.count_test_questions(self.setup.workspace, self.recipe)

    @property
    def vllm(self) -> VllmEngine | None:
        """Return the recipe's vLLM settings, or None if transformers generates the rollouts."""
        grpo = self.recipe.grpo
        if not grpo.vllm:
            return None
        return VllmEngine(
            memory_share=grpo.vllm_memory,
            sleeps=grpo.vllm_sleep,
            max_length=grpo.vllm_max_model_length or 0,
            gpus_per_engine=grpo.vllm_tensor_parallel,
            is_server=grpo.vllm_mode == "server",
        )

    @property
    def context_limit(self) -> int | None:
        """Return the maximum tokens of prompt and completion together that the policy and vLLM accept in training.

        None means that the shape is unknown or that there is no limit.
        """
        limits = [self.known_shape.shape.context if self.known_shape else 0, self.vllm.max_length if self.vllm else 0]
        return min((limit for limit in limits if limit), default=None)

    @cached_property
    def workload(self) -> Workload | None:
        """Return the training stage with the highest memory peak, or None if the policy's shape is unknown."""
        recipe, first = self.recipe, self.lengths.longest_prompt
        works = [self._build_workload(recipe.grpo, first)]
        if recipe.adaptive is not None:
            works.append(self._build_workload(recipe.adaptive.grpo(recipe.grpo), first))
        if recipe.recursive is not None:
            works.append(self._build_workload(recipe.recursive.grpo(recipe.grpo), self.lengths.longest, turns=2))
        return max(filter(None, works), key=self._peak_gib, default=None)

    def _peak_gib(self, work: Workload) -> float:
        """Return the peak of a workload in GiB of a GPU, or of host memory if there are no GPUs."""
        made = estimate_memory(work, self.gpu_gib)
        return made.host_peak_gib if self.gpu_gib is None else made.gpu_peak_gib

    def _build_workload(self, grpo: Grpo, prompt: int, turns: int = 1) -> Workload | None:
        """Return the workload of a training stage, or None if the policy's shape is unknown.

        `prompt` is the longest prompt in tokens, `turns` the number of generations one after another in a step.
        """
        if self.known_shape is None:
            return None
        shape, longest = self.known_shape.shape, self.context_limit or 1 << 20
        completion = min(grpo.max_completion_tokens, longest - 1)
        return Workload(
            shape=shape,
            precision=self._precision,
            engine=TrainingEngine.from_deepspeed(self.deepspeed, grpo.processes, shape.hidden),
            micro_batch=grpo.micro_batch,
            rollouts_per_rank=grpo.rollouts_per_step // grpo.processes // turns,
            prompt_tokens=min(prompt, longest - completion),
            completion_tokens=completion,
            checkpointing=grpo.gradient_checkpointing,
            vllm=self.vllm,
        )

    @property
    def _precision(self) -> Precision:
        """Return the precision in which the policy is trained."""
        if getattr(self.recipe.policy, "dtype", "float32") == "float32":
            return "float32"
        return "bfloat16" if self.deepspeed is not None else "mixed"

    @property
    def needs_gpu(self) -> bool:
        """Return True if the policy is too large to be trained on CPUs."""
        return self.known_shape is not None and self.known_shape.shape.parameters >= MIN_GPU_PARAMETERS

    @cached_property
    def memory(self) -> MemoryEstimate | None:
        """Return the memory that the recipe's training needs, or None if the policy's shape is unknown.

        It is the memory of one GPU, or of the whole machine if it has no GPU and the policy is small.
        """
        return None if self.workload is None else estimate_memory(self.workload, self.gpu_gib)

    @property
    def gpu_gib(self) -> float | None:
        """Return the memory of the smallest GPU (GiB), or of an assumed one if a GPU is needed and there is none."""
        return self.machine.gpu_gib or (ASSUMED_GPU_GIB if self.needs_gpu else None)

    @cached_property
    def alternative_memory(self) -> dict[str, MemoryEstimate]:
        """Return the memory under alternative training engines on all GPUs, by the engine's name.

        The mapping is empty for a small policy, which needs no GPU.
        """
        if self.workload is None or not self.needs_gpu:
            return {}
        others = alternative_workloads(self.workload, len(self.machine.gpus) or self.recipe.grpo.processes)
        return {name: estimate_memory(work, self.gpu_gib) for name, work in others.items()}

    @property
    def evaluation_gib(self) -> float:
        """Return the GiB of one GPU, or of the machine without GPUs, that an evaluation needs to generate workflows.

        Transformers generates a batch of workflows. vLLM needs room for at least one sequence, and uses the rest of its
        share as cache.
        """
        evaluation = self.recipe.evaluation
        if self.workload is None or evaluation.server is not None:
            return 0.0
        beside = CUDA_CONTEXT_GIB if self.machine.gpus else PROCESS_GIB
        work = self._with_longest_prompt(self.workload, all_rounds=self.recipe.recursive is not None)
        if evaluation.writer == TRANSFORMERS:
            return beside + evaluation_bytes(work, evaluation.batch) / GIB
        return beside + VLLM_WORKSPACE_GIB + evaluation_bytes(work, 1) / GIB

    def _with_longest_prompt(self, work: Workload, *, all_rounds: bool) -> Workload:
        """Return the workload with the longest prompt of the first rounds, or with `all_rounds` of any round."""
        longest = self.lengths.longest if all_rounds else self.lengths.longest_prompt
        return replace(work, prompt_tokens=min(longest, (self.context_limit or 1 << 20) - work.completion_tokens))

    @property
    def has_pretrained_cold_start(self) -> bool:
        """Return True if the recipe gives a pretrained model a cold start."""
        return self.recipe.cold_start is not None and isinstance(self.recipe.policy, PretrainedPolicy)

    @property
    def cold_start_gib(self) -> float | None:
        """Return the GiB of one GPU, or of the machine, during a pretrained model's cold start. None means that there
        is none."""
        cold_start, work = self.recipe.cold_start, self.workload
        if cold_start is None or work is None or not self.has_pretrained_cold_start:
            return None
        precision: Precision = "mixed" if work.precision != "float32" else "float32"
        work = self._with_longest_prompt(work, all_rounds=cold_start.recursive_share > 0)
        at_once = replace(work, micro_batch=cold_start.micro_batch or cold_start.batch, precision=precision)
        beside = CUDA_CONTEXT_GIB if self.machine.gpus else PROCESS_GIB
        return beside + cold_start_bytes(at_once, cold_start.lora is not None) / GIB

    # ── disk ─────────────────────────────────────────────────────────────────

    @property
    def _run_count(self) -> int:
        """Return the number of GRPO runs: the first one, and one for each later stage."""
        return 1 + (self.recipe.adaptive is not None) + (self.recipe.recursive is not None)

    @property
    def max_checkpoints(self) -> int:
        """Return the maximum number of checkpoints on disk: those that each stage keeps, and the one that is being
        written."""
        return self._run_count * self.recipe.grpo.keep_checkpoints + 1

    @property
    def checkpoint_gib(self) -> float:
        """Return the GiB of one checkpoint, or 0 if the shape is unknown."""
        work = self.workload
        return checkpoint_bytes(work.shape, work.engine, work.element_bytes) / GIB if work else 0.0

    @property
    def weights_gib(self) -> float:
        """Return the GiB of all weights that a run stores.

        These are the policy of each stage, a copy of the last one in MLflow's store, and a base model that is not
        downloaded yet.
        """
        if self.known_shape is None:
            return 0.0
        element = 2 if getattr(self.recipe.policy, "dtype", "float32") == "bfloat16" else 4
        downloaded = isinstance(self.recipe.policy, PretrainedPolicy) and not self.known_shape.is_local
        copies = self._run_count + (self.recipe.cold_start is not None) + 1 + downloaded
        return copies * element * self.known_shape.shape.parameters / GIB

    @cached_property
    def hidden_tests(self) -> list[str]:
        """Return the benchmarks with hidden tests that the recipe reads from the hub or from files."""
        sources = self.recipe.benchmarks.items()
        return [name for name, source in sources if BENCHMARKS[name].has_hidden_tests and source.source != "embedded"]

    @cached_property
    def hidden_tests_gib(self) -> float:
        """Return the GiB of hidden tests that are not stored yet. Each is stored in `data/raw` and again in DVC's
        cache."""
        root, size = self.setup.workspace.root, 0.0
        for name in self.hidden_tests:
            source = self.recipe.benchmarks[name]
            if any((hidden_tests_folder(root) / name).glob("*")):
                continue
            if source.source == "hub":
                size += HIDDEN_TESTS_BYTES / HIDDEN_TESTS_RATIO
                continue
            files = [root / Path(file).expanduser() for file in {*source.files("train"), *source.files("test")}]
            size += sum(file.stat().st_size for file in files if file.is_file())
        return 2 * size / GIB

    @property
    def grading_gib(self) -> float:
        """Return the GiB of host memory in which programs are graded, where each core holds one batch of hidden
        tests."""
        return (
            bool(self.hidden_tests) * self.machine.cores * TEST_BATCH_BYTES_PER_CHARACTER * TEST_BATCH_CHARACTERS / GIB
        )

    @property
    def disk_gib(self) -> float:
        """Return the GiB that checkpoints, weights and hidden tests still need.

        The existing checkpoints of this recipe's runs are subtracted.
        """
        lying = sum(
            file.stat().st_size
            for file in self.setup.workspace.runs.glob(f"{self.recipe.policy_name}-*/checkpoints/**/*")
            if file.is_file()
        )
        return (
            max(0.0, self.max_checkpoints * self.checkpoint_gib - lying / GIB)
            + self.weights_gib
            + self.hidden_tests_gib
        )

    # ── money and time ───────────────────────────────────────────────────────

    @cached_property
    def stages(self) -> list[Cost]:
        """Return the costs of the stages in the order of a pipeline run. Raises `ConfigError` for a worker without a
        price."""
        stored = compute_remaining(self.setup, sizes.read_shortlist(self.setup))
        priced = StageEstimator(self.setup, self.lengths, self.test_questions, self._measured[1], stored)
        return [
            replace(stage, policy_s=self._policy_s(stage.name, priced.remaining_answers, stored))
            for stage in priced.estimate_all()
        ]

    @cached_property
    def spent_usd(self) -> float:
        """Return the USD that the recipe's run has spent already. They count against its cap."""
        with open_existing_ledger(self.setup) as ledger:
            return 0.0 if ledger is None else ledger.total_usd(self.setup.run)

    @cached_property
    def _measured(self) -> tuple[list[ResponseRow], MeasuredUsage]:
        """Return the precached responses, and the measured tokens and latencies of the workers."""
        return read_measurements(self.setup)

    def _policy_s(self, stage: str, answers: Mapping[str, float], stored: RemainingShares) -> Range | None:
        """Return the seconds of generation and updates that a stage still takes, or None if they are unknown.

        `answers` is the number of answers that a policy still has to give, by benchmark.
        """
        if self.known_shape is None:
            return None
        known = (self.setup, self.known_shape.shape, self.lengths, self.machine)
        if stage == TRAINING:
            return _remaining_seconds(stored.training, estimate_training_s(*known))
        if stage == SUBSETS:
            return _remaining_seconds(stored.adaptive, estimate_training_s(*known, self.recipe.adaptive))
        if stage == ROUNDS:
            return _remaining_seconds(stored.recursive, estimate_rounds_s(*known))
        if stage == COLD_START and self.has_pretrained_cold_start:
            return _remaining_seconds(stored.cold_start, estimate_cold_start_s(*known))
        if stage == EVALUATION and isinstance(self.recipe.policy, PretrainedPolicy):
            policies = 1 + (self.recipe.cold_start is not None)
            asked = sum(answers.values())
            rounds = self.recipe.recursive.limits.rounds if self.recipe.recursive is not None else 0
            # If rounds are allowed, the last policy reads every answer at least once more.
            again = Range(min(1, rounds), (min(1, rounds) + rounds) / 2, rounds)
            written = (
                Range.exactly(policies)
                .plus(again)
                .times(asked)
                .times(workflows_per_answer(self.recipe.evaluation.vote))
            )
            return estimate_evaluation_s(self.setup, self.known_shape.shape, self.machine, written)
        return None


def _remaining_seconds(left: float, seconds: Range | None) -> Range | None:
    """Return the share `left` (0-1) of the seconds, or None if they are unknown."""
    return None if seconds is None else seconds.times(left)


def make_plan(
    setup: Setup, machine: Machine, deepspeed: Mapping[str, Any] | None = None, today: date | None = None
) -> RecipePlan:
    """Return the plan of `setup` on `machine`.

    `deepspeed` is the contents of the recipe's DeepSpeed file, which is read from `config/` unless it is given. Raises
    `ConfigError` if the file cannot be read.
    """
    if deepspeed is None:
        deepspeed = load_deepspeed(setup.workspace.config, setup.recipe)
    return RecipePlan(setup, machine, deepspeed, today or date.today())


class MissingRequirement(NamedTuple):
    """A requirement that is not met, with the reason why it is needed and the remedy."""

    what: str
    """What is missing."""
    why: str
    """Why the recipe needs it."""
    remedy: str
    """What the user can do about it."""
    refuses: bool = True
    """True if a run is refused while the requirement is not met, False if it is only noted."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"


Requirement = Callable[[RecipePlan], Iterator[MissingRequirement]]
"""A function that checks one aspect of a plan and yields the requirements that are not met."""
