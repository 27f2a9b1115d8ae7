"""Hours of a policy's own work, writing and updating: as its last run took, or by arithmetic operations.

The arithmetic's speeds are assumptions: nothing was measured on a GPU.
"""

from __future__ import annotations

from ops.config import TRANSFORMERS, Setup
from ops.planning.cost import Span, refilled
from ops.planning.lengths import Lengths
from ops.planning.machine import Machine
from ops.planning.shape import ModelShape

PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "GH200": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}
"""Dense bfloat16 operations, as their maker states them; a GPU that is not named here counts as an H100."""
UTILISATION = Span(0.40, 0.25, 0.10)
"""Share of the peak that training reaches."""
WRITTEN = {True: Span(6000.0, 2500.0, 800.0), False: Span(800.0, 300.0, 100.0)}
"""Tokens a second that a GPU writes with a model of 7.6 billion parameters: by vLLM, by transformers."""
OF_PARAMETERS = 7.6e9
COMPLETION = Span(0.15, 0.35, 1.0)
"""Share of `max_completion_tokens` that a completion takes."""


def training_hours(setup: Setup, shape: ModelShape, known: Lengths, machine: Machine) -> Span | None:
    """Of all steps: what the last run of such a policy took, or what the arithmetic says; None where neither can."""
    from ops.training.forecast import last_run

    grpo = setup.recipe.grpo
    if (last := last_run(setup)) is not None:
        return Span.of(last.policy_s / 3600)
    if not machine.gpus:
        return None
    rollouts, gpus = grpo.steps * grpo.rollouts_per_step, min(grpo.processes, len(machine.gpus))
    said = COMPLETION.times(grpo.max_completion_tokens)
    passes = 8 if grpo.gradient_checkpointing else 6
    operations = said.plus(Span.of(known.prompt)).times(rollouts * passes * shape.parameters)
    speed = UTILISATION.times(gpus * 1e12 * min(_peak(gpu.name) for gpu in machine.gpus))
    return _over(operations, speed).plus(_writing(said.times(refilled(grpo)).times(rollouts), shape, grpo.vllm, gpus))


def evaluation_hours(setup: Setup, shape: ModelShape, machine: Machine, questions: int) -> Span | None:
    """Of writing a workflow for each test question, on one GPU, here or of a server; None without one."""
    recipe = setup.recipe
    if not machine.gpus and recipe.evaluation.server is None:
        return None
    said = COMPLETION.times(recipe.grpo.max_completion_tokens)
    vllm = recipe.evaluation.writer != TRANSFORMERS
    return _writing(said.times(questions * recipe.evaluation.repeats), shape, vllm, 1)


def _writing(tokens: Span, shape: ModelShape, vllm: bool, gpus: int) -> Span:
    return _over(tokens, WRITTEN[vllm].times(gpus * OF_PARAMETERS / shape.parameters))


def _over(work: Span, speed: Span) -> Span:
    return Span(*(amount / rate / 3600 for amount, rate in zip(work, speed, strict=True)))


def _peak(name: str) -> float:
    return next((peak for known, peak in PEAK_TFLOPS.items() if known in name), PEAK_TFLOPS["H100"])
