"""The token that closes a turn in the chat template ends generation, in evaluation as in training.

The configuration is that of Qwen2.5's base model: only its end-of-text token ends generation, and its template closes
turns with another token. The policy here is a real model whose weights make each token name the next one.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ops.conductor.policy import Conductor, end_of_turn
from ops.conductor.scratch_tokenizer import END
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.grpo import trainer
from ops.training.grpo.configuration import configuration
from ops.training.grpo.trainer import run
from ops.training.run.plan import RunPlan
from tests.unit.training.tiny import tiny_plan

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LONGEST = 12


def chatml(template: str = CHATML) -> PreTrainedTokenizerFast:
    """One token per byte, and ChatML's three control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *alphabet])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=SPECIAL[0], pad_token=SPECIAL[0],
        additional_special_tokens=list(SPECIAL[1:]), padding_side="left",
    )  # fmt: skip
    fast.chat_template = template
    return fast


def speaker(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Make a model that says "ok", ends its turn and continues: "ok<|im_end|>ABABAB…"."""
    size = len(tokenizer)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=size, hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=2048, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    says = ["Ċ", "o", "k", "<|im_end|>", "A", "B", "A"]
    ids = tokenizer.convert_tokens_to_ids(says)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for token, following in pairwise(ids):
            model.lm_head.weight[following, token] = 10.0
    return model.eval()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    """Make a plan of one GRPO step with that model."""
    settings = {"steps": 1, "max_completion_tokens": LONGEST}
    made, _ = tiny_plan(tmp_path_factory.mktemp("turns"), **settings)
    tokenizer = chatml()
    speaker(tokenizer).save_pretrained(made.base_policy)
    tokenizer.save_pretrained(made.base_policy)
    return made


def test_evaluation_and_serving_stop_at_the_end_of_the_turn(plan: RunPlan) -> None:
    policy = Conductor.load(plan.base_policy)
    assert policy.write([[{"role": "user", "content": "Hello"}]] * 2) == ["ok", "ok"]
    assert policy.write([[{"role": "user", "content": "Hello"}]], temperature=1.0) == ["ok"]


@pytest.mark.slow
def test_training_stops_there_too_and_its_mask_ends_there(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[dict[str, Any]] = []
    score = trainer.TimedTrainer._generate_and_score_completions

    def recorded(self: Any, inputs: Any) -> Any:
        batches.append(score(self, inputs))
        return batches[-1]

    monkeypatch.setattr(trainer.TimedTrainer, "_generate_and_score_completions", recorded)
    folder = plan.root / "run"
    run(plan, folder, lambda *_: None)
    tokenizer = chatml()
    for batch in batches:
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True):
            assert tokenizer.decode(ids[mask.bool()]) == "ok<|im_end|>"
    assert '"completion_tokens": 3.0' in (folder / "curve.jsonl").read_text(encoding="utf-8")
    saved = AutoModelForCausalLM.from_pretrained(folder / "policy").generation_config.eos_token_id
    assert set(saved) == {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_vllm_receives_the_stop_tokens(plan: RunPlan, tmp_path: Path) -> None:
    assert configuration(plan, tmp_path, [3, 5]).generation_kwargs is None
    grpo = plan.recipe.grpo.model_copy(update={"vllm": True})
    with_vllm = plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"grpo": grpo})})
    assert configuration(with_vllm, tmp_path, [3, 5]).generation_kwargs == {"stop_token_ids": [3, 5]}


@pytest.mark.parametrize(
    ("template", "tokens"),
    [
        (CHATML, {"<|endoftext|>", "<|im_end|>"}),
        # closes turns with the end-of-text token itself
        (CHATML.replace("<|im_end|>", "<|endoftext|>"), {"<|endoftext|>"}),
        # closes no turn: only the next turn's opening ends it
        (CHATML.replace("<|im_end|>", ""), {"<|endoftext|>", "<|im_start|>"}),
        # plain words between turns: generation ends only at the end of the text
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", {"<|endoftext|>"}),
    ],
)
def test_the_end_of_turn_is_read_from_the_template(template: str, tokens: set[str]) -> None:
    tokenizer = chatml(template)
    ends = end_of_turn(speaker(chatml()).generation_config.eos_token_id, tokenizer)
    assert set(tokenizer.convert_ids_to_tokens(ends)) == tokens


def test_the_models_own_declaration_counts_too() -> None:
    tokenizer = chatml()
    model = speaker(tokenizer)
    model.generation_config.eos_token_id = [0, 7]
    assert end_of_turn(model.generation_config.eos_token_id, tokenizer) == [0, 2, 7]


def test_the_scratch_policy_stops_where_it_always_did() -> None:
    tokenizer = train_tokenizer(["What is 1 + 1?"] * 9, 300)
    model = speaker(chatml())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    assert end_of_turn(model.generation_config.eos_token_id, tokenizer) == [tokenizer.convert_tokens_to_ids(END)]
