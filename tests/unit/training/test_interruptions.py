"""A training that is cut off, stopped or ended by non-finite numbers goes on to the result of an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from ops.training.grpo.trainer import run_training
from ops.training.run.checkpoints import CHECKPOINTS, find_last_checkpoint
from ops.training.run.stop_request import TrainingStopped
from ops.training.run.training_run import PLAN_FILE, RunPlan, read_curve
from ops.training.step.divergence import Divergence
from ops.training.step.trl_private import HookedTrainer
from tests.unit.training.tiny import VARIED, assert_same_training, tiny_plan, train, weights_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 11  # two questions per step; the eight problems make an epoch of four steps
SETTINGS: dict[str, Any] = {"steps": STEPS, "checkpoint_every": 2, **VARIED}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan, folder = tiny_plan(tmp_path_factory.mktemp("whole"), **SETTINGS)
    train(plan, folder)
    return folder


@pytest.mark.parametrize("cut_at", [5, *(pytest.param(step, marks=pytest.mark.long) for step in (3, 7, 9, 10))])
def test_rewards_and_weights_equal_those_of_an_uninterrupted_run(whole: Path, tmp_path: Path, cut_at: int) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS)
    train(plan, folder, cut_at)
    assert len(set(assert_same_training(whole, folder))) > 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_finishes_its_step_and_goes_on_as_if_it_had_not_been(
    whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS)
    before = signal.getsignal(number)
    with pytest.raises(TrainingStopped, match=rf"stopped by {number.name} after step 3 of {STEPS}.*goes on from there"):
        run_training(plan, folder, lambda step, *_: [os.kill(os.getpid(), number) for _ in range(2) if step == 2])
    assert signal.getsignal(number) is before
    checkpoint = find_last_checkpoint(folder / CHECKPOINTS)
    assert checkpoint is not None and checkpoint.name == "checkpoint-3"  # none was due after this step
    assert not (folder / "policy").exists()
    assert train(plan, folder) is not None
    assert len(assert_same_training(whole, folder)) == STEPS


def test_asked_to_stop_in_its_last_step_a_run_finishes(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path)
    result = run_training(plan, folder, lambda step, *_: os.kill(os.getpid(), signal.SIGTERM) if step == 1 else None)
    assert result is not None and result.steps == 2


class Poison(TrainerCallback):  # type: ignore[misc]
    """Insert NaN in one place in the second step."""

    def __init__(self, place: str) -> None:
        self._place = place

    def on_step_begin(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        if state.global_step == 1 and self._place == "gradient":
            next(model.parameters()).register_hook(lambda gradient: gradient * torch.nan)
        if state.global_step == 1 and self._place == "policy's probabilities":
            next(model.parameters()).data.fill_(torch.nan)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        if state.global_step == 1 and self._place == "weights":
            next(model.parameters()).data.fill_(torch.inf)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunPlan, Path]:
    """Make a plan of two steps, and the folder of its undisturbed run."""
    plan, folder = tiny_plan(tmp_path_factory.mktemp("short"), **VARIED)
    train(plan, folder)
    return plan, folder


@pytest.mark.parametrize("place", ["loss", "gradient", "weights", "policy's probabilities"])
def test_non_finite_numbers_end_a_run_before_a_checkpoint(
    place: str, short: tuple[RunPlan, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, undisturbed = short
    shutil.copy(undisturbed / PLAN_FILE, tmp_path)
    own = HookedTrainer.step_loss

    def poisoned(self: HookedTrainer, model: Any, inputs: dict[str, Any]) -> Any:
        loss = own(self, model, inputs)
        return loss * torch.nan if self.state.global_step == 1 and place == "loss" else loss

    with monkeypatch.context() as patch:
        patch.setattr(HookedTrainer, "step_loss", poisoned)
        with pytest.raises(Divergence, match=rf"^the {place} (is|are) not finite in step 2,.*grpo\.learning_rate"):
            train(plan, tmp_path, callbacks=[Poison(place)])
    checkpoint = find_last_checkpoint(tmp_path / CHECKPOINTS)
    assert checkpoint is not None and checkpoint.name == "checkpoint-1"
    assert all(values.isfinite().all() for values in weights_of(checkpoint).values())
    assert [row["step"] for row in read_curve(tmp_path)] == [1]
    train(plan, tmp_path)
    assert_same_training(undisturbed, tmp_path)
