"""How completions are drawn and where they end, in training, evaluation and serving: by the recipe's sampling settings,
not those in a model's files, up to the token that closes a turn in the chat template; the scratch policy's tokenizer.

The configuration of ends is that of Qwen2.5's base model: only its end-of-text token ends generation, and its template
closes turns with another token. The policy there is a real model whose weights make each token name the next one.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import Conductor, PolicyCard, find_end_tokens
from ops.conductor.scratch_tokenizer import END_TOKEN
from ops.config import ColdStart, Generation, PretrainedPolicy, Recipe, Setup
from ops.core.digests import write_digest
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.grpo import trainer
from ops.training.grpo.configuration import build_trl_config
from ops.training.run.training_run import RunPlan, read_curve, write_run_plan
from ops.workflow.grammar import Step, Workflow
from tests.unit.training.plans import write_mix
from tests.unit.training.tiny import tiny_plan, train, watch

DECLARED = {
    "do_sample": True, "top_p": 0.3, "top_k": 2, "min_p": 0.5, "repetition_penalty": 3.0, "no_repeat_ngram_size": 1,
    "max_length": 7,
}  # fmt: skip
"""The `generation_config.json` of Qwen2.5-7B-Instruct with stronger values, so that an effect would show."""
CHAT = [{"role": "user", "content": "What is 12 + 30?"}]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    return tiny_plan(tmp_path_factory.mktemp("drawn"), steps=1, checkpoint_every=50)[0]


@pytest.fixture(scope="module")
def opinionated(plan: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the plan's policy with a generation configuration."""
    folder = tmp_path_factory.mktemp("opinionated") / "policy"
    shutil.copytree(plan.base_policy, folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | DECLARED), encoding="utf-8")
    return folder


def written(policy: Path, temperature: float) -> list[str]:
    return Conductor.load(policy).write([CHAT] * 8, temperature=temperature, seed=3)


def card_with(folder: Path, copy: Path, **changes: Any) -> Path:
    shutil.copytree(folder, copy)
    PolicyCard.read(folder).model_copy(update=changes).write(copy)
    return copy


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_completions_do_not_depend_on_the_models_generation_config(
    plan: RunPlan, opinionated: Path, tmp_path: Path, temperature: float
) -> None:
    plain = written(plan.base_policy, temperature)
    assert written(opinionated, temperature) == plain
    hub = card_with(opinionated, tmp_path / "hub", pretrained=PretrainedPolicy(model=str(opinionated), dtype="float32"))
    assert written(hub, temperature) == plain


def test_the_card_says_how_tokens_are_drawn(plan: RunPlan, tmp_path: Path) -> None:
    def drawn(temperature: float, **settings: Any) -> list[str]:
        copy = tmp_path / "-".join([str(temperature), *settings])
        return written(card_with(plan.base_policy, copy, generation=Generation(**settings)), temperature)

    greedy = drawn(0.0)
    assert drawn(1.5, top_k=1) == drawn(1.5, top_p=1e-6) == drawn(1.5, min_p=1.0) == greedy
    assert drawn(1.5) != greedy
    assert drawn(0.0, top_k=2, top_p=0.5, min_p=0.1) == greedy
    assert drawn(0.0, repetition_penalty=3.0) != greedy


def test_a_card_without_sampling_settings_samples_plainly(plan: RunPlan, tmp_path: Path) -> None:
    row = json.loads((plan.base_policy / "podium.json").read_text(encoding="utf-8"))
    del row["generation"]
    (tmp_path / "podium.json").write_text(json.dumps(row), encoding="utf-8")
    assert PolicyCard.read(tmp_path).generation == Generation()


def drawing(plan: RunPlan, **settings: Any) -> RunPlan:
    generation = Generation(**settings)
    return plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"generation": generation})})


def test_trls_configuration_has_the_recipes_sampling(plan: RunPlan, tmp_path: Path) -> None:
    made = build_trl_config(drawing(plan, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.1), tmp_path)
    assert (made.top_p, made.top_k, made.min_p, made.repetition_penalty) == (0.9, 20, 0.1, 1.1)
    made = build_trl_config(plan, tmp_path)
    assert (made.top_p, made.top_k, made.min_p, made.repetition_penalty) == (1.0, 0, None, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"top_k": 5}], ids=["plain", "top-k"])
def test_training_draws_by_the_recipe_alone(
    plan: RunPlan, opinionated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    def note(_: Any, own: Any, *__: Any) -> tuple[bool, Any]:
        return own.has_plain_sampling, own.model._prepare_generation_config(own.generation_config)[0]

    used = watch(monkeypatch, trainer.TimedTrainer, "_generate_single_turn", note)
    chosen = drawing(plan, **settings)
    train(chosen.model_copy(update={"base_policy": opinionated}), tmp_path)
    [(plainly, config)] = used
    assert plainly == (not settings)
    assert (config.top_p, config.top_k, config.min_p) == (1.0, settings.get("top_k", 0), None)
    assert (config.repetition_penalty, config.temperature, config.do_sample) == (1.0, 1.0, True)
    assert config.max_new_tokens == plan.recipe.grpo.max_completion_tokens
    saved = json.loads((tmp_path / "policy" / "generation_config.json").read_text(encoding="utf-8"))
    assert not saved.keys() & DECLARED.keys() and "eos_token_id" in saved
    assert PolicyCard.read(tmp_path / "policy").generation == chosen.recipe.generation


def test_policies_and_runs_of_before_keep_their_keys(plan: RunPlan, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    write_mix(workspace, read_problems(plan.problems))

    def folders(recipe: Recipe) -> tuple[str, str]:
        setup = Setup(workspace, recipe, plan.pool)
        return base_policy_folder(setup).name, write_run_plan(setup, plan.base_policy).name

    unsaid = folders(Recipe.model_validate(plan.recipe.model_dump(exclude={"generation"})))
    assert folders(drawing(plan).recipe) == unsaid
    assert not set(folders(drawing(plan, top_k=5).recipe)) & set(unsaid)


def test_without_a_training_mix_the_error_names_the_file_and_the_asset(plan: RunPlan, tmp_path: Path) -> None:
    recipe = plan.recipe.model_copy(update={"cold_start": ColdStart()})
    with pytest.raises(DataError, match=r"training_mix\.jsonl: does not exist\. Make it again"):
        base_policy_folder(Setup(Workspace(tmp_path), recipe, plan.pool))


def test_a_damaged_training_mix_is_named_and_is_no_other_mix(plan: RunPlan, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    mix = workspace.data / "training_mix.jsonl"
    write_mix(workspace, read_problems(plan.problems))
    write_digest(mix)
    setup = Setup(workspace, plan.recipe.model_copy(update={"cold_start": ColdStart()}), plan.pool)
    assert base_policy_folder(setup).name
    mix.write_bytes(mix.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"training_mix\.jsonl: .*Make it again: `podium run RECIPE`"):
        base_policy_folder(setup)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


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
    ids = tokenizer.convert_tokens_to_ids(["Ċ", "o", "k", "<|im_end|>", "A", "B", "A"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for token, following in pairwise(ids):
            model.lm_head.weight[following, token] = 10.0
    return model.eval()


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    """Make a plan of one GRPO step with that model."""
    made, _ = tiny_plan(tmp_path_factory.mktemp("turns"), steps=1, max_completion_tokens=12)
    tokenizer = chatml()
    speaker(tokenizer).save_pretrained(made.base_policy)
    tokenizer.save_pretrained(made.base_policy)
    return made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_evaluation_and_serving_stop_at_the_end_of_the_turn(talkative: RunPlan, temperature: float) -> None:
    assert written(talkative.base_policy, temperature) == ["ok"] * 8


@pytest.mark.slow
def test_training_stops_there_too_and_its_mask_ends_there(talkative: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = watch(monkeypatch, trainer.TimedTrainer, "_generate_and_score_completions", lambda batch, *_: batch)
    folder = talkative.root / "run"
    train(talkative, folder)
    tokenizer = chatml()
    for batch in batches:
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True):
            assert tokenizer.decode(ids[mask.bool()]) == "ok<|im_end|>"
    assert [row["completion_tokens"] for row in read_curve(folder)] == [3.0]
    saved = AutoModelForCausalLM.from_pretrained(folder / "policy").generation_config.eos_token_id
    assert set(saved) == {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")}


@pytest.mark.parametrize(("vllm", "expected"), [(False, None), (True, {"stop_token_ids": [3, 5]})])
def test_vllm_receives_the_stop_tokens(plan: RunPlan, tmp_path: Path, vllm: bool, expected: Any) -> None:
    recipe = plan.recipe.model_copy(update={"grpo": plan.recipe.grpo.model_copy(update={"vllm": vllm})})
    made = build_trl_config(plan.model_copy(update={"recipe": recipe}), tmp_path, [3, 5])
    assert made.generation_kwargs == expected


@pytest.mark.parametrize(
    ("template", "tokens"),
    [
        pytest.param(CHATML, {"<|endoftext|>", "<|im_end|>"}, id="a token of its own"),
        pytest.param(CHATML.replace("<|im_end|>", "<|endoftext|>"), {"<|endoftext|>"}, id="the end of text"),
        pytest.param(CHATML.replace("<|im_end|>", ""), {"<|endoftext|>", "<|im_start|>"}, id="the next turn's opening"),
        pytest.param(
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
            {"<|endoftext|>"},
            id="plain words between turns",
        ),
    ],
)
def test_the_end_of_turn_is_read_from_the_template(template: str, tokens: set[str]) -> None:
    tokenizer = chatml(template)
    ends = find_end_tokens(tokenizer.eos_token_id, tokenizer)
    assert set(tokenizer.convert_ids_to_tokens(ends)) == tokens


def test_the_ends_that_a_model_declares_count_too() -> None:
    assert find_end_tokens([0, 7], chatml()) == [0, 2, 7]
    scratch = train_tokenizer(["What is 1 + 1?"] * 9, 300)
    assert find_end_tokens(scratch.eos_token_id, scratch) == [scratch.convert_tokens_to_ids(END_TOKEN)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    text = 'What is the density of iron? Look up the density. Compute the result. model_id = [0]\nsubtasks = ["a"]'
    return train_tokenizer([text] * 20, 400)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_a_two_step_workflow_is_about_twenty_five_tokens(tokenizer: Any) -> None:
    workflow = Workflow((Step(0, "Look up the density.", "none"), Step(1, "Compute the result.", "all")))
    assert len(tokenizer(workflow.render())["input_ids"]) <= 30


def test_roles_and_the_end_are_single_tokens(tokenizer: Any) -> None:
    chat = [{"role": "user", "content": "iron?"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == "<|user|>iron?<|end|><|assistant|>"
    ids = tokenizer(text)["input_ids"]
    assert [ids[0], ids[-1]] == tokenizer.convert_tokens_to_ids(["<|user|>", "<|assistant|>"])
