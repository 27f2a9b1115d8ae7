"""Run a DeepSpeed engine on one CPU rank, and print the bytes per parameter of its memory as one JSON line.

`python -m tests.integration.engine FILE`, with FILE in config/deepspeed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deepspeed
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

SIZES = {
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "tie_word_embeddings": False,
}  # fmt: skip


def held(file: Path) -> dict[str, float]:
    """Return the memory after a step and one more backward pass, when all parts are allocated."""
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings |= {
        "bf16": {"enabled": True}, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
        "train_batch_size": 1, "train_micro_batch_size_per_gpu": 1,
    }  # fmt: skip
    settings["optimizer"]["params"] = {"lr": 1e-4, "torch_adam": True}
    if offload := settings["zero_optimization"].get("offload_optimizer"):
        offload["pin_memory"] = False  # it needs a GPU's driver
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    parameters = sum(each.numel() for each in model.parameters())
    deepspeed.init_distributed("gloo")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    ids = torch.randint(0, SIZES["vocab_size"], (1, 16))
    for step in range(2):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        if step == 0:
            engine.step()
    return {name: size(tensors) / parameters for name, tensors in parts(engine.optimizer).items()}


def parts(optimizer: Any) -> dict[str, Iterable[torch.Tensor | None]]:
    """Return the parts of a ZeRO optimizer under the plan's names."""
    moments = [state[name] for state in optimizer.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    if hasattr(optimizer, "grad_partitions_flat_buffer"):
        master, weights = optimizer.fp32_partitioned_groups_flat, optimizer.fp16_partitioned_groups_flat
        gradients = [optimizer.grad_partitions_flat_buffer]
    else:
        master, weights = optimizer.single_partition_of_fp32_groups, optimizer.bit16_groups_flat
        gradients = [each for group in optimizer.averaged_gradients.values() for each in group or ()]
    return {
        "weights": weights,
        "gradients": gradients,
        "float32 gradients": [each.grad for each in master],
        "master weights": master,
        "moments": moments,
    }


def size(tensors: Iterable[torch.Tensor | None]) -> int:
    """Return the bytes."""
    return sum(each.numel() * each.element_size() for each in tensors if each is not None)


if __name__ == "__main__":
    print(json.dumps(held(Path(sys.argv[1]))))
