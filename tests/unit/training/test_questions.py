"""A step whose questions are chosen by signal: its rollouts, and a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from ops.config import Adaptive, Grpo
from ops.core.problem import Problem
from ops.training.rewards import outage
from ops.training.run.plan import read_curve
from ops.training.step.timed_trainer import TimedTrainer
from tests.unit.training.tiny import tiny_plan, train

pytestmark = pytest.mark.slow
STEPS, QUESTIONS, GROUP = 5, 2, 4


@dataclass
class Trained:
    """One run: the problems of each batch of rollouts, and the advantages of each step's rollouts."""

    folder: Path
    rounds: list[tuple[int, list[str]]] = field(default_factory=list)
    """(calls of the trainer's loss so far, problem of each question)."""
    advantages: list[torch.Tensor] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return read_curve(self.folder)

    @property
    def rewards(self) -> list[float]:
        return [row["reward"] for row in self.rows]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        return load_file(self.folder / "policy" / "model.safetensors")

    @property
    def steps(self) -> list[list[list[str]]]:
        """Return the rounds of each step."""
        steps: dict[int, list[list[str]]] = {}
        for at, keys in self.rounds:
            steps.setdefault(at, []).append(keys)
        return list(steps.values())


def trained(folder: Path, *, cut_at: int | None = None, adaptive: bool = False, **grpo: Any) -> Trained:
    folder.mkdir()
    plan, run_folder = tiny_plan(folder, steps=STEPS, learning_rate=1e-3, temperature=1.5, **grpo)
    if adaptive:
        plan = plan.model_copy(update={"adaptive": Adaptive(steps=STEPS, smallest=5)})
    made = Trained(run_folder)
    whole, loss = outage.roll_out, TimedTrainer._compute_loss

    async def recording(texts: Sequence[str], problems: Sequence[Problem], team: Any, **more: Any) -> Any:
        made.rounds.append((len(made.advantages), [problem.key for problem in problems[::GROUP]]))
        assert all(len({p.key for p in problems[at : at + GROUP]}) == 1 for at in range(0, len(problems), GROUP))
        return await whole(texts, problems, team, **more)

    def kept(self: TimedTrainer, model: Any, inputs: dict[str, Any]) -> Any:
        made.advantages.append(inputs["advantages"].clone())
        return loss(self, model, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outage, "roll_out", recording)
        patch.setattr(TimedTrainer, "_compute_loss", kept)
        train(plan, run_folder, cut_at)
    return made


@pytest.mark.parametrize(
    "grpo",
    [{"sampling": "signal"}, pytest.param({"sampling": "signal", "adaptive": True}, marks=pytest.mark.long)],
    ids=["signal", "signal on subsets"],
)
def test_an_interrupted_run_makes_the_same_calls_and_updates(tmp_path: Path, grpo: dict[str, Any]) -> None:
    whole, resumed = trained(tmp_path / "whole", **grpo), trained(tmp_path / "cut", cut_at=3, **grpo)
    assert len(resumed.steps) == STEPS + 1  # the third step ended before its checkpoint, and is repeated
    assert resumed.steps[2] == resumed.steps[3]
    assert resumed.steps[:3] + resumed.steps[4:] == whole.steps
    assert resumed.rewards == whole.rewards
    assert all(torch.equal(weights, resumed.weights[name]) for name, weights in whole.weights.items())


def test_by_signal_no_problem_waits_for_an_epoch_to_end(tmp_path: Path) -> None:
    made = trained(tmp_path / "run", sampling="signal")
    assert [len(rounds) for rounds in made.steps] == [1] * STEPS  # no question is repeated
    assert all(len(set(keys)) == QUESTIONS for [keys] in made.steps)


@pytest.mark.parametrize(
    ("grpo", "words"),
    [
        ({"sampling": "signal", "length_window": 4}, "length_window puts questions in order"),
        ({"sampling": "forecast"}, "'epochs' or 'signal'"),
        ({"stop_without_signal": 0}, "greater than or equal to 1"),
    ],
)
def test_invalid_requests_are_refused(grpo: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Grpo.model_validate(grpo)
