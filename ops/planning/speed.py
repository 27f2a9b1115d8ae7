"""Seconds of a policy's own work, learning, writing and updating: as its last run took, or by arithmetic operations.

The arithmetic's speeds are assumptions: nothing was measured on a GPU, and on CPUs one model on one core.
"""

from __future__ import annotations

from ops.config import TRANSFORMERS, Grpo, Setup
from ops.planning.estimate import Range
from ops.planning.forecast import last_run
from ops.planning.lengths import USUAL_COMPLETION, Lengths
from ops.planning.machine import Machine
from ops.planning.shape import ModelShape
from ops.planning.stages import refilled

PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "GH200": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}
"""Dense bfloat16 operations, as their maker states them; a GPU that is not named here counts as an H100."""
UTILISATION = Range(0.40, 0.25, 0.10)
"""Share of the peak that training reaches."""
WRITTEN = {True: Range(6000.0, 2500.0, 800.0), False: Range(800.0, 300.0, 100.0)}
"""Tokens a second that a GPU writes with a model of 7.6 billion parameters: by vLLM, by transformers."""
OF_PARAMETERS = 7.6e9
CPU_GFLOPS = {True: Range(200.0, 150.0, 40.0), False: Range(80.0, 60.0, 30.0)}
"""Operations (10⁹ a second) of a core in training, by whether it computes in bfloat16: low as measured with a model of
0.1 billion parameters on one core with AMX, high as assumed of one without."""
CPU_WRITTEN = Range(400.0, 250.0, 60.0)
"""Tokens a second that such a core writes with that model, in bfloat16, dozens of workflows side by side."""
OF_SMALL_PARAMETERS = 1.35e8
SMALL, LARGE = 50_000_000, 500_000_000
"""Parameters below which a step on CPUs takes its time elsewhere than in multiplying, so that nothing is foretold of
it, and those from which a policy is not trained on CPUs."""
COMPLETION = Range(0.15, USUAL_COMPLETION, 1.0)
"""Share of `max_completion_tokens` that a completion takes."""


def training_s(setup: Setup, shape: ModelShape, known: Lengths, machine: Machine) -> Range | None:
    """Of all steps: what the last run of such a policy took, or what the arithmetic says; None where neither can."""
    grpo = setup.recipe.grpo
    if (last := last_run(setup)) is not None:
        return Range.of(last.policy_s)
    # A group is one sequence on CPUs, whose prompt is read once (`ops.training.step.packing`).
    shared = 1 if machine.gpus else grpo.rollouts_per_question
    return _by_arithmetic(setup, grpo, shape, machine, known.prompt / shared)


def rounds_s(setup: Setup, shape: ModelShape, known: Lengths, machine: Machine) -> Range | None:
    """Of the stage in rounds, by the arithmetic: half of its rollouts have longer prompts, each its own. None where it
    can say nothing, or there is no such stage."""
    recipe = setup.recipe
    if recipe.recursive is None:
        return None
    grpo = recipe.recursive.grpo(recipe.grpo)
    first = known.prompt / (2 if machine.gpus else grpo.rollouts_per_question)
    return _by_arithmetic(setup, grpo, shape, machine, first + known.round_prompt / 2)


def _by_arithmetic(setup: Setup, grpo: Grpo, shape: ModelShape, machine: Machine, prompt: float) -> Range | None:
    """`prompt`: tokens that an update reads of prompts, for each rollout."""
    if _unforetold(shape, machine):
        return None
    rollouts, said = grpo.steps * grpo.rollouts_per_step, COMPLETION.times(grpo.max_completion_tokens)
    read, written = said.plus(Range.of(prompt)).times(rollouts), said.times(refilled(grpo)).times(rollouts)
    if not machine.gpus:
        updates = _over(read.times(6 * shape.parameters), _cpu_speed(setup, machine))
        return updates.plus(_cpu_writing(written, shape, machine))
    gpus = min(grpo.processes, len(machine.gpus))
    operations = read.times((8 if grpo.gradient_checkpointing else 6) * shape.parameters)
    speed = UTILISATION.times(gpus * 1e12 * min(_peak(gpu.name) for gpu in machine.gpus))
    return _over(operations, speed).plus(_writing(written, shape, grpo.vllm, gpus))


def cold_start_tokens(setup: Setup, known: Lengths) -> Range | None:
    """Of all examples, prompts included, each of which is read once; None without a cold start."""
    lesson = setup.recipe.cold_start
    if lesson is None:
        return None
    said = COMPLETION.times(setup.recipe.grpo.max_completion_tokens)
    again = lesson.recursive_share
    prompt = (1 - again) * known.prompt + again * known.round_prompt
    return said.plus(Range.of(prompt)).times(lesson.steps * lesson.batch)


def cold_start_s(setup: Setup, shape: ModelShape, known: Lengths, machine: Machine) -> Range | None:
    """Of learning the examples, on one GPU or on this machine's CPUs; None where nothing can be foretold."""
    tokens = cold_start_tokens(setup, known)
    if tokens is None or _unforetold(shape, machine):
        return None
    passes = 8 if setup.recipe.grpo.gradient_checkpointing else 6
    operations = tokens.times(passes * shape.parameters)
    if not machine.gpus:
        return _over(operations, _cpu_speed(setup, machine))
    return _over(operations, UTILISATION.times(1e12 * min(_peak(gpu.name) for gpu in machine.gpus)))


def evaluation_s(setup: Setup, shape: ModelShape, machine: Machine, workflows: Range) -> Range | None:
    """Seconds to write these workflows in each repeat, on one GPU, here or of a server, or on CPUs; None: unknown."""
    recipe = setup.recipe
    said = COMPLETION.times(recipe.grpo.max_completion_tokens)
    tokens = said.times(workflows).times(recipe.evaluation.repeats)
    if machine.gpus or recipe.evaluation.server is not None:
        return _writing(tokens, shape, recipe.evaluation.writer != TRANSFORMERS, 1)
    return None if _unforetold(shape, machine) else _cpu_writing(tokens, shape, machine)


def _unforetold(shape: ModelShape, machine: Machine) -> bool:
    return not machine.gpus and not SMALL <= shape.parameters < LARGE


def _cpu_speed(setup: Setup, machine: Machine) -> Range:
    half = getattr(setup.recipe.policy, "dtype", "float32") == "bfloat16"
    return CPU_GFLOPS[half].times(1e9 * machine.cores)


def _cpu_writing(tokens: Range, shape: ModelShape, machine: Machine) -> Range:
    return _over(tokens, CPU_WRITTEN.times(machine.cores * OF_SMALL_PARAMETERS / shape.parameters))


def _writing(tokens: Range, shape: ModelShape, vllm: bool, gpus: int) -> Range:
    return _over(tokens, WRITTEN[vllm].times(gpus * OF_PARAMETERS / shape.parameters))


def _over(work: Range, speed: Range) -> Range:
    return Range(*(amount / rate for amount, rate in zip(work, speed, strict=True)))


def _peak(name: str) -> float:
    return next((peak for known, peak in PEAK_TFLOPS.items() if known in name), PEAK_TFLOPS["H100"])
