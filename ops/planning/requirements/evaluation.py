"""The requirements of scoring the Conductor."""

from __future__ import annotations

from collections.abc import Iterator

from ops.conductor.vllm_conductor import WriterUnreachable, build_serve_command, list_served_models
from ops.config import TRANSFORMERS, VLLM
from ops.planning.recipe_plan import MissingRequirement, RecipePlan, Requirement
from ops.planning.requirements.training import require_vllm


def require_writer(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require vLLM's library, or a server of the policy, if the evaluation generates workflows with vLLM."""
    evaluation, name = plan.recipe.evaluation, plan.recipe.name
    if evaluation.writer == VLLM:
        yield from require_vllm(plan)
    if evaluation.server is None:
        return
    serve = build_serve_command(".podium/runs/KEY/policy", "KEY")
    remedy = f"Train first (`podium train {name}`), then serve the policy: `{serve}`"
    try:
        there = {model.name for model in list_served_models(evaluation.server)}
    except WriterUnreachable:
        yield MissingRequirement(
            evaluation.server, "evaluation.writer names this server, and it does not answer", remedy
        )
        return
    mine = [each for each in there if each.startswith(f"{name}-")]
    policies = 1 + (plan.recipe.cold_start is not None)
    if len(mine) < policies:
        wanted = "the trained policy" if policies == 1 else "the trained policy and its cold start"
        serves = ", ".join(sorted(there)) or "nothing"
        why = f"evaluation.writer names it for {wanted} of {name}, and it serves {serves}"
        yield MissingRequirement(evaluation.server, why, remedy)


def require_evaluation_memory(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that one GPU, or this machine if it has none, can hold the model and an evaluation's batch."""
    evaluation, needs, gpu = plan.recipe.evaluation, plan.evaluation_gib, plan.machine.gpu_gib
    has, whose = (gpu, "a GPU's") if gpu is not None else (plan.machine.memory_gib, "the machine's")
    if needs > has:
        batch = evaluation.writer == TRANSFORMERS
        what = f"a batch of {evaluation.batch} workflows takes" if batch else "vLLM and its longest sequence take"
        remedy = "Take a smaller evaluation.batch" if batch else "Take a larger GPU, or a server (evaluation.writer)"
        yield MissingRequirement("memory for evaluation", f"{what} {needs:.0f} GiB of {whose} {has:.0f}", remedy)


REQUIREMENTS: tuple[Requirement, ...] = (require_writer, require_evaluation_memory)
"""The checks of this module, in the order in which their results are reported."""
