"""The formulas of memory beside what autograd keeps and what PyTorch allocates for small models, on CPUs."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.kernels import chunked_logprob
from trl.trainer import utils as trl_utils

from ops.config import load_settings
from ops.core.workspace import Workspace
from ops.planning.memory import (
    CUDA_CONTEXT_GIB,
    GIB,
    HEAD_COLUMNS,
    HEAD_TOKENS,
    PHASES,
    PROCESS_GIB,
    VLLM_WORKSPACE_GIB,
    Phase,
    Precision,
    TrainingEngine,
    VllmEngine,
    Workload,
    alternative_workloads,
    checkpoint_bytes,
    estimate_memory,
    evaluation_bytes,
    kept_activation_bytes,
    kv_bytes_per_token,
    peak_backward_bytes,
)
from ops.planning.model_shape import MODELS_FILE, ModelShape, ModelShapes

CONFIG = Workspace.find().config
KEPT_TOLERANCE = 0.02
"""Tolerance for kept activations: indices, a batch's masks and rotations are not counted."""
PEAK_TOLERANCE = 0.10
"""Tolerance for the peak of a backward pass: the kernel determines when gradients are freed."""
SHAPES = {
    "wide": ModelShape(hidden=64, intermediate=344, layers=3, heads=4, kv_heads=2, vocabulary=96, qkv_bias=True),
    "deep": ModelShape(hidden=96, intermediate=256, layers=6, heads=6, kv_heads=6, vocabulary=96, qkv_bias=True),
}
BIG = load_settings(ModelShapes, CONFIG / MODELS_FILE).models["Qwen/Qwen2.5-7B"]
PAPER = Workload(
    BIG, "bfloat16", TrainingEngine(zero=3, ranks=2), micro_batch=4, rollouts_per_rank=128, prompt_tokens=2000,
    completion_tokens=1024, checkpointing=True, vllm=VllmEngine(0.3),
)  # fmt: skip


QWEN_3B = load_settings(ModelShapes, CONFIG / MODELS_FILE).models["Qwen/Qwen2.5-3B"]
QWEN_1_5B = ModelShape(
    hidden=1536, intermediate=8960, layers=28, heads=12, kv_heads=2, vocabulary=151_936, tied=True, qkv_bias=True
)
ON_A_GPU: dict[str, tuple[Workload, dict[Phase, float]]] = {
    "3B, ZeRO-3": (
        Workload(QWEN_3B, "bfloat16", TrainingEngine(zero=3), 4, 64, 1482, 300, True),
        {"writing": 57.2, "stepping": 54.5},
    ),
    "3B, ZeRO-3, rewards that differ": (
        Workload(QWEN_3B, "bfloat16", TrainingEngine(zero=3), 4, 16, 2622, 256, True),
        {"writing": 51.7, "updating": 51.2, "stepping": 54.5},
    ),
    "3B, ZeRO-3 + offload, rewards that differ": (
        Workload(QWEN_3B, "bfloat16", TrainingEngine(zero=3, offload=True), 8, 64, 2153, 300, True),
        {"writing": 22.4, "updating": 13.5, "stepping": 6.7},
    ),
    "1.5B": (
        Workload(QWEN_1_5B, "mixed", TrainingEngine(), 4, 64, 1482, 300, True),
        {"writing": 31.4, "updating": 26.0, "stepping": 23.1},
    ),
}
"""Peaks (GiB) that PyTorch allocated in a step of GRPO with random weights, one rank, transformers writing.

With rewards that differ every row of a micro-batch has an advantage and is updated (an H100). The other rows are of an
H200, where of ZeRO-3 only the larger peak of update and optimizer's step is known.
"""
HOST_PEAKS: dict[Phase, float] = {"writing": 58.1, "updating": 58.1, "stepping": 65.6}
"""Resident memory (GiB) of that rank with offload. The last is its peak, ascribed to this phase by arithmetic."""


def model_of(shape: ModelShape, precision: Precision, checkpointing: bool) -> Any:
    config = Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied, use_cache=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(torch.bfloat16 if precision == "bfloat16" else torch.float32).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    return model


def inputs(shape: ModelShape, batch: int, length: int) -> dict[str, torch.Tensor]:
    """A padded batch in TRL's form."""
    ids = torch.randint(0, shape.vocabulary, (batch, length))
    mask = torch.ones_like(ids)
    mask[0, : length // 4] = 0
    return {"input_ids": ids, "attention_mask": mask}


def work_of(shape: ModelShape, precision: Precision, checkpointing: bool, batch: int, length: int) -> Workload:
    """Without Triton, TRL scores every position but the first."""
    return Workload(shape, precision, TrainingEngine(), batch, batch, 1, length - 1, checkpointing)


def autocast(precision: Precision) -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16) if precision == "mixed" else nullcontext()


def saved_bytes(shape: ModelShape, precision: Precision, checkpointing: bool, batch: int, length: int) -> int:
    """Return the bytes of the distinct storages that autograd keeps of a forward pass with TRL's head, without
    weights."""
    model = model_of(shape, precision, checkpointing)
    trl_utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage  # held, so that no other storage gets its address
        return tensor

    given = inputs(shape, batch, length)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast(precision):
        model(**given, labels=given["input_ids"], fused_lm_head=True)
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("size", [(2, 48), (3, 160)])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "mixed"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_activations_are_those_that_autograd_keeps(
    name: str, precision: Precision, checkpointing: bool, size: tuple[int, int]
) -> None:
    real = saved_bytes(SHAPES[name], precision, checkpointing, *size)
    planned = kept_activation_bytes(work_of(SHAPES[name], precision, checkpointing, *size))
    assert planned == pytest.approx(real, rel=KEPT_TOLERANCE)


@pytest.mark.parametrize(
    ("name", "precision", "size"),
    [
        ("wide", "float32", (2, 96)),
        ("deep", "float32", (2, 96)),
        ("wide", "bfloat16", (2, 96)),
        pytest.param("deep", "bfloat16", (2, 96), marks=pytest.mark.long),
        *(pytest.param("wide", each, (2, 200), marks=pytest.mark.long) for each in ("float32", "bfloat16")),
    ],
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_height_of_a_backward_pass_is_what_is_allocated(
    name: str, precision: Precision, checkpointing: bool, size: tuple[int, int]
) -> None:
    """Of the blocks: the head's tiles are another kernel's on GPUs."""
    shape, model = SHAPES[name], model_of(SHAPES[name], precision, checkpointing)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        model.model(**inputs(shape, *size)).last_hidden_state.sum().backward()
    peak = next(iter(tracker.get_tracker_snapshot("peak").values()))
    states = 2 * sum(each.numel() * each.element_size() for each in model.parameters())
    work = work_of(shape, precision, checkpointing, *size)
    headless = Workload(shape.model_copy(update={"vocabulary": 0}), precision, work.engine, work.micro_batch, 1,
                        work.sequence_tokens, 0, checkpointing)  # fmt: skip
    planned = kept_activation_bytes(headless) + peak_backward_bytes(headless)
    assert planned == pytest.approx(peak["Total"] - states, rel=PEAK_TOLERANCE)


def test_one_process_holds_16_bytes_a_parameter() -> None:
    shape = SHAPES["deep"]
    model = model_of(shape, "float32", checkpointing=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(**inputs(shape, 2, 16)).logits.sum().backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    held = {
        "weights": list(model.parameters()),
        "gradients": [each.grad for each in model.parameters()],
        "Adam's moments (float32)": moments,
    }
    made = estimate_memory(work_of(shape, "float32", False, 2, 16), 80.0)
    for name, tensors in held.items():
        assert made.part_gib(name) * GIB == sum(each.numel() * each.element_size() for each in tensors)
    assert sum(map(made.part_gib, held)) * GIB == 16 * shape.parameters


def test_the_papers_model_under_zero3_on_two_gpus() -> None:
    """The known arithmetic: 7.1 + 7.1 + 14.2 + 28.4 = 56.7 GiB."""
    made = estimate_memory(PAPER, 79.0)
    parts = [
        made.part_gib(name) for name in ("weights", "gradients", "master weights (float32)", "Adam's moments (float32)")
    ]
    assert [round(part, 1) for part in parts] == [7.1, 7.1, 14.2, 28.4]
    assert sum(parts) == pytest.approx(56.7, abs=0.05)
    assert sum(map(made.part_gib, ("vLLM: weights", "vLLM: work", "vLLM: cache"))) == pytest.approx(23.7)
    assert made.gpu_peak_gib > 79.0
    assert checkpoint_bytes(BIG, PAPER.engine, 2) / 1e9 == pytest.approx(122, abs=0.5)


def test_the_states_are_those_that_deepspeed_estimates() -> None:
    parameters, largest = BIG.parameters, BIG.embedding_parameters
    theirs = estimate_zero3_model_states_mem_needs(parameters, largest, 2, cpu_offload=False)
    ours = estimate_memory(PAPER, 79.0)
    states = sum(map(ours.part_gib, ("weights", "gradients", "master weights (float32)", "Adam's moments (float32)")))
    # They count gradients in float32 (18 bytes); bfloat16 ones are what its engine accumulates.
    assert states * GIB * 18 / 16 == pytest.approx(theirs[1] - theirs[2], rel=1e-6)
    away = estimate_memory(alternative_workloads(PAPER, 2)["ZeRO-3 + offload"], 79.0)
    offloaded = estimate_zero3_model_states_mem_needs(
        parameters, largest, 2, cpu_offload=True, cpu_offload_params=False, additional_buffer_factor=1
    )
    assert away.part_gib("weights") * GIB == pytest.approx(offloaded[1] - offloaded[2], rel=1e-6)
    # Beside what they count (16 bytes) the engine keeps a flat bfloat16 copy of the gradients there.
    host = away.part_gib("processes, model", host=True)
    assert (host - 2 * PROCESS_GIB) * GIB == pytest.approx(offloaded[0] * 18 / 16, rel=1e-6)


@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_peaks_are_those_that_were_measured_on_a_gpu(name: str) -> None:
    work, peaks = ON_A_GPU[name]
    made = estimate_memory(work, 139.6)
    assert {phase: made.phase_gib(phase) - CUDA_CONTEXT_GIB for phase in peaks} == pytest.approx(
        peaks, rel=PEAK_TOLERANCE
    )


def test_the_hosts_peaks_under_offload_are_those_that_were_measured() -> None:
    made = estimate_memory(ON_A_GPU["3B, ZeRO-3 + offload, rewards that differ"][0], 79.2)
    assert {phase: made.phase_gib(phase, host=True) for phase in PHASES} == pytest.approx(
        HOST_PEAKS, rel=PEAK_TOLERANCE
    )


def test_sleep_frees_vllms_weights_and_cache_in_the_update_alone() -> None:
    awake, asleep = (
        estimate_memory(alternative_workloads(PAPER, 2)[name], 79.0) for name in ("ZeRO-3 + offload", "offload, sleep")
    )
    assert awake.phase_gib("writing") == asleep.phase_gib("writing")
    for phase in ("updating", "stepping"):
        assert awake.phase_gib(phase) - asleep.phase_gib(phase) == pytest.approx(0.3 * 79.0 - VLLM_WORKSPACE_GIB)


def test_one_vllm_over_two_gpus_holds_half_its_weights_on_each() -> None:
    spread = Workload(BIG, "bfloat16", PAPER.engine, 4, 128, 2000, 1024, True, VllmEngine(0.3, gpus_per_engine=2))
    one, two = estimate_memory(PAPER, 79.0), estimate_memory(spread, 79.0)
    assert two.part_gib("vLLM: weights") == one.part_gib("vLLM: weights") / 2
    assert one.kv_tokens is not None and two.kv_tokens is not None
    assert two.kv_tokens > 2 * one.kv_tokens


def test_an_evaluation_of_256_at_once_needs_more_than_a_gpu_and_32_do_not() -> None:
    """What the recipe's comment says: 9,216 tokens of 256 sequences are 126 GiB of cache."""
    work = Workload(BIG, "bfloat16", PAPER.engine, 4, 128, 8192, 1024)
    cache = 256 * 9216 * kv_bytes_per_token(BIG)
    assert cache / GIB == pytest.approx(126)
    assert evaluation_bytes(work, 256) > cache + 2 * BIG.parameters
    assert evaluation_bytes(work, 32) / GIB < 79.0 < evaluation_bytes(work, 256) / GIB


def test_vllms_cache_is_what_its_weights_leave() -> None:
    assert kv_bytes_per_token(BIG) * 131_072 / GIB == 7.0
    made = estimate_memory(PAPER, 79.0)
    assert made.kv_length == 131_072
    assert made.kv_tokens == pytest.approx(made.part_gib("vLLM: cache") * GIB / kv_bytes_per_token(BIG), abs=1)
    short = estimate_memory(
        Workload(BIG, "bfloat16", TrainingEngine(zero=3, ranks=2), 4, 128, 2000, 1024, True, VllmEngine(0.2)), 79.0
    )
    assert short.kv_tokens is not None and short.kv_tokens < 131_072


def test_without_a_gpu_all_of_it_is_the_machines() -> None:
    work = Workload(SHAPES["wide"], "float32", TrainingEngine(ranks=1), 2, 4, 100, 20)
    with_gpu, without = estimate_memory(work, 80.0), estimate_memory(work, None)
    assert without.gpu_peak_gib == 0
    assert without.host_peak_gib == pytest.approx(with_gpu.gpu_peak_gib - CUDA_CONTEXT_GIB + PROCESS_GIB)
    two = estimate_memory(Workload(SHAPES["wide"], "bfloat16", TrainingEngine(zero=3, ranks=2), 2, 4, 100, 20), None)
    assert two.host_peak_gib > 2 * PROCESS_GIB


@pytest.mark.parametrize("name", ["zero2.json", "zero3.json"])
def test_a_deepspeed_file_is_read_with_its_defaults(name: str) -> None:
    settings = json.loads((CONFIG / "deepspeed" / name).read_text(encoding="utf-8"))
    engine = TrainingEngine.from_deepspeed(settings, 2, 3584)
    assert (engine.zero, engine.offload, engine.ranks) == (int(name[4]), False, 2)
    settings["zero_optimization"] |= {"reduce_bucket_size": "auto", "offload_optimizer": {"device": "cpu"}}
    changed = TrainingEngine.from_deepspeed(settings, 2, 3584)
    assert (changed.reduce_bucket, changed.offload) == (3584 * 3584, True)
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    theirs = DeepSpeedZeroConfig(stage=3)
    assert TrainingEngine() == TrainingEngine(
        reduce_bucket=theirs.reduce_bucket_size, live_parameters=theirs.max_live_parameters,
        sub_group=theirs.sub_group_size,
    )  # fmt: skip


def test_the_heads_tile_is_trls() -> None:
    assert (chunked_logprob.TOKEN_CHUNK_SIZE, trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE) == (HEAD_TOKENS, HEAD_COLUMNS)
