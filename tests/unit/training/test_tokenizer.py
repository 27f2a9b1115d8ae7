"""The scratch policy's tokenizer: any text round-trips, a workflow is short."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.training.cold_start.tokenizer import train_tokenizer
from ops.workflow.grammar import Step, Workflow

TEXT = 'What is the density of iron? Look up the density. Compute the result. model_id = [0]\nsubtasks = ["a"]'


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT] * 20, 400)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_round_trips(tokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_a_two_step_workflow_is_about_twenty_five_tokens(tokenizer) -> None:
    workflow = Workflow((Step(0, "Look up the density.", "none"), Step(1, "Compute the result.", "all")))
    assert len(tokenizer(workflow.render())["input_ids"]) <= 30


def test_roles_and_the_end_are_single_tokens(tokenizer) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "iron?"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<|user|>iron?<|end|><|assistant|>"
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|user|>") and ids[-1] == tokenizer.convert_tokens_to_ids(
        "<|assistant|>"
    )
