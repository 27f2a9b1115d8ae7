"""One row for equal rollouts gives the same gradient, by TRL's own loss, with less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from ops.training.grpo.trainer import run
from ops.training.step.duplicates import without_duplicates
from ops.training.step.timed_trainer import TimedTrainer
from tests.unit.training.tiny import tiny_plan


def inputs(*rows: tuple[list[int], list[int], float]) -> dict[str, Any]:
    """Make prompts padded on the left and completions padded on the right, by one token each."""
    wide, long = max(len(p) for p, _, _ in rows) + 1, max(len(c) for _, c, _ in rows) + 1
    return {
        "prompt_ids": torch.tensor([[0] * (wide - len(p)) + p for p, _, _ in rows]),
        "prompt_mask": torch.tensor([[0] * (wide - len(p)) + [1] * len(p) for p, _, _ in rows]),
        "completion_ids": torch.tensor([c + [0] * (long - len(c)) for _, c, _ in rows]),
        "completion_mask": torch.tensor([[1] * len(c) + [0] * (long - len(c)) for _, c, _ in rows]),
        "advantages": torch.tensor([a for _, _, a in rows]),
        "num_items_in_batch": torch.tensor(9),
    }


def test_copies_add_up_and_padding_goes() -> None:
    left = without_duplicates(inputs(([5, 6], [7], 1.0), ([5, 6], [8, 9], -3.0), ([5, 6], [7], 1.0), ([5], [7], 1.0)))
    rows = {
        (tuple(p[m == 1].tolist()), tuple(c[k == 1].tolist())): float(a)
        for p, m, c, k, a in zip(*(left[name] for name in list(left)[:5]), strict=True)
    }
    # Three rows of four are left: their mean must have the weight of the four rows' mean.
    assert rows == {((5, 6), (7,)): 1.5, ((5, 6), (8, 9)): -2.25, ((5,), (7,)): 0.75}
    assert left["prompt_ids"].shape == (3, 2) and left["completion_ids"].shape == (3, 2)


def test_a_group_with_uniform_rewards_has_no_gradient_and_one_row_remains() -> None:
    left = without_duplicates(inputs(([5], [7], 0.0), ([5], [8], 0.0), ([6], [7], 1.0), ([6], [8], -1.0)))
    assert left["prompt_ids"].tolist() == [[6], [6]]
    dead = without_duplicates(inputs(([5], [7], 0.0), ([5], [8, 9], 0.0)))
    assert len(dead["advantages"]) == 1 and float(dead["advantages"][0]) == 0.0


def test_an_end_token_is_not_confused_with_equal_padding() -> None:
    whole = inputs(([5], [7, 0], 1.0), ([5], [7], -2.0))  # 0 is padding and a real token
    assert len(without_duplicates(whole)["advantages"]) == 2


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_the_gradient_is_that_of_all_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    plan, folder = tiny_plan(tmp_path, loss=loss, questions_per_step=4, rollouts_per_question=8, micro_batch=32)
    seen: list[tuple[int, int]] = []

    def compared(self: TimedTrainer, model: Any, given: dict[str, Any]) -> Any:
        # The small policy writes one workflow: artificial rewards make its copies' gradients differ.
        given = given | {"advantages": torch.linspace(-1, 2, len(given["advantages"]))}
        merged = without_duplicates(given)
        losses = [GRPOTrainer._compute_loss(self, model, each) for each in (given, merged)]
        one, other = (torch.autograd.grad(each, list(model.parameters()), retain_graph=True) for each in losses)
        for all_of_them, distinct in zip(one, other, strict=True):
            torch.testing.assert_close(distinct, all_of_them, rtol=1e-3, atol=1e-6)
        assert any(float(part.abs().max()) > 1e-3 for part in one)
        seen.append((len(given["advantages"]), len(merged["advantages"])))
        return losses[1]

    monkeypatch.setattr(TimedTrainer, "_compute_loss", compared)
    run(plan, folder, lambda *_: None)
    assert seen and all(distinct < every for every, distinct in seen)


def test_a_loss_that_needs_every_rollout_sees_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = GRPOTrainer._compute_loss

    def counted(self: GRPOTrainer, model: Any, given: dict[str, Any]) -> Any:
        sizes.append(len(given["advantages"]))
        return whole(self, model, given)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", counted)
    for name, options in {"kl": {"kl": 0.1}, "dapo": {"loss": "dapo"}, "entropy": {"entropy": 0.01}}.items():
        run(*tiny_plan(tmp_path / name, steps=1, micro_batch=8, **options), lambda *_: None)
    assert sizes == [8, 8, 8]
