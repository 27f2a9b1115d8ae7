"""A group that is generated together, packed in one sequence, or freed of copies has the numbers of separate rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOTrainer

from ops.training.run.training_run import read_curve
from ops.training.step import packing
from ops.training.step.duplicates import merge_duplicates
from ops.training.step.generation import generate_groups, sample_tokens
from ops.training.step.packing import pack_groups
from ops.training.step.timed_trainer import TimedTrainer
from tests.unit.training.tiny import as_llama, tiny_plan, train, watch

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
    assert torch.equal(sample_tokens(shares), expected)
    assert torch.equal(torch.rand(3), following)


def test_nothing_is_drawn_from_what_is_no_distribution() -> None:
    shares = torch.full((2, 4), 0.25)
    shares[1, 2] = torch.nan
    with pytest.raises(RuntimeError, match="probability tensor contains either"):
        sample_tokens(shares)


def test_each_token_is_drawn_from_its_own_rows_distribution(model: Any) -> None:
    torch.manual_seed(1)
    completions = generate_groups(model, PROMPTS, 4, 12, [END], 0.01)  # the likeliest token is nearly certain
    assert len({tuple(said) for said in completions}) > 1
    for prompt, said in zip([prompt for prompt in PROMPTS for _ in range(4)], completions, strict=True):
        for at, token in enumerate(said):
            logits = _alone(model, prompt, said[:at])
            assert logits.max() - logits[token] < 0.1


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_tokens_are_sampled_in_proportion_to_their_probability(model: Any, temperature: float) -> None:
    torch.manual_seed(2)
    draws = 4000
    firsts = [said[0] for said in generate_groups(model, PROMPTS, draws, 1, [END], temperature)]
    for index, prompt in enumerate(PROMPTS):
        likely = (_alone(model, prompt, []) / temperature).softmax(-1).tolist()
        counts = Counter(firsts[index * draws : (index + 1) * draws])
        for token, share in enumerate(likely):
            assert abs(counts[token] / draws - share) < 5 * (share * (1 - share) / draws) ** 0.5 + 1e-9


def test_a_completion_ends_with_its_first_end_or_at_the_longest(model: Any) -> None:
    torch.manual_seed(4)
    completions = generate_groups(model, PROMPTS, 64, 6, [END, 1], 2.0)
    assert all(not {END, 1} & set(said[:-1]) for said in completions)
    assert all(said[-1] in {END, 1} or len(said) == 6 for said in completions)
    assert {len(said) for said in completions} == {1, 2, 3, 4, 5, 6}


def test_the_trainer_writes_groups_and_rows_where_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = watch(
        monkeypatch, TimedTrainer, "_generate_groups", lambda _, own, prompts, rollouts: (len(prompts), rollouts)
    )
    rows = watch(monkeypatch, GRPOTrainer, "_generate_single_turn", lambda _, own, prompts, *rest: len(prompts))
    plan, folder = tiny_plan(tmp_path)
    as_llama(plan.base_policy)
    train(plan, folder)
    assert groups == [(2, 4), (2, 4)] and not rows
    monkeypatch.setattr(TimedTrainer, "can_pack", False)
    train(*tiny_plan(tmp_path / "rows"))
    assert rows == [8, 8] and len(groups) == 2


def test_completions_at_the_limit_are_cut_off_and_make_no_call(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, max_completion_tokens=8, steps=1)
    train(plan, folder)
    [line] = read_curve(folder)
    assert (line["invalid/cut_off"], line["completion_tokens"], line["calls"]) == (1.0, 8, 0)


def test_every_packed_completion_sees_its_prompt_and_itself_and_no_other() -> None:
    ids = torch.tensor([[0, 5, 6, 7, 8], [0, 5, 6, 9, 0], [3, 5, 6, 7, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 1, 0]])
    packed = pack_groups(ids, mask, 2)
    assert packed is not None
    inputs = {name: values.tolist() for name, values in packed.inputs.items()}
    assert inputs["input_ids"] == [[5, 6, 7, 8, 6, 9], [3, 5, 6, 7, 0, 0]]
    assert inputs["position_ids"] == [[0, 1, 2, 3, 1, 2], [0, 1, 2, 3, 0, 0]]
    assert inputs["labels"] == [[-100, -100, 7, 8, -100, 9], [-100, -100, -100, 7, -100, -100]]
    last = packed.inputs["attention_mask"][0, 0, 5].tolist()
    assert last == [True, False, False, False, True, True]  # `9` sees 5, its own copy of 6, and itself
    assert packed.group.tolist() == [0, 0, 1]
    assert packed.is_scored.tolist() == [[True, True], [True, False], [True, False]]


def test_groups_beyond_the_length_limit_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_PACKED_TOKENS", 3)
    assert pack_groups(torch.tensor([[5, 6, 7], [5, 6, 8]]), torch.ones(2, 3), 1) is None


WITH_ENTROPY: dict[str, Any] = {"kl": 0.1, "entropy": 0.01, "micro_batch": 4}


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
    rows = GRPOTrainer._get_per_token_logps_and_entropies
    groups = TimedTrainer._get_per_token_logps_and_entropies
    compared: list[int] = []

    def train_in(folder: Path) -> None:
        plan, run_folder = tiny_plan(folder, **options)
        if llama:
            as_llama(plan.base_policy)
        train(plan, run_folder)

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
    train_in(tmp_path / "compared")
    assert compared and all(compared)
    monkeypatch.setattr(TimedTrainer, "_get_per_token_logps_and_entropies", groups)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", unused)
    train_in(tmp_path / "packed")


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
    left = merge_duplicates(inputs(([5, 6], [7], 1.0), ([5, 6], [8, 9], -3.0), ([5, 6], [7], 1.0), ([5], [7], 1.0)))
    rows = {
        (tuple(p[m == 1].tolist()), tuple(c[k == 1].tolist())): float(a)
        for p, m, c, k, a in zip(*(left[name] for name in list(left)[:5]), strict=True)
    }
    # Three rows of four are left: their mean must have the weight of the four rows' mean.
    assert rows == {((5, 6), (7,)): 1.5, ((5, 6), (8, 9)): -2.25, ((5,), (7,)): 0.75}
    assert left["prompt_ids"].shape == (3, 2) and left["completion_ids"].shape == (3, 2)


def test_a_group_with_uniform_rewards_has_no_gradient_and_one_row_remains() -> None:
    left = merge_duplicates(inputs(([5], [7], 0.0), ([5], [8], 0.0), ([6], [7], 1.0), ([6], [8], -1.0)))
    assert left["prompt_ids"].tolist() == [[6], [6]]
    dead = merge_duplicates(inputs(([5], [7], 0.0), ([5], [8, 9], 0.0)))
    assert dead["advantages"].tolist() == [0.0]


def test_an_end_token_is_not_confused_with_equal_padding() -> None:
    whole = inputs(([5], [7, 0], 1.0), ([5], [7], -2.0))  # 0 is padding and a real token
    assert len(merge_duplicates(whole)["advantages"]) == 2


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_the_gradient_is_that_of_all_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    plan, folder = tiny_plan(tmp_path, loss=loss, questions_per_step=4, rollouts_per_question=8, micro_batch=32)
    seen: list[tuple[int, int]] = []

    def compared(self: TimedTrainer, model: Any, given: dict[str, Any]) -> Any:
        # The small policy writes one workflow: artificial rewards make its copies' gradients differ.
        given = given | {"advantages": torch.linspace(-1, 2, len(given["advantages"]))}
        merged = merge_duplicates(given)
        losses = [GRPOTrainer._compute_loss(self, model, each) for each in (given, merged)]
        one, other = (torch.autograd.grad(each, list(model.parameters()), retain_graph=True) for each in losses)
        for all_of_them, distinct in zip(one, other, strict=True):
            torch.testing.assert_close(distinct, all_of_them, rtol=1e-3, atol=1e-6)
        assert any(float(part.abs().max()) > 1e-3 for part in one)
        seen.append((len(given["advantages"]), len(merged["advantages"])))
        return losses[1]

    monkeypatch.setattr(TimedTrainer, "_compute_loss", compared)
    train(plan, folder)
    assert seen and all(distinct < every for every, distinct in seen)


@pytest.mark.parametrize("options", [{"kl": 0.1}, {"loss": "dapo"}, {"entropy": 0.01}], ids=["kl", "dapo", "entropy"])
def test_a_loss_that_needs_every_rollout_sees_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    sizes = watch(monkeypatch, GRPOTrainer, "_compute_loss", lambda _, own, model, given: len(given["advantages"]))
    train(*tiny_plan(tmp_path, steps=1, micro_batch=8, **options))
    assert sizes == [8]
