"""The requirements of training the policy: libraries, GPUs, memory, disk and room for prompts."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import package_remedy
from ops.config import VLLM, PretrainedPolicy
from ops.core.errors import format_count, format_size
from ops.core.installation import install_extra_command, pip_install_command
from ops.planning.lengths import measure_prompts
from ops.planning.memory import PHASES
from ops.planning.recipe_plan import MissingRequirement, RecipePlan, Requirement

CONNECT_TIMEOUT_S = 3.0
"""The time-out of a connection to a server, in seconds."""
TIGHT_SHARE = 0.92
"""The share (0-1) of memory above which a plan warns, because allocators lose memory to fragmentation."""


def require_shape(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the policy's shape is known, because the memory estimate needs it."""
    grpo, policy = plan.recipe.grpo, plan.recipe.policy
    if plan.known_shape is None and isinstance(policy, PretrainedPolicy):
        why = "its shape is unknown, so its memory cannot be planned"
        remedy = f"Add it to config/models.yaml, or fetch its config.json (`hf download {policy.model} config.json`)"
        yield MissingRequirement(
            f"shape of {policy.model}", why, remedy, refuses=grpo.vllm or plan.deepspeed is not None
        )


def require_round_benchmarks(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the recursive stage's benchmarks are in the training mix."""
    stage, trained = plan.recipe.recursive, training_benchmarks(plan.recipe.benchmarks)
    if absent := sorted(set((stage and stage.benchmarks) or ()) - set(trained)):
        why = f"{', '.join(absent)} is not trained on, so the mix has no problem of it"
        yield MissingRequirement(
            "recursive.benchmarks", why, f"Name some of {', '.join(trained)}, or leave it out for all"
        )


def require_prompt_room(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that every prompt leaves room for a completion. A run would otherwise fail after it has paid workers."""
    context, grpo = plan.context_limit, plan.recipe.grpo
    if context is None:
        return
    room = context - grpo.max_completion_tokens
    measured = measure_prompts(plan.setup)
    long = [tokens for tokens in measured if tokens > room]
    longest = max(long, default=0) if measured else plan.lengths.longest_prompt
    if longest <= room:
        return
    field = "policy.max_tokens"
    if plan.recipe.policy.kind == "pretrained":
        stated = plan.vllm is not None and plan.vllm.max_length == context
        field = "grpo.vllm_max_model_length" if stated else "the model's context"
    count = f"{len(long):,} of {len(measured):,} prompts" if measured else "the longest prompts (assumed)"
    left = f"{field} of {context:,} leaves {room:,} before a completion"
    why = f"{count} do not fit: up to {longest:,.0f} tokens, and {left}"
    needed = math.ceil((longest + grpo.max_completion_tokens) / 128) * 128
    wider = "Take a model with a longer context" if "context" in field else f"Raise {field} to {needed}"
    remedy = f"{wider}, or show fewer examples (prompting.few_shots: none)"
    yield MissingRequirement("room for prompts", why, remedy, refuses=bool(measured) or plan.lengths.prompt > room)


def require_round_room(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that a recursive round's prompt, with the previous completion and response, fits into the context.

    A round whose prompt does not fit is replaced by a first round.
    """
    work, sizes, context = plan.workload, plan.lengths, plan.context_limit
    if plan.recipe.recursive is None or work is None or context is None:
        return
    room = context - work.completion_tokens
    if sizes.longest_round_prompt <= room:
        return
    usual = sizes.round_prompt > room
    long = f"usually has {sizes.round_prompt:,.0f}" if usual else f"has up to {sizes.longest_round_prompt:,}"
    why = f"the prompt of such a round {long} tokens, and {room:,} of {context:,} are left before the completion"
    stated = plan.vllm is not None and plan.vllm.max_length == context
    wider = "State a longer grpo.vllm_max_model_length" if stated else "Take a model with a longer context"
    remedy = f"{wider}, or show less of a response (recursive.limits.answer_tokens)"
    yield MissingRequirement("room for recursive rounds", why, remedy, refuses=usual)


def require_packages(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require the libraries that the recipe uses."""
    grpo, here = plan.recipe.grpo, plan.machine.packages
    if grpo.vllm:
        yield from require_vllm(plan)
    if grpo.deepspeed is not None and "deepspeed" not in here:
        yield MissingRequirement(
            "deepspeed", f"grpo.deepspeed names {grpo.deepspeed}", f"Run {pip_install_command('deepspeed')}"
        )


def require_model_files(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require the package that contains the weights, and the package that reads GGUF files."""
    policy = plan.recipe.policy
    if not isinstance(policy, PretrainedPolicy):
        return
    if policy.package is not None and find_spec(policy.package) is None:
        yield MissingRequirement(policy.package, "policy.model names its weights", package_remedy(policy.package))
    if policy.gguf_file is not None and find_spec("gguf") is None:
        yield MissingRequirement(
            "gguf", f"it is needed to read {policy.gguf_file}", f"Run {install_extra_command('smollm2')}"
        )


def require_cold_start_memory(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that a pretrained model's cold start fits into one GPU or into this machine."""
    needs, gpu = plan.cold_start_gib, plan.machine.gpu_gib
    has, whose = (gpu, "a GPU's") if gpu is not None else (plan.machine.memory_gib, "the machine's")
    if needs is not None and needs > has:
        why = f"{needs:.0f} GiB of {whose} {has:.0f} are needed"
        yield MissingRequirement(
            "memory for the cold start", why, "Take a smaller cold_start.micro_batch, or cold_start.lora"
        )


def require_vllm_server(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the recipe's vLLM server is reachable."""
    url = plan.recipe.grpo.vllm_server_url
    if not plan.recipe.grpo.vllm or url is None:
        return
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        why = f"grpo.vllm_mode is server, and no server answers there ({error.strerror or error})"
        yield MissingRequirement(
            url, why, f"Start it first: config/recipes/{plan.recipe.name}.yaml or docs/training.md says how"
        )


def require_gpus(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require a GPU per rank for a large policy, and a GPU for vLLM, because vLLM's CPU build cannot update weights."""
    grpo, here = plan.recipe.grpo, len(plan.machine.gpus)
    if grpo.vllm and not here and not plan.needs_gpu:
        why = "grpo.vllm hands a vLLM the policy's new weights at every step, which its build for CPUs cannot take"
        yield MissingRequirement(
            "a GPU", why, "Set grpo.vllm: false, and transformers writes; or run it where a GPU is"
        )
    if not plan.needs_gpu or here >= grpo.processes:
        return
    assert plan.known_shape is not None and plan.memory is not None
    by = format_count(grpo.processes, "process")
    size = f"{plan.known_shape.shape.parameters / 1e9:.1f} billion parameters are trained by {by}"
    there = "there is none" if not here else "there is one" if here == 1 else f"there are {here}"
    wanted = "a GPU" if grpo.processes == 1 else f"{grpo.processes} GPUs"
    why = f"{size} that hold {plan.memory.gpu_peak_gib:.0f} GiB each, and {there}"
    command = f"`podium plan {plan.recipe.name} --gpus {grpo.processes}x80`"
    yield MissingRequirement(wanted, why, f"Run it where they are; {command} plans for such a machine")


def require_gpu_memory(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the peak of a training step fits into a GPU."""
    if plan.memory is None or plan.machine.gpu_gib is None:
        return
    has, needs = plan.machine.gpu_gib, plan.memory.gpu_peak_gib
    when = max(PHASES, key=plan.memory.phase_gib)
    why = f"{PHASES[when]}, {needs:.1f} GiB of a GPU's {has:.1f} are needed"
    if needs > has:
        fitting = [name for name, other in plan.alternative_memory.items() if other.gpu_peak_gib <= has]
        others = f"These would fit: {', '.join(fitting)}" if fitting else "No other engine here would fit either"
        yield MissingRequirement(
            "GPU memory", why, f"{others}; or a smaller grpo.micro_batch or grpo.vllm_memory, or larger GPUs"
        )
    elif needs > TIGHT_SHARE * has:
        remedy = "Take a smaller grpo.micro_batch or grpo.vllm_memory"
        yield MissingRequirement("GPU memory", f"{why}: it is tight", remedy, refuses=False)


def require_vllm_cache(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that vLLM's cache can hold a sequence of maximum length. vLLM would otherwise not start."""
    made, engine = plan.memory, plan.vllm
    if made is None or made.kv_tokens is None or engine is None or made.kv_tokens >= made.kv_length:
        return
    stated = "grpo.vllm_max_model_length" if engine.max_length else "the model's own length, since none is stated"
    yield MissingRequirement(
        "vLLM's cache",
        f"it holds {made.kv_tokens:,} tokens, and one sequence can have {made.kv_length:,} ({stated})",
        "State a shorter grpo.vllm_max_model_length, or a larger grpo.vllm_memory",
    )


def require_host_memory(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that host memory holds one copy of the model per rank, offloaded states, and graded hidden tests."""
    if plan.memory is None:
        return
    has, needs = plan.machine.memory_gib, plan.memory.host_peak_gib + plan.grading_gib
    if needs > has:
        why = f"{format_size(needs)} of the machine's {format_size(has)} are needed"
        offloaded = plan.workload is not None and plan.workload.engine.offload
        less = "a DeepSpeed file without offload, where the GPUs have room" if offloaded else "fewer grpo.processes"
        yield MissingRequirement("host memory", why, f"Take a machine with more, or {less}")


def require_disk(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require disk space for the policy, hidden tests and checkpoints, including the one that is being written."""
    has, needs = plan.machine.disk_gib, plan.disk_gib
    if needs > has:
        parts = f"{plan.max_checkpoints} checkpoints of {format_size(plan.checkpoint_gib)}"
        tests = (
            f", the weights and hidden tests of {format_size(plan.hidden_tests_gib)}"
            if plan.hidden_tests_gib
            else " and the weights"
        )
        why = (
            f"{parts}{tests} take {format_size(needs)}, and {format_size(has)} are free in {plan.setup.workspace.state}"
        )
        yield MissingRequirement("disk", why, "Free some, or let .podium be a link to a larger disk")


def require_vllm(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require vLLM if the recipe uses it. All uses are reported as one missing requirement."""
    asking = {"grpo.vllm": plan.recipe.grpo.vllm, "evaluation.writer": plan.recipe.evaluation.writer == VLLM}
    if "vllm" not in plan.machine.packages:
        fields = [field for field, asks in asking.items() if asks]
        why = f"{' and '.join(fields)} {'ask' if len(fields) > 1 else 'asks'} for it"
        yield MissingRequirement("vllm", why, f"Run where the GPUs are: {install_extra_command('gpu')}")


REQUIREMENTS: tuple[Requirement, ...] = (
    require_shape, require_round_benchmarks, require_prompt_room, require_round_room, require_packages,
    require_model_files, require_cold_start_memory, require_vllm_server, require_gpus, require_gpu_memory,
    require_vllm_cache, require_host_memory, require_disk,
)  # fmt: skip
"""The checks of this module, in the order in which their results are reported."""
