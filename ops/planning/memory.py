"""Estimate a training run's memory (GiB) by part. Each formula is one line, so that it can be checked.

The formulas were checked against what autograd keeps and what PyTorch allocates for small models on CPUs
(`tests/unit/planning`), against DeepSpeed's own estimates, and against the peaks of two models on one GPU (the same
tests). PyTorch reserves more than it allocates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ops.planning.shape import ModelShape

Phase = Literal["writing", "updating", "stepping"]
"""Generation of rollouts; a forward and backward pass; the optimizer's step."""
PHASES: dict[Phase, str] = {
    "writing": "while rollouts are written",
    "updating": "forward and backward",
    "stepping": "optimizer's step",
}
Precision = Literal["bfloat16", "float32", "mixed"]
"""Precision of weights and activations. "mixed": float32 weights under autocast (bfloat16 without DeepSpeed)."""
GIB = 1 << 30
CUDA_CONTEXT, CUDA_CONTEXT_GIB = "CUDA context", 1.8
"""GiB per GPU for the CUDA context, NCCL and the libraries' code, as measured with one rank under DeepSpeed."""
VLLM_WORKSPACE_GIB = 1.5
"""Assumed GiB of vLLM's activations for TRL's batches of 4,096 tokens, its CUDA graphs and its sampler."""
PROCESS_GIB = 2.0
"""Assumed host memory of one rank: Python, libraries, data."""
HIDDEN_TESTS_BYTES = 12e9
"""Assumed size of LiveCodeBench's hidden tests: decoded they have 9 to 12 GB. Not tried against the live hub."""
HIDDEN_TESTS_RATIO = 1.5
"""Characters per stored byte of hidden tests that are random small letters; numbers compress more
(`tests/unit/grading/test_hidden_files.py`)."""
TEST_BATCH_CHARACTERS = 20_000_000
"""Assumed characters of the hidden tests in one sandbox: six large ones. Not tried against the live hub."""
TEST_BATCH_BYTES_PER_CHARACTER = 4
"""Bytes of memory per character of the hidden tests in one sandbox, at most
(`tests/unit/grading/test_hidden_files.py`)."""
HEAD_TOKENS, HEAD_COLUMNS = 4096, 32_768
"""The tile of logits that TRL 1.16 computes at once (`trl.kernels.chunked_logprob`)."""
PADDING_FACTOR = 2
"""Activations that a cold start keeps of a padded batch, as a multiple of the formula for a GRPO step.

Measured with SmolLM2-135M on a CPU: 16 examples of 188 tokens kept 6.0 GiB; the formula gives 2.9. Nothing was measured
on a GPU.
"""


class TrainingEngine(NamedTuple):
    """Distribution of weights, gradients and optimizer states: DeepSpeed with its defaults, or one process."""

    zero: int = 0
    """ZeRO stage, 2 or 3; 0: no DeepSpeed."""
    offload: bool = False
    """Whether optimizer states, master weights and gradients are in host memory."""
    ranks: int = 1
    reduce_bucket: int = 500_000_000
    """Elements per bucket; the next two fields are in elements too."""
    live_parameters: int = 1_000_000_000
    sub_group: int = 1_000_000_000

    @classmethod
    def from_deepspeed(cls, deepspeed: Mapping[str, Any] | None, ranks: int, hidden: int) -> TrainingEngine:
        """Read a DeepSpeed configuration, with "auto" resolved as transformers resolves it."""
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


class VllmEngine(NamedTuple):
    """vLLM in the trainer's processes (one engine per GPU or per group of GPUs), or a server on other GPUs."""

    memory_share: float
    """Share (0-1) of each GPU's memory; a server uses none of the trainer's GPUs."""
    sleeps: bool = False
    """Whether vLLM frees its weights and cache while the policy is updated."""
    max_length: int = 0
    """Maximum tokens of prompt and completion; 0: the model's own context length."""
    gpus_per_engine: int = 1
    """Number of GPUs per engine; each holds a part of the weights and the cache."""
    is_server: bool = False


@dataclass(frozen=True)
class Workload:
    """What determines the memory of one GPU: the model's shape, batch sizes, lengths, precision and engines."""

    shape: ModelShape
    precision: Precision
    engine: TrainingEngine
    micro_batch: int
    """Rollouts in one forward and backward pass."""
    rollouts_per_rank: int
    """Rollouts that one rank generates in a step."""
    prompt_tokens: int
    """Tokens of the longest prompt."""
    completion_tokens: int
    """Tokens of the longest completion."""
    checkpointing: bool = False
    vllm: VllmEngine | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes per weight and per element of most activations."""
        return 2 if self.precision == "bfloat16" else 4

    @property
    def sequence_tokens(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt_tokens + self.completion_tokens


class MemoryPart(NamedTuple):
    """GiB of one part and the phases in which it is allocated; `host`: in host memory instead of GPU memory."""

    name: str
    gib: float
    phases: Sequence[Phase] = tuple(PHASES)
    on_host: bool = False


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory parts of one GPU (or, without GPUs, of the machine), and the capacity of vLLM's cache."""

    parts: tuple[MemoryPart, ...]
    kv_tokens: int | None = None
    """Tokens that vLLM's cache can hold; None: no vLLM."""
    kv_length: int = 0
    """Longest sequence that vLLM must hold (tokens)."""

    def phase_gib(self, phase: Phase, *, host: bool = False) -> float:
        """Peak GiB of a phase."""
        return sum(part.gib for part in self.parts if phase in part.phases and part.on_host == host)

    def part_gib(self, name: str, *, host: bool = False) -> float:
        """GiB of the named part on a GPU, or in host memory; 0 if there is no such part."""
        return sum(part.gib for part in self.parts if part.name == name and part.on_host == host)

    @property
    def gpu_peak_gib(self) -> float:
        """Peak GiB of a GPU over all phases."""
        return max(self.phase_gib(phase) for phase in PHASES)

    @property
    def host_peak_gib(self) -> float:
        """Peak GiB of host memory of all ranks over all phases."""
        return max(self.phase_gib(phase, host=True) for phase in PHASES)


# ── the formulas, in bytes ───────────────────────────────────────────────────────────


def layer_activation_bytes(work: Workload) -> int:
    """Bytes that autograd keeps of one block for one micro-batch, without checkpointing.

    Per token: two norms (input, normalised input and output; the first two in float32 even with bfloat16 weights),
    queries, keys and values (keys and values repeated to all heads), the attention output, and four times the MLP's
    width. Per sequence: the attention mask.
    """
    shape, tokens = work.shape, work.micro_batch * work.sequence_tokens
    wide = 2 if work.precision == "mixed" else work.element_bytes
    # Under autocast each of the five projections keeps its own bfloat16 copy of its input.
    hidden = {"bfloat16": 4 * 2 + 2 * 4, "float32": 6 * 4, "mixed": 4 * 4 + 5 * 2}[work.precision]
    a_token = hidden * shape.hidden + wide * (4 * shape.query_width + 4 * shape.intermediate) + 4 * shape.heads + 2 * 4
    return tokens * a_token + work.micro_batch * work.sequence_tokens**2 * wide


def kept_activation_bytes(work: Workload) -> int:
    """Bytes that autograd keeps of a forward pass: every block, or only each block's input with checkpointing."""
    shape, tokens = work.shape, work.micro_batch * work.sequence_tokens
    block = tokens * work.element_bytes * shape.hidden if work.checkpointing else layer_activation_bytes(work)
    last_norm = tokens * ((4 + work.element_bytes) * shape.hidden + 4)
    scored = work.micro_batch * work.completion_tokens * (work.element_bytes * shape.hidden + 2 * 4 + 8)
    casts = 0
    if work.precision == "mixed" and not work.checkpointing:
        casts = 2 * shape.layers * shape.layer_parameters  # autocast's bfloat16 copies of the weights
    return shape.layers * block + last_norm + scored + casts


def peak_backward_bytes(work: Workload) -> int:
    """Bytes that a backward pass adds at its peak.

    The peak is at the language model's head or in a block, which holds gradients as wide as the MLP and, with
    checkpointing, the block's recomputed activations. Meanwhile a head that shares the embedding's weights keeps its
    gradient until the embedding adds its own.
    """
    shape = work.shape
    scored = work.micro_batch * work.completion_tokens
    tile = min(scored, HEAD_TOKENS) * HEAD_COLUMNS * (2 if work.precision == "mixed" else work.element_bytes)
    head = tile + scored * 4 * shape.hidden + shape.embedding_parameters * (4 + work.element_bytes)
    wide = 2 if work.precision == "mixed" else work.element_bytes
    gradients = 2 * work.micro_batch * work.sequence_tokens * shape.intermediate * wide
    shared = shape.embedding_parameters * work.element_bytes if shape.tied else 0
    block = gradients + shared + (layer_activation_bytes(work) if work.checkpointing else 0)
    return max(head, block)


def kv_bytes_per_token(shape: ModelShape, element: int = 2) -> int:
    """Bytes of KV cache per token: keys and values of every layer."""
    return 2 * shape.layers * shape.kv_width * element


def prefill_bytes(work: Workload, prompts: int) -> int:
    """Bytes of a block's MLP while transformers reads this many prompts at once, before the first token."""
    element = 2 if work.precision == "mixed" else work.element_bytes
    return 3 * prompts * work.prompt_tokens * work.shape.intermediate * element


def evaluation_bytes(work: Workload, batch: int) -> int:
    """Peak bytes of generating `batch` workflows in parallel with transformers.

    The sum of the weights, the KV cache of all workflows and the MLP activations of all prompts.
    """
    shape, element = work.shape, 2 if work.precision == "mixed" else work.element_bytes
    cache = batch * work.sequence_tokens * kv_bytes_per_token(shape, element)
    return element * shape.parameters + cache + prefill_bytes(work, batch)


def cold_start_bytes(work: Workload, low_rank: bool) -> int:
    """Peak bytes of a cold start's step in one process.

    Full training keeps weights, gradients and Adam's moments in float32. Low-rank training keeps the weights in their
    own precision; the states of the low-rank updates are omitted. The activations of padded batches are
    `PADDING_FACTOR` times those of the GRPO formula.
    """
    total = work.shape.parameters
    states = (4 if work.precision == "float32" else 2) * total if low_rank else 16 * total
    return states + PADDING_FACTOR * kept_activation_bytes(work) + peak_backward_bytes(work)


def checkpoint_bytes(shape: ModelShape, engine: TrainingEngine, element: int) -> int:
    """Bytes of a checkpoint on disk: weights, optimizer states and, under DeepSpeed, a gathered copy of the weights."""
    states = 4 + 8 if engine.zero else 8
    return shape.parameters * (states + (2 * element if engine.zero else 4))


# ── by part ──────────────────────────────────────────────────────────────────────────


def estimate_memory(work: Workload, gpu_gib: float | None) -> MemoryEstimate:
    """The parts of one GPU with `gpu_gib` GiB; None: the parts of all ranks in host memory."""
    parts = [*_state_parts(work), *_activation_parts(work)]
    shape, vllm = work.shape, work.vllm
    if vllm is None or gpu_gib is None:
        parts += _generation_parts(work)
        if gpu_gib is None:  # a prompt of a group is read once (`ops.training.step.generation`)
            return _move_to_host(MemoryEstimate(tuple(parts)), work.engine.ranks)
        reading = MemoryPart("prompts being read", prefill_bytes(work, work.rollouts_per_rank) / GIB, ("writing",))
        return MemoryEstimate((*parts, reading))
    # The weights are copied to vLLM one by one; ZeRO-3 gathers each of them, at most the embedding.
    handed = shape.embedding_parameters if work.engine.zero == 3 else 0
    parts.append(MemoryPart("weights on their way to vLLM", 2 * handed / GIB, ("writing",)))
    if vllm.is_server:
        return MemoryEstimate(tuple(parts))
    weights = 2 * shape.parameters / vllm.gpus_per_engine / GIB
    # The weights and activations keep their size even if they exceed vLLM's share; only the cache shrinks.
    cache = max(0.0, vllm.memory_share * gpu_gib - weights - VLLM_WORKSPACE_GIB)
    # CUDA graphs and buffers stay while vLLM sleeps; weights and cache do not.
    during: Sequence[Phase] = ("writing",) if vllm.sleeps else tuple(PHASES)
    engine = (
        MemoryPart("vLLM: weights", weights, during),
        MemoryPart("vLLM: work", VLLM_WORKSPACE_GIB),
        MemoryPart("vLLM: cache", cache, during),
    )
    held = int(vllm.gpus_per_engine * cache * GIB / kv_bytes_per_token(shape))
    return MemoryEstimate((*parts, *engine), held, vllm.max_length or shape.context)


def pinned_padding_bytes(size: float) -> float:
    """Bytes that PyTorch adds to a pinned buffer of `size` bytes, which it rounds up to a power of two."""
    return (1 << max(0, int(size) - 1).bit_length()) - size if size else 0.0


def _state_parts(work: Workload) -> list[MemoryPart]:
    shape, engine, element = work.shape, work.engine, work.element_bytes
    total, held = shape.parameters, shape.parameters / engine.ranks
    if engine.zero == 0:
        return [
            MemoryPart("weights", 4 * total / GIB),
            MemoryPart("gradients", 4 * total / GIB),
            MemoryPart("Adam's moments (float32)", 8 * total / GIB),
            MemoryPart(CUDA_CONTEXT, CUDA_CONTEXT_GIB),
            MemoryPart("processes, model", PROCESS_GIB + 4 * total / GIB, on_host=True),
        ]
    weights = element * (held if engine.zero == 3 else total)
    sharded = engine.zero == 3
    # On one rank a gathered weight is a view of the rank's own.
    gathered = element * min(engine.live_parameters, total) if sharded and engine.ranks > 1 else 0
    # ZeRO-2 allocates a pair of buckets for each backward pass; ZeRO-3 keeps one permanently.
    buckets = element * engine.reduce_bucket * (1 if sharded else 2)
    parts = [
        MemoryPart("weights", weights / GIB),
        MemoryPart("gradients", 0.0 if engine.offload else element * held / GIB),
        MemoryPart("master weights (float32)", 0.0 if engine.offload else 4 * held / GIB),
        MemoryPart("Adam's moments (float32)", 0.0 if engine.offload else 8 * held / GIB),
        MemoryPart("gathered weights", gathered / GIB, ("updating",)),
        MemoryPart("gradient buckets", buckets / GIB, tuple(PHASES) if sharded else ("updating",)),
        MemoryPart(CUDA_CONTEXT, CUDA_CONTEXT_GIB),
    ]
    # The float32 gradient and Adam's temporary of the same size: for one sub-group (ZeRO-3) or all weights (ZeRO-2).
    stepped = min(engine.sub_group, held) if engine.zero == 3 else held
    if not engine.offload:
        parts.append(MemoryPart("step: float32 gradient, temporary", 2 * 4 * stepped / GIB, ("stepping",)))
    # Every rank loads the whole model before DeepSpeed shards it.
    offloaded = (element + 4 + 4 + 8) * total if engine.offload else 0
    host = max(engine.ranks * element * total, offloaded) / GIB
    parts.append(MemoryPart("processes, model", host + engine.ranks * PROCESS_GIB, on_host=True))
    if engine.offload:  # both gradients are pinned, the float32 one by sub-group; Adam has two temporaries of one
        whole, rest = divmod(held, engine.sub_group)
        unused = (
            pinned_padding_bytes(element * held)
            + whole * pinned_padding_bytes(4 * engine.sub_group)
            + pinned_padding_bytes(4 * rest)
        )
        parts.append(MemoryPart("pinned memory, unused", engine.ranks * unused / GIB, on_host=True))
        temporaries = engine.ranks * 2 * 4 * stepped / GIB
        parts.append(MemoryPart("step: temporaries", temporaries, ("stepping",), on_host=True))
    return parts


def _activation_parts(work: Workload) -> list[MemoryPart]:
    kept = "activations, checkpointed" if work.checkpointing else "activations"
    return [
        MemoryPart(kept, kept_activation_bytes(work) / GIB, ("updating",)),
        MemoryPart("peak of the backward pass", peak_backward_bytes(work) / GIB, ("updating",)),
    ]


def _generation_parts(work: Workload) -> list[MemoryPart]:
    """Parts of generation with transformers: the cache of a step's rollouts and, under ZeRO-3, the gathered model."""
    cache = work.rollouts_per_rank * work.sequence_tokens * kv_bytes_per_token(work.shape, work.element_bytes)
    parts = [MemoryPart("cache of generation", cache / GIB, ("writing",))]
    if work.engine.zero == 3 and work.engine.ranks > 1:
        parts.append(
            MemoryPart("whole model, gathered", work.element_bytes * work.shape.parameters / GIB, ("writing",))
        )
    return parts


def _move_to_host(made: MemoryEstimate, ranks: int) -> MemoryEstimate:
    """Move the parts of every rank to host memory, for a machine without GPUs."""
    own = [part._replace(gib=part.gib * ranks, on_host=True) for part in made.parts if not part.on_host]
    processes = MemoryPart("processes", ranks * PROCESS_GIB, on_host=True)
    return MemoryEstimate(
        (*(part for part in own if part.name != CUDA_CONTEXT), processes), made.kv_tokens, made.kv_length
    )


def alternative_workloads(work: Workload, gpus: int) -> dict[str, Workload]:
    """The same workload under alternative engines on `gpus` GPUs, by the engine's name."""
    ranks = max(1, gpus)
    zero2, zero3 = (TrainingEngine(zero=zero, ranks=ranks) for zero in (2, 3))
    offload = TrainingEngine(zero=3, offload=True, ranks=ranks)
    spread = replace(work, rollouts_per_rank=work.rollouts_per_rank * work.engine.ranks // ranks, precision="bfloat16")
    others = {str(engine): replace(spread, engine=engine) for engine in (zero2, zero3, offload)}
    if work.vllm is not None and not work.vllm.is_server:
        asleep = replace(spread, engine=offload, vllm=work.vllm._replace(sleeps=True))
        others["offload, sleep"] = asleep
    return others
