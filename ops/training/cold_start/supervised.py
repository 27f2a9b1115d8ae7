"""Supervised fine-tuning with TRL, on pairs of a prompt and a workflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
    set_seed,
)
from trl import SFTConfig, SFTTrainer

from ops.config import ColdStart, Lora, ScratchPolicy
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.run.allocator import reuse_freed_memory
from ops.workflow.control_tokens import escape_messages

BUCKET_BATCHES = 16
"""The number of batches among which examples are sorted by length."""


class FineTuningResult(NamedTuple):
    """The losses and the number of tokens of a finished fine-tuning."""

    losses: list[float]
    """The loss every ten steps, in nats per token."""
    tokens: int
    """Tokens of all examples, including prompts."""


def build_scratch_model(
    settings: ScratchPolicy, examples: Sequence[SftExample], seed: int
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return an untrained model of Qwen2's architecture, and a tokenizer that is trained on the examples."""
    texts = [message["content"] for e in examples for message in (*e["prompt"], *e["completion"])]
    tokenizer = train_tokenizer(texts, settings.vocabulary)
    set_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.hidden * 3,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.max_tokens,
        tie_word_embeddings=True,
        # The default, 0.02, is meant for wide models. A narrow model would start too close to zero to learn quickly.
        initializer_range=settings.hidden**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config), tokenizer


def bucket_by_length(examples: Sequence[SftExample], batch: int, seed: int) -> list[SftExample]:
    """Return the examples in batches of similar length, with the batches in random order.

    Similar lengths need little padding, and the random order avoids a trend. The library's own
    setting `transformers.TrainingArguments.group_by_length` goes from long to short again and again, with which the
    policy learns worse.
    """
    random, batches = Random(seed), []
    for start in range(0, len(examples), BUCKET_BATCHES * batch):
        window = sorted(examples[start : start + BUCKET_BATCHES * batch], key=_count_characters)
        cut = [window[i : i + batch] for i in range(0, len(window), batch)]
        random.shuffle(cut)
        batches += cut
    return [example for group in batches for example in group]


def _escape_example(tokenizer: PreTrainedTokenizerBase, example: SftExample) -> SftExample:
    prompt, completion = (escape_messages(tokenizer, part) for part in (example["prompt"], example["completion"]))
    return {"prompt": prompt, "completion": completion}


def _count_characters(example: SftExample) -> int:
    return sum(len(message["content"]) for message in (*example["prompt"], *example["completion"]))


def fine_tune(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[SftExample],
    settings: ColdStart,
    seed: int,
    on_progress: Callable[[int, int, str], None] | None = None,
    *,
    autocast: bool = False,
    checkpointing: bool = False,
) -> FineTuningResult:
    """Train `model` on the completions only: all of its weights, or low-rank updates that are merged into them.

    If a control token of the chat template occurs in an example's text, it is learnt as plain text. With `autocast`,
    the model computes in bfloat16. With `checkpointing`, only the input of each block is kept and the rest is
    recomputed.
    """
    micro_batch = settings.micro_batch or settings.batch
    rows = [_escape_example(tokenizer, example) for example in bucket_by_length(examples, settings.batch, seed)]
    losses: list[float] = []
    with TemporaryDirectory() as scratch:
        args = SFTConfig(
            output_dir=scratch,
            max_steps=settings.steps,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=settings.batch // micro_batch,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            adam_beta2=0.98,
            warmup_steps=round(0.05 * settings.steps),
            completion_only_loss=True,
            train_sampling_strategy="sequential",
            max_length=None,
            seed=seed,
            use_cpu=not torch.cuda.is_available(),
            bf16=autocast,
            gradient_checkpointing=checkpointing,
            save_strategy="no",
            logging_steps=10,
            report_to="none",
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        trainer = SFTTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[_ProgressReport(losses, on_progress)],
            peft_config=_lora_config(settings.lora),
        )
        trainer.remove_callback(PrinterCallback)
        with reuse_freed_memory():
            trainer.train()
    # This removes accelerate's autocast around the model's `forward`.
    trained = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    if settings.lora is not None:
        trained.merge_and_unload()  # into `model`
    return FineTuningResult(losses, sum(map(len, trainer.train_dataset["input_ids"])))


def _lora_config(settings: Lora | None) -> LoraConfig | None:
    if settings is None:
        return None
    return LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )  # fmt: skip


class _ProgressReport(TrainerCallback):  # type: ignore[misc]
    def __init__(self, losses: list[float], on_progress: Callable[[int, int, str], None] | None) -> None:
        self._losses, self._on_progress = losses, on_progress

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._losses.append(float(logs["loss"]))
            if self._on_progress is not None:
                said = f"steps of the cold start, loss {self._losses[-1]:.2f}"
                self._on_progress(state.global_step, state.max_steps, said)
