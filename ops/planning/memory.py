"""GiB of a training run by part: each formula is a line, so that a person can check it.

Checked against what autograd keeps and what PyTorch allocates for small models on CPUs (`tests/unit/planning`), and
against DeepSpeed's own estimates. No figure was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ops.planning.shape import ModelShape

Phase = Literal["writing", "updating", "stepping"]
"""Rollouts are written; a forward and backward pass; the optimizer's step."""
PHASES: dict[Phase, str] = {
    "writing": "while rollouts are written",
    "updating": "forward and backward",
    "stepping": "optimizer's step",
}
Precision = Literal["bfloat16", "float32", "mixed"]
"""Of weights and activations. "mixed": float32 weights under autocast, a bfloat16 policy without DeepSpeed."""
GIB = 1 << 30
CONTEXT, CONTEXT_GIB = "CUDA context", 1.0
"""CUDA context, NCCL and the libraries' code, per GPU: an assumption."""
VLLM_WORK_GIB = 1.5
"""vLLM's activations for the 4,096 tokens that TRL lets it batch, its graphs and its sampler: an assumption."""
PROCESS_GIB = 2.0
"""Host memory of one rank: Python, libraries, the data. An assumption."""
HEAD_TOKENS, HEAD_COLUMNS = 4096, 32_768
"""The tile of logits that TRL 1.16 computes at once (`trl.kernels.chunked_logprob`)."""
PADDED = 2
"""What a cold start keeps of a padded batch, in what the formula of GRPO's step gives: SmolLM2-135M on a CPU, 16
examples of 188 tokens, kept 6.0 GiB, and the formula has 2.9. On a GPU nothing was measured."""


class Engine(NamedTuple):
    """Who holds weights, gradients and optimizer states: DeepSpeed with its own defaults, or one process."""

    zero: int = 0
    """2 or 3; 0: no DeepSpeed."""
    offload: bool = False
    """Optimizer states, master weights and gradients in host memory."""
    ranks: int = 1
    reduce_bucket: int = 500_000_000
    """Elements; so are the next two."""
    live_parameters: int = 1_000_000_000
    sub_group: int = 1_000_000_000

    @classmethod
    def of(cls, deepspeed: Mapping[str, Any] | None, ranks: int, hidden: int) -> Engine:
        """What a DeepSpeed file says, "auto" being what transformers makes of it."""
        if deepspeed is None:
            return cls(ranks=ranks)
        zero = deepspeed.get("zero_optimization", {})
        offload = (zero.get("offload_optimizer") or {}).get("device", "none") != "none"
        buckets = {
            "reduce_bucket": (zero.get("reduce_bucket_size"), hidden * hidden),
            "live_parameters": (zero.get("stage3_max_live_parameters"), cls().live_parameters),
            "sub_group": (zero.get("sub_group_size"), cls().sub_group),
        }
        stated = {name: auto if value == "auto" else int(value) for name, (value, auto) in buckets.items() if value}
        return cls(zero=int(zero.get("stage", 0)), offload=offload, ranks=ranks, **stated)

    def __str__(self) -> str:
        return f"ZeRO-{self.zero}{' + offload' * self.offload}" if self.zero else "no DeepSpeed"


class Vllm(NamedTuple):
    """vLLM in the trainer's own processes, one engine a GPU or spread over several; or a server on other GPUs."""

    share: float
    """Of each GPU's memory (0-1); a server takes nothing of these."""
    sleep: bool = False
    """Whether its share is free while the policy is updated."""
    max_length: int = 0
    """Tokens of prompt and completion; 0: what the model was made for."""
    spread: int = 1
    """GPUs of one engine: each holds its part of weights and cache."""
    server: bool = False


@dataclass(frozen=True)
class Workload:
    """What one GPU has to hold."""

    shape: ModelShape
    precision: Precision
    engine: Engine
    micro_batch: int
    """Rollouts in one forward and backward pass."""
    at_once: int
    """Rollouts that one rank writes in a step."""
    prompt: int
    """Tokens of the longest prompt."""
    completion: int
    """Tokens of the longest completion."""
    checkpointing: bool = False
    vllm: Vllm | None = None

    @property
    def element(self) -> int:
        """Bytes of a weight, and of most activations."""
        return 2 if self.precision == "bfloat16" else 4

    @property
    def sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt + self.completion


class MemoryPart(NamedTuple):
    """GiB of one thing, and when it is there; `host`: in the machine's memory, not in a GPU's."""

    name: str
    gib: float
    during: Sequence[Phase] = tuple(PHASES)
    host: bool = False


@dataclass(frozen=True)
class Memory:
    """The parts of one GPU (or, without GPUs, of the machine), and what vLLM's cache holds."""

    parts: tuple[MemoryPart, ...]
    kv_tokens: int | None = None
    """None: no vLLM."""
    kv_length: int = 0
    """Longest sequence that vLLM is to hold (tokens)."""

    def during(self, phase: Phase, *, host: bool = False) -> float:
        """GiB at the height of a phase."""
        return sum(part.gib for part in self.parts if phase in part.during and part.host == host)

    def of(self, name: str) -> float:
        """GiB of the part of that name on a GPU; 0 where there is none."""
        return sum(part.gib for part in self.parts if part.name == name and not part.host)

    @property
    def peak(self) -> float:
        """GiB of a GPU, at most."""
        return max(self.during(phase) for phase in PHASES)

    @property
    def host(self) -> float:
        """GiB of the machine's memory, of all ranks, at most."""
        return max(self.during(phase, host=True) for phase in PHASES)


# ── the formulas, in bytes ───────────────────────────────────────────────────────────


def layer_activations(work: Workload) -> int:
    """What autograd keeps of one block for one micro-batch, without checkpointing.

    Per token: two norms (their input and their normalised input, in float32 where weights are bfloat16 too, and what
    they hand on), queries, keys, values (both repeated to all heads) and the attention's output, and four times the
    MLP's width. Per sequence: the mask that attention adds.
    """
    shape, tokens = work.shape, work.micro_batch * work.sequence
    wide = 2 if work.precision == "mixed" else work.element
    # Under autocast each of the five projections keeps a bfloat16 copy of its own of what it reads.
    hidden = {"bfloat16": 4 * 2 + 2 * 4, "float32": 6 * 4, "mixed": 4 * 4 + 5 * 2}[work.precision]
    a_token = hidden * shape.hidden + wide * (4 * shape.width + 4 * shape.intermediate) + 4 * shape.heads + 2 * 4
    return tokens * a_token + work.micro_batch * work.sequence**2 * wide


def kept_activations(work: Workload) -> int:
    """What autograd keeps of a whole forward pass: every block, or with checkpointing what each block reads."""
    shape, tokens = work.shape, work.micro_batch * work.sequence
    block = tokens * work.element * shape.hidden if work.checkpointing else layer_activations(work)
    last_norm = tokens * ((4 + work.element) * shape.hidden + 4)
    scored = work.micro_batch * work.completion * (work.element * shape.hidden + 2 * 4 + 8)
    casts = 0
    if work.precision == "mixed" and not work.checkpointing:
        casts = 2 * shape.layers * shape.layer  # autocast's bfloat16 copies of the weights
    return shape.layers * block + last_norm + scored + casts


def height_of_backward(work: Workload) -> int:
    """What a backward pass adds at its height: at the language model's head, or in a block (read again if it was
    checkpointed, with gradients as wide as the MLP)."""
    shape = work.shape
    scored = work.micro_batch * work.completion
    tile = min(scored, HEAD_TOKENS) * HEAD_COLUMNS * (2 if work.precision == "mixed" else work.element)
    head = tile + scored * 4 * shape.hidden + shape.embedding * (4 + work.element)
    wide = 2 if work.precision == "mixed" else work.element
    gradients = 2 * work.micro_batch * work.sequence * shape.intermediate * wide
    block = gradients + (layer_activations(work) if work.checkpointing else 0)
    return max(head, block)


def kv_token(shape: ModelShape, element: int = 2) -> int:
    """Bytes of cache of one token: keys and values of every layer."""
    return 2 * shape.layers * shape.kv_width * element


def evaluation_bytes(work: Workload, batch: int) -> int:
    """Of writing `batch` workflows side by side with transformers: the weights, the cache of all, and at its height
    the MLP of all their prompts at once."""
    shape, element = work.shape, 2 if work.precision == "mixed" else work.element
    cache = batch * work.sequence * kv_token(shape, element)
    reading = 3 * batch * work.prompt * shape.intermediate * element
    return element * shape.parameters + cache + reading


def cold_start_bytes(work: Workload, low_rank: bool) -> int:
    """Of a cold start's step in one process: weights, gradients and Adam's moments in float32, or with low-rank updates
    the weights alone, as they are (the updates' own states are left out); and what autograd keeps: of padded batches,
    whose attention is not GRPO's, so much more as was measured."""
    total = work.shape.parameters
    states = (4 if work.precision == "float32" else 2) * total if low_rank else 16 * total
    return states + PADDED * kept_activations(work) + height_of_backward(work)


def checkpoint_bytes(shape: ModelShape, engine: Engine, element: int) -> int:
    """A checkpoint on disk: weights, what the optimizer keeps, and under DeepSpeed the weights once more, gathered."""
    states = 4 + 8 if engine.zero else 8
    return shape.parameters * (states + (2 * element if engine.zero else 4))


# ── by part ──────────────────────────────────────────────────────────────────────────


def memory(work: Workload, gpu_gib: float | None) -> Memory:
    """The parts of one GPU of `gpu_gib`; None: everything in the machine's memory, of all ranks together."""
    parts = [*_states(work), *_activations(work)]
    shape, vllm = work.shape, work.vllm
    if vllm is None or gpu_gib is None:
        made = Memory((*parts, *_writing(work)))
        return made if gpu_gib is not None else _on_the_machine(made, work.engine.ranks)
    # vLLM is handed the weights one by one: under ZeRO-3 the largest is gathered then.
    handed = shape.embedding if work.engine.zero == 3 else 0
    parts.append(MemoryPart("weights on their way to vLLM", 2 * handed / GIB, ("writing",)))
    if vllm.server:
        return Memory(tuple(parts))
    weights = 2 * shape.parameters / vllm.spread / GIB
    # What does not fit into its share does not become smaller by that.
    cache = max(0.0, vllm.share * gpu_gib - weights - VLLM_WORK_GIB)
    during: Sequence[Phase] = ("writing",) if vllm.sleep else tuple(PHASES)
    engine = (
        MemoryPart("vLLM: weights", weights, during),
        MemoryPart("vLLM: work", VLLM_WORK_GIB, during),
        MemoryPart("vLLM: cache", cache, during),
    )
    held = int(vllm.spread * cache * GIB / kv_token(shape))
    return Memory((*parts, *engine), held, vllm.max_length or shape.context)


def _states(work: Workload) -> list[MemoryPart]:
    shape, engine, element = work.shape, work.engine, work.element
    total, held = shape.parameters, shape.parameters / engine.ranks
    if engine.zero == 0:
        return [
            MemoryPart("weights", 4 * total / GIB),
            MemoryPart("gradients", 4 * total / GIB),
            MemoryPart("Adam's moments (float32)", 8 * total / GIB),
            MemoryPart(CONTEXT, CONTEXT_GIB),
            MemoryPart("processes, model", PROCESS_GIB + 4 * total / GIB, host=True),
        ]
    weights = element * (held if engine.zero == 3 else total)
    sharded = engine.zero == 3
    gathered = element * min(engine.live_parameters, total) if sharded else 0
    # ZeRO-2 makes a pair of buckets for each backward pass, ZeRO-3 one for good.
    buckets = element * engine.reduce_bucket * (1 if sharded else 2)
    parts = [
        MemoryPart("weights", weights / GIB),
        MemoryPart("gradients", 0.0 if engine.offload else element * held / GIB),
        MemoryPart("master weights (float32)", 0.0 if engine.offload else 4 * held / GIB),
        MemoryPart("Adam's moments (float32)", 0.0 if engine.offload else 8 * held / GIB),
        MemoryPart("gathered weights", gathered / GIB, ("updating",)),
        MemoryPart("gradient buckets", buckets / GIB, tuple(PHASES) if sharded else ("updating",)),
        MemoryPart(CONTEXT, CONTEXT_GIB),
    ]
    # The gradient in float32, and Adam's temporary of that size, of one sub-group or (ZeRO-2) of all.
    stepped = min(engine.sub_group, held) if engine.zero == 3 else held
    if not engine.offload:
        parts.append(MemoryPart("step: float32 gradient, temporary", 2 * 4 * stepped / GIB, ("stepping",)))
    # Every rank reads the whole model before DeepSpeed takes it apart.
    offloaded = (element + 4 + 4 + 8) * total if engine.offload else 0
    host = max(engine.ranks * element * total, offloaded) / GIB
    return [*parts, MemoryPart("processes, model", host + engine.ranks * PROCESS_GIB, host=True)]


def _activations(work: Workload) -> list[MemoryPart]:
    kept = "activations, checkpointed" if work.checkpointing else "activations"
    return [
        MemoryPart(kept, kept_activations(work) / GIB, ("updating",)),
        MemoryPart("peak of the backward pass", height_of_backward(work) / GIB, ("updating",)),
    ]


def _writing(work: Workload) -> list[MemoryPart]:
    """Generation by transformers: a cache of all rollouts of a step, and under ZeRO-3 the whole model."""
    parts = [MemoryPart("cache of generation", work.at_once * work.sequence * kv_token(work.shape, work.element) / GIB,
                  ("writing",))]  # fmt: skip
    if work.engine.zero == 3 and work.engine.ranks > 1:
        parts.append(MemoryPart("whole model, gathered", work.element * work.shape.parameters / GIB, ("writing",)))
    return parts


def _on_the_machine(made: Memory, ranks: int) -> Memory:
    """The same where there is no GPU: every rank's parts in the machine's memory."""
    own = [part._replace(gib=part.gib * ranks, host=True) for part in made.parts if not part.host]
    processes = MemoryPart("processes", ranks * PROCESS_GIB, host=True)
    return Memory((*(part for part in own if part.name != CONTEXT), processes), made.kv_tokens, made.kv_length)


def layouts(work: Workload, gpus: int) -> dict[str, Workload]:
    """The same work under other engines, on `gpus` GPUs: what a person may choose instead."""
    ranks = max(1, gpus)
    zero2, zero3 = (Engine(zero=zero, ranks=ranks) for zero in (2, 3))
    offload = Engine(zero=3, offload=True, ranks=ranks)
    spread = replace(work, at_once=work.at_once * work.engine.ranks // ranks, precision="bfloat16")
    others = {str(engine): replace(spread, engine=engine) for engine in (zero2, zero3, offload)}
    if work.vllm is not None and not work.vllm.server:
        asleep = replace(spread, engine=offload, vllm=work.vllm._replace(sleep=True))
        others["offload, sleep"] = asleep
    return others
