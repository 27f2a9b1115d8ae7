"""Non-finite numbers end a training before they reach the weights or
a checkpoint; the last checkpoint can be continued.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from ops.training.grpo.trainer import run
from ops.training.run.checkpoints import CHECKPOINTS, last_checkpoint
from ops.training.run.plan import PLAN, RunPlan, read_curve
from ops.training.step.divergence import Divergence
from ops.training.step.questions import AskingTrainer
from tests.unit.training.tiny import tiny_plan

pytestmark = pytest.mark.slow


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
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunPlan, Path]:
    """Make a plan, and the folder of its undisturbed run."""
    plan, folder = tiny_plan(tmp_path_factory.mktemp("divergence"), learning_rate=1e-3, temperature=1.5)
    run(plan, folder, lambda *_: None)
    return plan, folder


@pytest.mark.parametrize("place", ["loss", "gradient", "weights", "policy's probabilities"])
def test_the_run_ends_and_goes_on_from_before(place: str, planned: tuple[RunPlan, Path], tmp_path: Path) -> None:
    plan, whole = planned
    shutil.copy(whole / PLAN, tmp_path)
    own = AskingTrainer.loss_of

    def poisoned(self: AskingTrainer, model: Any, inputs: dict[str, Any]) -> Any:
        loss = own(self, model, inputs)
        return loss * torch.nan if self.state.global_step == 1 and place == "loss" else loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AskingTrainer, "loss_of", poisoned)
        with pytest.raises(Divergence, match=rf"^the {place} (is|are) not finite in step 2,.*grpo\.learning_rate"):
            run(plan, tmp_path, lambda *_: None, [Poison(place)])
    checkpoint = last_checkpoint(tmp_path / CHECKPOINTS)
    assert checkpoint is not None and checkpoint.name == "checkpoint-1"
    assert all(values.isfinite().all() for values in load_file(checkpoint / "model.safetensors").values())
    assert [row["step"] for row in read_curve(tmp_path)] == [1]
    run(plan, tmp_path, lambda *_: None)
    assert [row["reward"] for row in read_curve(tmp_path)] == [row["reward"] for row in read_curve(whole)]
    weights = (load_file(folder / "policy" / "model.safetensors") for folder in (tmp_path, whole))
    assert all(torch.equal(*pair) for pair in zip(*(each.values() for each in weights), strict=True))
