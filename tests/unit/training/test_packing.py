"""A group in one sequence has the log-probabilities and entropies of separate rows, by the real trainer's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from ops.training.grpo.trainer import run
from ops.training.step import packing
from ops.training.step.packing import pack
from ops.training.step.timed_trainer import TimedTrainer
from tests.unit.training.tiny import as_llama, tiny_plan

WITH_ENTROPY: dict[str, Any] = {"kl": 0.1, "entropy": 0.01, "micro_batch": 4}


def test_every_completion_sees_its_prompt_and_itself_and_no_other() -> None:
    ids = torch.tensor([[0, 5, 6, 7, 8], [0, 5, 6, 9, 0], [3, 5, 6, 7, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 1, 0]])
    packed = pack(ids, mask, 2)
    assert packed is not None
    inputs = {name: values.tolist() for name, values in packed.inputs.items()}
    assert inputs["input_ids"] == [[5, 6, 7, 8, 6, 9], [3, 5, 6, 7, 0, 0]]
    assert inputs["position_ids"] == [[0, 1, 2, 3, 1, 2], [0, 1, 2, 3, 0, 0]]
    assert inputs["labels"] == [[-100, -100, 7, 8, -100, 9], [-100, -100, -100, 7, -100, -100]]
    last = packed.inputs["attention_mask"][0, 0, 5].tolist()
    assert last == [True, False, False, False, True, True]  # `9` sees 5, its own copy of 6, and itself
    assert packed.group.tolist() == [0, 0, 1]
    assert packed.scored.tolist() == [[True, True], [True, False], [True, False]]


def test_groups_beyond_the_length_limit_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LONGEST", 3)
    assert pack(torch.tensor([[5, 6, 7], [5, 6, 8]]), torch.ones(2, 3), 1) is None


@pytest.mark.parametrize(
    ("options", "llama"),
    [
        pytest.param({}, False, id="qwen2"),
        pytest.param(WITH_ENTROPY, True, id="llama, shared keys, entropy"),
        pytest.param(WITH_ENTROPY, False, id="qwen2, entropy", marks=pytest.mark.long),
        pytest.param({}, True, id="llama, shared keys", marks=pytest.mark.long),
    ],
)
def test_the_trainer_scores_packed_groups_as_it_scores_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], llama: bool
) -> None:
    plan, folder = tiny_plan(tmp_path, **options)
    if llama:
        as_llama(plan.base_policy)
    rows = GRPOTrainer._get_per_token_logps_and_entropies
    groups = TimedTrainer._get_per_token_logps_and_entropies
    compared: list[int] = []

    def both(self: TimedTrainer, model: Any, ids: Any, mask: Any, completion: int, **others: Any) -> Any:
        one = rows(self, model, ids, mask, completion, **others)
        other = groups(self, model, ids, mask, completion, **others)
        said = mask[:, -completion:].bool()
        for separate, packed in zip(one[:2], other[:2], strict=True):
            if separate is not None:
                torch.testing.assert_close(packed[said], separate[said], rtol=1e-4, atol=1e-4)
        compared.append(int(said.sum()))
        return other

    def unused(*_: Any, **__: Any) -> Any:
        raise AssertionError("the trainer did not pack")

    monkeypatch.setattr(TimedTrainer, "_get_per_token_logps_and_entropies", both)
    run(plan, folder, lambda *_: None)
    assert compared and all(compared)
    monkeypatch.setattr(TimedTrainer, "_get_per_token_logps_and_entropies", groups)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", unused)
    plan, folder = tiny_plan(tmp_path / "packed", **options)
    if llama:
        as_llama(plan.base_policy)
    run(plan, folder, lambda *_: None)
