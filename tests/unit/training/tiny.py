"""A training run of seconds: a policy of a few thousand weights that has learnt one workflow, and embedded problems."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, TrainerCallback

from ops.benchmarks.problem_files import write_problems
from ops.conductor.policy import PolicyCard
from ops.config import ColdStart, Recipe, ScratchPolicy, digest
from ops.synthetic.problems import generate_problems
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.supervised import build_scratch_model, fine_tune
from ops.training.grpo.trainer import run_training
from ops.training.run.training_run import DEEPSPEED_FILE, EXTENSIONS_FOLDER, PLAN_FILE, RunPlan, RunResult, read_curve
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import build_conductor_messages
from tests.once import made_once
from tests.unit.training.plans import POOL, QUICK
from tests.unit.training.plans import ROOT as ROOT

GRPO: dict[str, Any] = {
    "steps": 2,
    "questions_per_step": 2,
    "rollouts_per_question": 4,
    "max_completion_tokens": 32,
    "learning_rate": 1e-6,
    "micro_batch": 4,
    "checkpoint_every": 1,
}
VARIED: dict[str, Any] = {"learning_rate": 1e-3, "temperature": 1.5}
"""Settings with which some completions are invalid, so that rewards differ and the policy changes."""
COMPILE = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()"
SCRATCH = ScratchPolicy(vocabulary=400, hidden=32, layers=1, heads=2, max_tokens=512)


class Cut(TrainerCallback):  # type: ignore[misc]
    """End the process after a step, before its checkpoint."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def freeze_objects() -> None:
    """Exempt every object that exists now from garbage collection.

    Each training ends with a full collection, which takes longer than a tiny training when it visits all modules.
    """
    gc.collect()
    gc.freeze()


def train(
    plan: RunPlan, folder: Path, cut_at: int | None = None, callbacks: Sequence[TrainerCallback] = ()
) -> RunResult | None:
    """Train to the end; with `cut_at`, the first of two attempts ends there."""
    if cut_at is not None:
        with pytest.raises(KeyboardInterrupt):
            run_training(plan, folder, lambda *_: None, [Cut(cut_at)])
    return run_training(plan, folder, lambda *_: None, callbacks)


def watch(patch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., Any]) -> list[Any]:
    """Return a list that receives `note(result, *arguments)` of each call of the method `owner.name`."""
    seen: list[Any] = []
    method = getattr(owner, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        seen.append(note(result, *arguments))
        return result

    patch.setattr(owner, name, watched)
    return seen


def weights_of(policy: Path) -> dict[str, torch.Tensor]:
    return load_file(policy / "model.safetensors")


def assert_same_training(whole: Path, other: Path) -> list[float]:
    """Assert that two runs have equal rewards, step by step, and equal policies; return the rewards."""
    rewards, again = ({row["step"]: row["reward"] for row in read_curve(folder)} for folder in (whole, other))
    assert again == rewards
    torch.testing.assert_close(weights_of(other / "policy"), weights_of(whole / "policy"), rtol=0, atol=0)
    return list(rewards.values())


def as_llama(policy: Path) -> None:
    """Replace a policy's weights by random ones of another architecture: four query heads share two key heads."""
    tokenizer = AutoTokenizer.from_pretrained(policy)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, initializer_range=48**-0.5,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(policy)


def compiled() -> Path:
    """Return the folder of DeepSpeed's compiled operations for ranks on CPUs.

    The compilation takes more than a minute of a core; it is done once
    per machine, and the result is copied into the folder of each run.
    """
    versions = [sys.prefix, *(version(name) for name in ("deepspeed", "torch"))]
    place = Path(tempfile.gettempdir()) / f"podium-deepspeed-{digest(versions)}"
    with FileLock(f"{place}.lock"):
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
                variables = os.environ | {"TORCH_EXTENSIONS_DIR": scratch, "DS_ACCELERATOR": "cpu"}
                subprocess.run(
                    [sys.executable, "-c", COMPILE], env=variables, check=True, capture_output=True, timeout=1000
                )
                shutil.copytree(scratch, place)
    return place


def tiny_plan(folder: Path, *, dtype: Literal["float32", "bfloat16"] = "float32", **grpo: Any) -> tuple[RunPlan, Path]:
    """Write a plan whose root is `folder`; return it and the run's folder."""
    freeze_objects()
    policy = folder / "base"
    described: dict[str, Any] = {"kind": "pretrained", "model": str(policy), "dtype": dtype}
    values = QUICK.model_dump() | {"name": "tiny", "grpo": GRPO | grpo, "cold_start": None, "policy": described}
    recipe = Recipe.model_validate(values)
    problems = [problem for name in ("math500", "rlpr") for problem in generate_problems(name, "train", 4, 1)]
    workflow = Workflow.single(POOL.names.index("guesser")).render()
    examples: list[SftExample] = [
        {
            "prompt": build_conductor_messages(problem, len(POOL.names), recipe.prompting, ()),
            "completion": [{"role": "assistant", "content": workflow}],
        }
        for problem in problems
    ]
    shutil.copytree(made_once(f"tiny-policy-{dtype}", lambda place: _fit(place, examples, dtype)), policy)
    PolicyCard(
        recipe=recipe.name, pool=POOL, offered=POOL.names, prompting=recipe.prompting,
        max_completion_tokens=recipe.grpo.max_completion_tokens, dtype=dtype,
    ).write(policy)  # fmt: skip
    write_problems(folder / "mix.jsonl", problems)
    plan = RunPlan(
        root=folder, recipe=recipe, pool=POOL, offered=POOL.names, base_policy=policy,
        problems=folder / "mix.jsonl", few_shots=ROOT / "data",
    )  # fmt: skip
    run_folder = folder / "run"
    run_folder.mkdir()
    (run_folder / PLAN_FILE).write_text(plan.model_dump_json(), encoding="utf-8")
    if recipe.grpo.deepspeed:
        shutil.copyfile(ROOT / "config" / "deepspeed" / recipe.grpo.deepspeed, run_folder / DEEPSPEED_FILE)
        shutil.copytree(compiled(), run_folder / EXTENSIONS_FOLDER)
    return plan, run_folder


def _fit(place: Path, examples: list[SftExample], dtype: str) -> None:
    """Write a policy that has memorised `examples` into `place`."""
    model, tokenizer = build_scratch_model(SCRATCH, examples, 1)
    fine_tune(model, tokenizer, examples * 40, ColdStart(steps=40, batch=8, learning_rate=1e-2), 1)
    model.to(getattr(torch, dtype)).save_pretrained(place)
    tokenizer.save_pretrained(place)
