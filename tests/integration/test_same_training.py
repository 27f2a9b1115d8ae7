"""Two ranks under DeepSpeed have the result of one process on the same rollouts, at equal global batch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from ops.config import Recursive, RoundLimits, load_pool, load_recipe
from ops.training.run.training_run import PLAN_FILE, build_training_command, prepare_environment, read_curve
from ops.workflow.grammar import Workflow
from tests.integration.prewritten import FILE
from tests.unit.training.tiny import ROOT, tiny_plan

pytestmark = [
    pytest.mark.long,  # DeepSpeed compiles, and starts two ranks
    pytest.mark.timeout(2400),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation for CPU ranks: no c++"),
]
NAMES = load_pool(ROOT / "config", load_recipe(ROOT / "config", "quickstart").pool).names
GUESSER, EDITOR, SOLVER = (Workflow.single(NAMES.index(name)).render() for name in ("guesser", "editor", "solver"))
GROUP = (GUESSER, EDITOR, SOLVER, "none")
ROUNDS = (GUESSER, EDITOR), (SOLVER, Workflow(()).render())
"""Of a question's four rollouts, the first two and those that continue from them."""
SETTINGS: dict[str, Any] = {"steps": 6, "learning_rate": 1e-3, "checkpoint_every": 50}
RANKS: dict[str, Any] = {"processes": 2, "micro_batch": 2}
IN_ROUNDS: dict[str, Any] = {"recursive": Recursive(limits=RoundLimits(answer_tokens=16)), "questions_per_step": 3}


class Learned(NamedTuple):
    """A run's curve, and its policy's weights before and after."""

    curve: list[dict[str, Any]]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


def learned(root: Path, *turns: Sequence[str], recursive: Recursive | None = None, **grpo: Any) -> Learned:
    """Train; `turns`: the texts of each generation of a step, for all prompts in turn."""
    plan, folder = tiny_plan(root, **SETTINGS, **grpo)
    if recursive is not None:
        (folder / PLAN_FILE).write_text(
            plan.model_copy(update={"recursive": recursive}).model_dump_json(), encoding="utf-8"
        )
    tokenizer = AutoTokenizer.from_pretrained(plan.base_policy)
    ids = [[[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts] for texts in turns]
    (folder / FILE).write_text(json.dumps(ids), encoding="utf-8")
    module = {"ops.training.grpo": "tests.integration.prewritten"}
    arguments = [module.get(part, part) for part in build_training_command(plan, folder)]
    ran = subprocess.run(
        arguments,
        cwd=ROOT,
        env=os.environ | prepare_environment(plan, folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=1920,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    policies = (plan.base_policy, folder / "policy")
    return Learned(read_curve(folder), *(load_file(policy / "model.safetensors") for policy in policies))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return learned(tmp_path_factory.mktemp("alone"), GROUP)


@pytest.fixture(scope="module")
def alone_in_rounds(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return learned(tmp_path_factory.mktemp("rounds"), *ROUNDS, **IN_ROUNDS)


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_rewards_losses_and_weights_are_those_of_one_process(alone: Learned, stage: str, tmp_path: Path) -> None:
    check_same(alone, learned(tmp_path, GROUP, deepspeed=f"{stage}.json", **RANKS))


def test_in_rounds_they_are_too(alone_in_rounds: Learned, tmp_path: Path) -> None:
    """The middle group is on both ranks."""
    ranks = learned(tmp_path, *ROUNDS, deepspeed="zero3.json", **RANKS, **IN_ROUNDS)
    check_same(alone_in_rounds, ranks)
    for one, both in zip(alone_in_rounds.curve, ranks.curve, strict=True):
        assert (both["rollouts"], both["round_2/rollouts"]) == (12, 6)
        counted = [name for name in one if name.startswith(("round_", "share/", "shape/")) or name in ("calls", "use")]
        assert {name: both[name] for name in counted} == {name: one[name] for name in counted}
    kept, improved = ("round_2/kept", "round_2/to_right")
    assert any(row[kept] for row in ranks.curve) and any(row[improved] for row in ranks.curve)


def check_same(alone: Learned, ranks: Learned) -> None:
    rewards = [[row["reward"] for row in run.curve] for run in (alone, ranks)]
    assert rewards[0] == pytest.approx(rewards[1]) and len(set(rewards[0])) > 1
    losses = [[row["loss"] for row in run.curve] for run in (alone, ranks)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    # (The entropy in a line is a mean of micro-batches' means, which are cut differently.)
    moved = max(float((alone.after[name] - value).abs().max()) for name, value in alone.before.items())
    apart = max(float((ranks.after[name] - value).abs().max()) for name, value in alone.after.items())
    assert moved > 1e-3 and apart < 0.01 * moved
