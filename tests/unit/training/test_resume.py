"""An interrupted training, in its first epoch or a later one, has the same result as an uninterrupted one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ops.training.run.plan import read_curve
from tests.unit.training.tiny import tiny_plan, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 11  # two questions per step; the eight problems make an epoch of four steps


def trained(folder: Path, cut_at: int | None = None) -> Path:
    folder.mkdir()
    plan, run_folder = tiny_plan(folder, steps=STEPS, learning_rate=1e-3, temperature=1.5, checkpoint_every=2)
    train(plan, run_folder, cut_at)
    return run_folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("resume") / "whole")


@pytest.mark.parametrize("cut_at", [5, *(pytest.param(step, marks=pytest.mark.long) for step in (3, 7, 9, 10))])
def test_rewards_and_weights_equal_those_of_an_uninterrupted_run(whole: Path, tmp_path: Path, cut_at: int) -> None:
    cut = trained(tmp_path / "cut", cut_at)
    rewards = [[row["reward"] for row in read_curve(folder)] for folder in (whole, cut)]
    assert rewards[0] == rewards[1] and len(set(rewards[0])) > 1
    weights, again = (load_file(folder / "policy" / "model.safetensors") for folder in (whole, cut))
    assert all(torch.equal(each, again[name]) for name, each in weights.items())
