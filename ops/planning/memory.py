"""Estimate the memory of a training run, part by part in GiB. Each formula is one line, so that it can be checked.

The formulas were checked against what autograd keeps and what PyTorch allocates for small models on CPUs
(`tests/unit/planning`), against DeepSpeed's own estimates, and against the peaks of two models on one GPU (the same
tests). PyTorch reserves more memory than it allocates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ops.planning.model_shape import ModelShape

Phase = Literal["writing", "updating", "stepping"]
"""The phases of a training step: "writing" generates rollouts, "updating" is a forward and backward pass, and
"stepping" is the optimizer's step."""
PHASES: dict[Phase, str] = {
    "writing": "while rollouts are written",
    "updating": "forward and backward",
    "stepping": "optimizer's step",
}
"""The names of the phases in the printed plan."""
Precision = Literal["bfloat16", "float32", "mixed"]
"""The precision of weights and activations. "mixed" means float32 weights under autocast, which is how bfloat16 is
trained without DeepSpeed."""
GIB = 1 << 30
"""The number of bytes in a GiB."""
CUDA_CONTEXT, CUDA_CONTEXT_GIB = "CUDA context", 1.8
"""The name and size (GiB per GPU) of the part for the CUDA context, NCCL and the code of libraries. The size was
measured with one rank under DeepSpeed."""
VLLM_WORKSPACE_GIB = 1.5
"""Assumed GiB that vLLM needs for activations of TRL's batches of 4,096 tokens, for its CUDA graphs and its sampler."""
PROCESS_GIB = 2.0
"""Assumed host memory (GiB) of one rank for Python, libraries and data."""
HIDDEN_TESTS_BYTES = 12e9
"""Assumed size of LiveCodeBench's hidden tests, which have 9 to 12 GB when decoded. It was not tried against the live
hub."""
HIDDEN_TESTS_RATIO = 1.5
"""Characters per stored byte of hidden tests that consist of random small letters. Tests with numbers are compressed
further (`tests/unit/grading/test_hidden_files.py`)."""
TEST_BATCH_CHARACTERS = 20_000_000
"""Assumed characters of the hidden tests that one sandbox reads at a time, which are six large tests. It was not tried
against the live hub."""
TEST_BATCH_BYTES_PER_CHARACTER = 4
"""The most bytes of memory that a sandbox needs per character of its hidden tests
(`tests/unit/grading/test_hidden_files.py`)."""
HEAD_TOKENS, HEAD_COLUMNS = 4096, 32_768
"""The tokens and vocabulary entries of the tile of logits that TRL 1.16 computes at a time
(`trl.kernels.chunked_logprob`)."""
PADDING_FACTOR = 2
"""The activations that a cold start keeps of a padded batch, as a multiple of the formula for a GRPO step.

Measured with SmolLM2-135M on a CPU: 16 examples of 188 tokens kept 6.0 GiB, where the formula gives 2.9 GiB. Nothing
was measured on a GPU.
"""


class TrainingEngine(NamedTuple):
    """How weights, gradients and optimizer states are distributed: by DeepSpeed with its defaults, or in one
    process."""

    zero: int = 0
    """The ZeRO stage, 2 or 3. 0 means that DeepSpeed is not used."""
    offload: bool = False
    """True if optimizer states, master weights and gradients are in host memory."""
    ranks: int = 1
    """The number of training processes. With DeepSpeed each has a GPU of its own."""
    reduce_bucket: int = 500_000_000
    """The number of gradient elements that DeepSpeed reduces at a time."""
    live_parameters: int = 1_000_000_000
    """The largest number of parameters that ZeRO-3 keeps gathered on a GPU."""
    sub_group: int = 1_000_000_000
    """The number of parameters that ZeRO-3 updates at a time."""

    @classmethod
    def from_deepspeed(cls, deepspeed: Mapping[str, Any] | None, ranks: int, hidden: int) -> TrainingEngine:
        """Return the engine of a DeepSpeed configuration, in which "auto" has the value that transformers gives it.

        `hidden` is the model's hidden size, on which some of these values depend.
        """
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
    """The settings of vLLM, which runs in the trainer's processes (one engine per GPU or group of GPUs) or as a
    server."""

    memory_share: float
    """The share (0-1) of each GPU's memory that vLLM takes. A server takes none of the trainer's GPUs."""
    sleeps: bool = False
    """True if vLLM frees its weights and cache while the policy is updated."""
    max_length: int = 0
    """The maximum tokens of prompt and completion together. 0 stands for the model's own context length."""
    gpus_per_engine: int = 1
    """The number of GPUs per engine, each of which holds a part of the weights and of the cache."""
    is_server: bool = False
    """True if vLLM is a server on GPUs that the trainer does not use."""


@dataclass(frozen=True)
class Workload:
    """Everything that determines the memory of one GPU: the model's shape, batch sizes, lengths, precision and
    engines."""

    shape: ModelShape
    """The shape of the policy's model."""
    precision: Precision
    """The precision of weights and activations."""
    engine: TrainingEngine
    """How weights, gradients and optimizer states are distributed."""
    micro_batch: int
    """The number of rollouts in one forward and backward pass."""
    rollouts_per_rank: int
    """The number of rollouts that one rank generates at a time."""
    prompt_tokens: int
    """Tokens of the longest prompt."""
    completion_tokens: int
    """Tokens of the longest completion."""
    checkpointing: bool = False
    """True if only the input of each block is kept and the rest is recomputed (gradient checkpointing)."""
    vllm: VllmEngine | None = None
    """The settings of vLLM. None means that transformers generates the rollouts."""

    @property
    def element_bytes(self) -> int:
        """Return the bytes of a weight, and of an element of most activations."""
        return 2 if self.precision == "bfloat16" else 4

    @property
    def sequence_tokens(self) -> int:
        """Return the tokens of the longest sequence, which has the longest prompt and the longest completion."""
        return self.prompt_tokens + self.completion_tokens


class MemoryPart(NamedTuple):
    """One part of the memory in GiB, with the phases of a step in which it is allocated."""

    name: str
    """The part's name in the printed plan."""
    gib: float
    """The size of the part in GiB."""
    phases: Sequence[Phase] = tuple(PHASES)
    """The phases in which the part is allocated, all of them unless given."""
    on_host: bool = False
    """True if the part is in host memory, False if it is in GPU memory."""


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory parts of one GPU (or, without GPUs, of the machine), and the capacity of vLLM's cache."""

    parts: tuple[MemoryPart, ...]
    """The parts in GPU memory, and the parts of all ranks in host memory."""
    kv_tokens: int | None = None
    """The number of tokens that vLLM's cache can hold. None means that no vLLM runs beside the training."""
    kv_length: int = 0
    """The longest sequence that vLLM must be able to hold, in tokens."""

    def phase_gib(self, phase: Phase, *, host: bool = False) -> float:
        """Return the GiB that are allocated in a phase, on a GPU or in host memory."""
        return sum(part.gib for part in self.parts if phase in part.phases and part.on_host == host)

    def part_gib(self, name: str, *, host: bool = False) -> float:
        """Return the GiB of the named part on a GPU or in host memory, or 0 if there is no such part."""
        return sum(part.gib for part in self.parts if part.name == name and part.on_host == host)

    @property
    def gpu_peak_gib(self) -> float:
        """Return the peak GiB of a GPU over all phases."""
        return max(self.phase_gib(phase) for phase in PHASES)

    @property
    def host_peak_gib(self) -> float:
        """Return the peak GiB of host memory over all phases, for all ranks together."""
        return max(self.phase_gib(phase, host=True) for phase in PHASES)


# ── the formulas, in bytes ───────────────────────────────────────────────────────────


def layer_activation_bytes(work: Workload) -> int:
    """Return the bytes that autograd keeps of one block for one micro-batch, without gradient checkpointing.

    For each token it keeps two norms (input, normalised input and output; the first two in float32 even with bfloat16
    weights), queries, keys and values (keys and values repeated to all heads), the attention output, and four times the
    MLP's width. For each sequence it keeps the attention mask.
    """
    shape, tokens = work.shape, work.micro_batch * work.sequence_tokens
    wide = 2 if work.precision == "mixed" else work.element_bytes
    # Under autocast each of the five projections keeps its own bfloat16 copy of its input.
    hidden = {"bfloat16": 4 * 2 + 2 * 4, "float32": 6 * 4, "mixed": 4 * 4 + 5 * 2}[work.precision]
    a_token = hidden * shape.hidden + wide * (4 * shape.query_width + 4 * shape.intermediate) + 4 * shape.heads + 2 * 4
    return tokens * a_token + work.micro_batch * work.sequence_tokens**2 * wide


def kept_activation_bytes(work: Workload) -> int:
    """Return the bytes that autograd keeps of a forward pass: every block, or with checkpointing only each block's
    input."""
    shape, tokens = work.shape, work.micro_batch * work.sequence_tokens
    block = tokens * work.element_bytes * shape.hidden if work.checkpointing else layer_activation_bytes(work)
    last_norm = tokens * ((4 + work.element_bytes) * shape.hidden + 4)
    scored = work.micro_batch * work.completion_tokens * (work.element_bytes * shape.hidden + 2 * 4 + 8)
    casts = 0
    if work.precision == "mixed" and not work.checkpointing:
        casts = 2 * shape.layers * shape.layer_parameters  # autocast's bfloat16 copies of the weights
    return shape.layers * block + last_norm + scored + casts


def peak_backward_bytes(work: Workload) -> int:
    """Return the bytes that a backward pass adds at its peak.

    The peak is either at the language model's head or in a block. A block holds gradients as wide as the MLP and, with
    checkpointing, its recomputed activations. If the head shares the embedding's weights, the head's gradient is kept
    until the gradient of the embedding is added to it.
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
    """Return the bytes of KV cache per token, which holds keys and values of every layer. `element` is the bytes of a
    number."""
    return 2 * shape.layers * shape.kv_width * element


def prefill_bytes(work: Workload, prompts: int) -> int:
    """Return the bytes of a block's MLP while transformers reads `prompts` prompts at a time, before their first new
    token."""
    element = 2 if work.precision == "mixed" else work.element_bytes
    return 3 * prompts * work.prompt_tokens * work.shape.intermediate * element


def evaluation_bytes(work: Workload, batch: int) -> int:
    """Return the peak bytes of generating `batch` workflows in parallel with transformers.

    The bytes are the sum of the weights, the KV cache of all workflows and the MLP activations of all prompts.
    """
    shape, element = work.shape, 2 if work.precision == "mixed" else work.element_bytes
    cache = batch * work.sequence_tokens * kv_bytes_per_token(shape, element)
    return element * shape.parameters + cache + prefill_bytes(work, batch)


def cold_start_bytes(work: Workload, low_rank: bool) -> int:
    """Return the peak bytes of a step of the cold start in one process.

    Full training keeps weights, gradients and Adam's moments in float32. Low-rank training keeps the weights in their
    own precision; the states of the low-rank updates are small and left out. The activations of padded batches are
    `PADDING_FACTOR` times those of the GRPO formula.
    """
    total = work.shape.parameters
    states = (4 if work.precision == "float32" else 2) * total if low_rank else 16 * total
    return states + PADDING_FACTOR * kept_activation_bytes(work) + peak_backward_bytes(work)


def checkpoint_bytes(shape: ModelShape, engine: TrainingEngine, element: int) -> int:
    """Return the bytes of a checkpoint on disk: weights, optimizer states and, under DeepSpeed, a gathered copy of the
    weights.

    `element` is the bytes of a weight.
    """
    states = 4 + 8 if engine.zero else 8
    return shape.parameters * (states + (2 * element if engine.zero else 4))


# ── by part ──────────────────────────────────────────────────────────────────────────


def estimate_memory(work: Workload, gpu_gib: float | None) -> MemoryEstimate:
    """Return the memory of one GPU that has `gpu_gib` GiB, or of all ranks in host memory if `gpu_gib` is None."""
    parts = [*_state_parts(work), *_activation_parts(work)]
    shape, vllm = work.shape, work.vllm
    if vllm is None or gpu_gib is None:
        parts += _generation_parts(work)
        if gpu_gib is None:  # the prompt of a group is read only once (`ops.training.step.generation`)
            return _move_to_host(MemoryEstimate(tuple(parts)), work.engine.ranks)
        reading = MemoryPart("prompts being read", prefill_bytes(work, work.rollouts_per_rank) / GIB, ("writing",))
        return MemoryEstimate((*parts, reading))
    # The weights are copied to vLLM one by one, and ZeRO-3 gathers each of them. The largest is the embedding.
    handed = shape.embedding_parameters if work.engine.zero == 3 else 0
    parts.append(MemoryPart("weights on their way to vLLM", 2 * handed / GIB, ("writing",)))
    if vllm.is_server:
        return MemoryEstimate(tuple(parts))
    weights = 2 * shape.parameters / vllm.gpus_per_engine / GIB
    # The weights and activations keep their size even if they exceed vLLM's share. Only the cache becomes smaller.
    cache = max(0.0, vllm.memory_share * gpu_gib - weights - VLLM_WORKSPACE_GIB)
    # CUDA graphs and buffers stay allocated while vLLM sleeps. Weights and cache are freed.
    during: Sequence[Phase] = ("writing",) if vllm.sleeps else tuple(PHASES)
    engine = (
        MemoryPart("vLLM: weights", weights, during),
        MemoryPart("vLLM: work", VLLM_WORKSPACE_GIB),
        MemoryPart("vLLM: cache", cache, during),
    )
    held = int(vllm.gpus_per_engine * cache * GIB / kv_bytes_per_token(shape))
    return MemoryEstimate((*parts, *engine), held, vllm.max_length or shape.context)


def pinned_padding_bytes(size: float) -> float:
    """Return the bytes that PyTorch adds to a pinned buffer of `size` bytes, which it rounds up to a power of two."""
    return (1 << max(0, int(size) - 1).bit_length()) - size if size else 0.0


def _state_parts(work: Workload) -> list[MemoryPart]:
    """Return the parts for weights, gradients and optimizer states, and for the processes that hold them."""
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
    # With one rank, a gathered weight is a view of the rank's own weight and takes no memory.
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
    # Adam needs a float32 gradient and a temporary of its size, for one sub-group (ZeRO-3) or all weights (ZeRO-2).
    stepped = min(engine.sub_group, held) if engine.zero == 3 else held
    if not engine.offload:
        parts.append(MemoryPart("step: float32 gradient, temporary", 2 * 4 * stepped / GIB, ("stepping",)))
    # Every rank loads the whole model before DeepSpeed shards it.
    offloaded = (element + 4 + 4 + 8) * total if engine.offload else 0
    host = max(engine.ranks * element * total, offloaded) / GIB
    parts.append(MemoryPart("processes, model", host + engine.ranks * PROCESS_GIB, on_host=True))
    if engine.offload:  # both gradients are pinned, the float32 one per sub-group; Adam has two temporaries per rank
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
    """Return the parts of a forward and backward pass."""
    kept = "activations, checkpointed" if work.checkpointing else "activations"
    return [
        MemoryPart(kept, kept_activation_bytes(work) / GIB, ("updating",)),
        MemoryPart("peak of the backward pass", peak_backward_bytes(work) / GIB, ("updating",)),
    ]


def _generation_parts(work: Workload) -> list[MemoryPart]:
    """Return the parts of generation with transformers: the cache of a step's rollouts and the model that ZeRO-3
    gathers."""
    cache = work.rollouts_per_rank * work.sequence_tokens * kv_bytes_per_token(work.shape, work.element_bytes)
    parts = [MemoryPart("cache of generation", cache / GIB, ("writing",))]
    if work.engine.zero == 3 and work.engine.ranks > 1:
        parts.append(
            MemoryPart("whole model, gathered", work.element_bytes * work.shape.parameters / GIB, ("writing",))
        )
    return parts


def _move_to_host(made: MemoryEstimate, ranks: int) -> MemoryEstimate:
    """Return the estimate with the parts of every rank in host memory, for a machine without GPUs."""
    own = [part._replace(gib=part.gib * ranks, on_host=True) for part in made.parts if not part.on_host]
    processes = MemoryPart("processes", ranks * PROCESS_GIB, on_host=True)
    return MemoryEstimate(
        (*(part for part in own if part.name != CUDA_CONTEXT), processes), made.kv_tokens, made.kv_length
    )


def alternative_workloads(work: Workload, gpus: int) -> dict[str, Workload]:
    """Return the same workload under alternative training engines on `gpus` GPUs, by the engine's name."""
    ranks = max(1, gpus)
    zero2, zero3 = (TrainingEngine(zero=zero, ranks=ranks) for zero in (2, 3))
    offload = TrainingEngine(zero=3, offload=True, ranks=ranks)
    spread = replace(work, rollouts_per_rank=work.rollouts_per_rank * work.engine.ranks // ranks, precision="bfloat16")
    others = {str(engine): replace(spread, engine=engine) for engine in (zero2, zero3, offload)}
    if work.vllm is not None and not work.vllm.is_server:
        asleep = replace(spread, engine=offload, vllm=work.vllm._replace(sleeps=True))
        others["offload, sleep"] = asleep
    return others
