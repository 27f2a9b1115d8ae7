"""Completions of a group, generated together, equal those of separate rows, by the real trainer's model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOTrainer

from ops.training.grpo.trainer import run
from ops.training.run.plan import CURVE
from ops.training.step.generation import draw, write
from ops.training.step.timed_trainer import TimedTrainer
from tests.unit.training.tiny import as_llama, tiny_plan

PROMPTS = [[5, 6, 7, 8, 9], [3, 4], [10, 11, 12]]
END = 0


@pytest.fixture(scope="module", params=["qwen2", "llama, shared keys"])
def model(request: pytest.FixtureRequest) -> Any:
    """Make a model with its random initial weights, whose next token is uncertain and depends on the whole input."""
    torch.manual_seed(3)
    settings, architecture, keys = LlamaConfig, LlamaForCausalLM, 2
    if request.param == "qwen2":
        settings, architecture, keys = Qwen2Config, Qwen2ForCausalLM, 4
    config = settings(
        vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=keys, initializer_range=0.6, eos_token_id=END, pad_token_id=END, bos_token_id=None,
    )  # fmt: skip
    return architecture(config).eval()


def _alone(model: Any, prompt: list[int], said: list[int]) -> torch.Tensor:
    """Return the continuation of `said` in a separate row."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([[*prompt, *said]])).logits[0, -1]
    return logits


def test_draws_are_those_of_multinomial() -> None:
    torch.manual_seed(4)
    shares = (3 * torch.randn(8, 16, 1024)).softmax(-1)
    torch.manual_seed(5)
    expected = torch.multinomial(shares.flatten(0, 1), 1).view(8, 16)
    following = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(draw(shares), expected)
    assert torch.equal(torch.rand(3), following)


def test_nothing_is_drawn_from_what_is_no_distribution() -> None:
    shares = torch.full((2, 4), 0.25)
    shares[1, 2] = torch.nan
    with pytest.raises(RuntimeError, match="probability tensor contains either"):
        draw(shares)


def test_each_token_is_drawn_from_its_own_rows_distribution(model: Any) -> None:
    torch.manual_seed(1)
    completions = write(model, PROMPTS, 4, 12, [END], 0.01)  # the likeliest token is nearly certain
    assert len({tuple(said) for said in completions}) > 1
    for prompt, said in zip([prompt for prompt in PROMPTS for _ in range(4)], completions, strict=True):
        for at, token in enumerate(said):
            logits = _alone(model, prompt, said[:at])
            assert logits.max() - logits[token] < 0.1


def test_tokens_are_sampled_in_proportion_to_their_probability(model: Any) -> None:
    torch.manual_seed(2)
    draws = 4000
    for temperature in (1.0, 3.0):
        firsts = [said[0] for said in write(model, PROMPTS, draws, 1, [END], temperature)]
        for index, prompt in enumerate(PROMPTS):
            likely = (_alone(model, prompt, []) / temperature).softmax(-1).tolist()
            counts = Counter(firsts[index * draws : (index + 1) * draws])
            for token, share in enumerate(likely):
                assert abs(counts[token] / draws - share) < 5 * (share * (1 - share) / draws) ** 0.5 + 1e-9


def test_a_completion_ends_with_its_first_end_or_at_the_longest(model: Any) -> None:
    torch.manual_seed(4)
    completions = write(model, PROMPTS, 64, 6, [END, 1], 2.0)
    assert all(not {END, 1} & set(said[:-1]) for said in completions)
    assert all(said[-1] in {END, 1} or len(said) == 6 for said in completions)
    assert {len(said) for said in completions} == {1, 2, 3, 4, 5, 6}


def test_the_trainer_writes_groups_and_one_row_each_where_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, groups = [], []
    ours, theirs = TimedTrainer._write, GRPOTrainer._generate_single_turn

    def by_groups(self: TimedTrainer, prompts: Any, rollouts: int) -> Any:
        groups.append((len(prompts), rollouts))
        return ours(self, prompts, rollouts)

    def by_rows(self: TimedTrainer, *args: Any, **kwargs: Any) -> Any:
        rows.append(len(args[0]))
        return theirs(self, *args, **kwargs)

    monkeypatch.setattr(TimedTrainer, "_write", by_groups)
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", by_rows)
    plan, folder = tiny_plan(tmp_path)
    as_llama(plan.base_policy)
    run(plan, folder, lambda *_: None)
    assert groups == [(2, 4), (2, 4)] and not rows
    monkeypatch.setattr(TimedTrainer, "packs", False)
    plan, folder = tiny_plan(tmp_path / "rows")
    run(plan, folder, lambda *_: None)
    assert rows == [8, 8] and len(groups) == 2


def test_completions_at_the_limit_are_cut_off_and_make_no_call(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, max_completion_tokens=8, steps=1)
    run(plan, folder, lambda *_: None)
    line = json.loads((folder / CURVE).read_text(encoding="utf-8").splitlines()[0])
    assert line["invalid/cut_off"] == 1.0
    assert line["completion_tokens"] == 8
    assert line["calls"] == 0
