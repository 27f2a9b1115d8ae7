"""Estimate the seconds of supervised training, generation and updates, from the last run or from operation counts.

The speeds of GPUs are assumed. On CPUs they were measured with one model on one core.
"""

from __future__ import annotations

from ops.config import VLLM, Grpo, GrpoStage, Setup
from ops.planning.estimate import Range
from ops.planning.forecast import find_last_run
from ops.planning.lengths import EXPECTED_COMPLETION_SHARE, TokenLengths
from ops.planning.machine import Machine
from ops.planning.model_shape import ModelShape

PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "GH200": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}
"""The dense bfloat16 TFLOPS that the manufacturer states. A GPU that is not listed here counts as an H100."""
UTILISATION = Range(0.40, 0.25, 0.10)
"""The assumed share (0-1) of the peak that training reaches. The first value is the fastest, because ranges are ordered
by time."""
GPU_TOKENS_PER_SECOND = {True: Range(6000.0, 2500.0, 800.0), False: Range(800.0, 300.0, 100.0)}
"""Assumed tokens per second that a GPU generates with a model of 7.6 billion parameters, with vLLM (True) or
transformers (False)."""
GPU_REFERENCE_PARAMETERS = 7.6e9
"""The number of parameters of the model for which `GPU_TOKENS_PER_SECOND` holds."""
CPU_GFLOPS = {True: Range(200.0, 150.0, 40.0), False: Range(80.0, 60.0, 30.0)}
"""GFLOPS of a core in training, in bfloat16 (True) or float32 (False).

The first value of a range is the fastest, because ranges are ordered by time. It was measured with a model of 0.1
billion parameters on one core with AMX. The last value is assumed for a core without AMX.
"""
CPU_TOKENS_PER_SECOND = Range(400.0, 250.0, 60.0)
"""Tokens per second that the same core generates with the same model in bfloat16, for dozens of parallel workflows."""
CPU_REFERENCE_PARAMETERS = 1.35e8
"""The number of parameters of the model with which the speeds on CPUs were measured."""
MIN_FORECAST_PARAMETERS, MIN_GPU_PARAMETERS = 50_000_000, 500_000_000
"""Two limits on a policy's number of parameters for CPUs. Below `MIN_FORECAST_PARAMETERS` no time is forecast, because
matrix multiplication does not dominate a step. From `MIN_GPU_PARAMETERS` on, a policy is not trained on CPUs."""
COMPLETION_SHARE = Range(0.15, EXPECTED_COMPLETION_SHARE, 1.0)
"""The share (0-1) of `max_completion_tokens` that a completion takes: low, expected and high."""


def estimate_training_s(
    setup: Setup, shape: ModelShape, lengths: TokenLengths, machine: Machine, stage: GrpoStage | None = None
) -> Range | None:
    """Return the seconds of all steps of GRPO, or of a later `stage` of first rounds, or None if they are unknown.

    The seconds follow from operation counts or, for GRPO, from the last run of such a policy.
    """
    grpo = setup.recipe.grpo if stage is None else stage.grpo(setup.recipe.grpo)
    if stage is None and (last := find_last_run(setup)) is not None:
        return Range.exactly(last.policy_s)
    # On CPUs a group is packed into one sequence, so its prompt is processed only once (`ops.training.step.packing`).
    shared = 1 if machine.gpus else grpo.rollouts_per_question
    return _from_operation_counts(setup, grpo, shape, machine, lengths.prompt / shared)


def estimate_rounds_s(setup: Setup, shape: ModelShape, lengths: TokenLengths, machine: Machine) -> Range | None:
    """Return the seconds of training in rounds from operation counts, or None if they are unknown or there is no such
    stage.

    Half of the rollouts have longer prompts, which they do not share.
    """
    recipe = setup.recipe
    if recipe.recursive is None:
        return None
    grpo = recipe.recursive.grpo(recipe.grpo)
    first = lengths.prompt / (2 if machine.gpus else grpo.rollouts_per_question)
    return _from_operation_counts(setup, grpo, shape, machine, first + lengths.round_prompt / 2)


def _from_operation_counts(
    setup: Setup, grpo: Grpo, shape: ModelShape, machine: Machine, prompt: float
) -> Range | None:
    """Return the seconds of training from operation counts, or None if they are unknown.

    `prompt` is the number of prompt tokens per rollout that an update processes.
    """
    if _is_unpredictable(shape, machine):
        return None
    rollouts, said = grpo.steps * grpo.rollouts_per_step, COMPLETION_SHARE.times(grpo.max_completion_tokens)
    read, written = said.plus(Range.exactly(prompt)).times(rollouts), said.times(rollouts)
    if not machine.gpus:
        updates = _divide(read.times(6 * shape.parameters), _cpu_speed(setup, machine))
        return updates.plus(_cpu_writing_s(written, shape, machine))
    gpus = min(grpo.processes, len(machine.gpus))
    operations = read.times((8 if grpo.gradient_checkpointing else 6) * shape.parameters)
    speed = UTILISATION.times(gpus * 1e12 * min(_peak_tflops(gpu.name) for gpu in machine.gpus))
    return _divide(operations, speed).plus(_gpu_writing_s(written, shape, grpo.vllm, gpus))


def count_cold_start_tokens(setup: Setup, lengths: TokenLengths) -> Range | None:
    """Return the tokens of all SFT examples, including prompts, or None if there is no cold start."""
    cold_start = setup.recipe.cold_start
    if cold_start is None:
        return None
    said = COMPLETION_SHARE.times(setup.recipe.grpo.max_completion_tokens)
    again = cold_start.recursive_share
    prompt = (1 - again) * lengths.prompt + again * lengths.round_prompt
    return said.plus(Range.exactly(prompt)).times(cold_start.steps * cold_start.batch)


def estimate_cold_start_s(setup: Setup, shape: ModelShape, lengths: TokenLengths, machine: Machine) -> Range | None:
    """Return the seconds of supervised training on the SFT examples, or None if they are unknown.

    The training runs on one GPU, or on this machine's CPUs if there is no GPU.
    """
    tokens = count_cold_start_tokens(setup, lengths)
    if tokens is None or _is_unpredictable(shape, machine):
        return None
    passes = 8 if setup.recipe.grpo.gradient_checkpointing else 6
    operations = tokens.times(passes * shape.parameters)
    if not machine.gpus:
        return _divide(operations, _cpu_speed(setup, machine))
    return _divide(operations, UTILISATION.times(1e12 * min(_peak_tflops(gpu.name) for gpu in machine.gpus)))


def estimate_evaluation_s(setup: Setup, shape: ModelShape, machine: Machine, workflows: Range) -> Range | None:
    """Return the seconds to generate `workflows` workflows for an evaluation, or None if they are unknown.

    The vLLM server that Podium starts uses all GPUs. Transformers uses one GPU, and a server elsewhere is assumed to
    have one.
    """
    recipe = setup.recipe
    writer, gpus = recipe.evaluation.writer, len(machine.gpus)
    said = COMPLETION_SHARE.times(recipe.grpo.max_completion_tokens)
    tokens = said.times(workflows)
    if writer == VLLM and gpus:
        return _gpu_writing_s(tokens, shape, True, gpus)
    if gpus or recipe.evaluation.server is not None:
        return _gpu_writing_s(tokens, shape, recipe.evaluation.server is not None, 1)
    return None if _is_unpredictable(shape, machine) else _cpu_writing_s(tokens, shape, machine)


def _is_unpredictable(shape: ModelShape, machine: Machine) -> bool:
    """Return True if the speed is unknown, because there is no GPU and the model is outside the limits for CPUs."""
    return not machine.gpus and not MIN_FORECAST_PARAMETERS <= shape.parameters < MIN_GPU_PARAMETERS


def _cpu_speed(setup: Setup, machine: Machine) -> Range:
    """Return the operations per second of all cores in training."""
    half = getattr(setup.recipe.policy, "dtype", "float32") == "bfloat16"
    return CPU_GFLOPS[half].times(1e9 * machine.cores)


def _cpu_writing_s(tokens: Range, shape: ModelShape, machine: Machine) -> Range:
    """Return the seconds in which all cores generate this number of tokens."""
    return _divide(tokens, CPU_TOKENS_PER_SECOND.times(machine.cores * CPU_REFERENCE_PARAMETERS / shape.parameters))


def _gpu_writing_s(tokens: Range, shape: ModelShape, vllm: bool, gpus: int) -> Range:
    """Return the seconds in which the GPUs generate this number of tokens."""
    return _divide(tokens, GPU_TOKENS_PER_SECOND[vllm].times(gpus * GPU_REFERENCE_PARAMETERS / shape.parameters))


def _divide(work: Range, speed: Range) -> Range:
    """Return amounts divided by speeds, separately for the low end, the expected value and the high end."""
    return Range(*(amount / rate for amount, rate in zip(work, speed, strict=True)))


def _peak_tflops(name: str) -> float:
    """Return the peak TFLOPS of the GPU with this name."""
    return next((peak for known, peak in PEAK_TFLOPS.items() if known in name), PEAK_TFLOPS["H100"])
