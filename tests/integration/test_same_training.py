"""Two ranks under DeepSpeed learn what one process learns from the same rollouts, at equal global batch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from ops.training.plan import command, environment, read_curve
from ops.workflow.grammar import Workflow
from tests.integration.prewritten import FILE
from tests.unit.training.tiny import ROOT, tiny_plan

pytestmark = [
    pytest.mark.soak,  # DeepSpeed compiles, and starts two ranks
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation for CPU ranks: no c++"),
]
SETTINGS: dict[str, Any] = {"steps": 6, "learning_rate": 1e-3, "checkpoint_every": 50}
RANKS: dict[str, Any] = {"processes": 2, "micro_batch": 2}


class Learned(NamedTuple):
    """A run's curve, and its policy's weights before and after."""

    curve: list[dict[str, Any]]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


def learned(root: Path, **grpo: Any) -> Learned:
    plan, folder = tiny_plan(root, **SETTINGS, **grpo)
    tokenizer = AutoTokenizer.from_pretrained(plan.base_policy)
    texts = [Workflow.single(plan.pool.names.index(name)).render() for name in ("guesser", "editor", "solver")]
    group = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in (*texts, "none")]
    (folder / FILE).write_text(json.dumps(group), encoding="utf-8")
    module = {"ops.training.grpo": "tests.integration.prewritten"}
    arguments = [module.get(part, part) for part in command(plan, folder)]
    ran = subprocess.run(
        arguments, cwd=ROOT, env=os.environ | environment(plan, folder), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    policies = (plan.base_policy, folder / "policy")
    return Learned(read_curve(folder), *(load_file(policy / "model.safetensors") for policy in policies))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return learned(tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_rewards_losses_and_weights_are_those_of_one_process(alone: Learned, stage: str, tmp_path: Path) -> None:
    ranks = learned(tmp_path, deepspeed=f"{stage}.json", **RANKS)
    rewards = [[row["reward"] for row in run.curve] for run in (alone, ranks)]
    assert rewards[0] == pytest.approx(rewards[1]) and len(set(rewards[0])) > 1
    losses = [[row["loss"] for row in run.curve] for run in (alone, ranks)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    # (The entropy in a line is a mean of micro-batches' means, which are not cut alike.)
    moved = max(float((alone.after[name] - value).abs().max()) for name, value in alone.before.items())
    apart = max(float((ranks.after[name] - value).abs().max()) for name, value in alone.after.items())
    assert moved > 1e-3 and apart < 0.01 * moved
