"""Translate a run's plan into settings of TRL and transformers, and into the policy for unreachable workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from ops.conductor.policy import context_length
from ops.config import Grpo
from ops.training.rewards.outage import OutagePolicy
from ops.training.rewards.reward import NO_WAITING
from ops.training.run.checkpoints import CHECKPOINTS
from ops.training.run.training_run import RunPlan


def build_trl_config(plan: RunPlan, folder: Path, ends: Sequence[int] = ()) -> GRPOConfig:
    """Return TRL's configuration: one optimizer step per batch of rollouts, and advantages that are normalised by
    group.

    `ends` holds the ids of the tokens at which vLLM stops, in addition to those in the model's files.
    """
    grpo = plan.recipe.grpo
    bf16 = getattr(plan.recipe.policy, "dtype", "float32") == "bfloat16"
    arguments = GRPOConfig(
        output_dir=str(folder / CHECKPOINTS),
        run_name=folder.name,
        report_to=[],  # `ops.training.run.tracking` reports instead
        seed=plan.recipe.seed,
        max_steps=grpo.steps,
        per_device_train_batch_size=grpo.micro_batch,
        gradient_accumulation_steps=grpo.rollouts_per_step // (grpo.micro_batch * grpo.processes),
        num_generations=grpo.rollouts_per_question,
        max_completion_length=grpo.max_completion_tokens,
        temperature=grpo.temperature,
        **plan.recipe.generation.model_dump(),
        learning_rate=grpo.learning_rate,
        lr_scheduler_type=grpo.schedule,
        warmup_steps=round(grpo.warmup_ratio * grpo.steps),
        adam_beta1=grpo.adam_beta1,
        adam_beta2=grpo.adam_beta2,
        max_grad_norm=grpo.max_grad_norm,
        beta=grpo.kl,
        entropy_coef=grpo.entropy,
        epsilon=grpo.clip,
        epsilon_high=grpo.clip_high,
        loss_type=grpo.loss,
        scale_rewards="group",
        shuffle_dataset=False,  # the data set is already in training order
        **_device_settings(grpo, ends),
        bf16=bf16 and (torch.cuda.is_available() or grpo.deepspeed is None),
        gradient_checkpointing=grpo.gradient_checkpointing,
        logging_steps=1,
        save_steps=grpo.checkpoint_every,
        save_total_limit=grpo.keep_checkpoints,
        ddp_timeout=math.ceil(grpo.collective_timeout_s),
        disable_tqdm=True,
        log_completions=False,
    )
    # bf16 is set here for DeepSpeed on CPUs, because the constructor accepts it on CPUs only together with `use_cpu`,
    # which disables DeepSpeed.
    arguments.bf16 = bf16
    return arguments


def _device_settings(grpo: Grpo, ends: Sequence[int]) -> dict[str, Any]:
    """Return the settings that depend on the generation engine and on the devices.

    With DeepSpeed on CPUs, neither `use_cpu` nor the argument `deepspeed` may be given, because either disables
    DeepSpeed.
    """
    chosen: dict[str, Any] = {"use_vllm": grpo.vllm}
    if grpo.vllm:
        chosen |= {
            "vllm_mode": grpo.vllm_mode,
            "vllm_server_base_url": grpo.vllm_server_url,
            "vllm_gpu_memory_utilization": grpo.vllm_memory,
            "vllm_max_model_length": grpo.vllm_max_model_length,
            "vllm_enable_sleep_mode": grpo.vllm_sleep,
            "vllm_tensor_parallel_size": grpo.vllm_tensor_parallel,
            "vllm_importance_sampling_correction": grpo.vllm_correction != "none",
            "vllm_importance_sampling_clip_max": grpo.vllm_correction_max,
            "generation_kwargs": {"stop_token_ids": list(ends)},
        }
        if grpo.vllm_correction != "none":
            chosen["vllm_importance_sampling_mode"] = grpo.vllm_correction
    if not torch.cuda.is_available():
        chosen |= {"ddp_backend": "gloo"} if grpo.deepspeed else {"use_cpu": True}
    return chosen


def max_sequence_tokens(grpo: Grpo, model: Any) -> int | None:
    """Return the largest number of tokens that a prompt and its completion may have together.

    This is the limit of the model, or that of vLLM if it is smaller. None means that neither has a limit.
    """
    limits = [context_length(model.config), grpo.vllm_max_model_length if grpo.vllm else None]
    return min((limit for limit in limits if limit is not None), default=None)


def build_outage_policy(plan: RunPlan) -> OutagePolicy:
    """Return how long a step waits for unreachable workers. A rehearsal does not wait, because no worker recovers in
    it."""
    grpo = plan.recipe.grpo
    return OutagePolicy(grpo.max_unscorable, grpo.outage_s) if plan.recipe.can_call_workers else NO_WAITING
