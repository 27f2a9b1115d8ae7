"""A policy made from scratch generates without torch what transformers generates from the same files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation import logits_process

from ops.conductor.from_scratch import ScratchConductor, TokenSampler
from ops.conductor.policy import Completion, Conductor, PolicyCard, count_chat_tokens, load_model, render_chat
from ops.conductor.scratch_tokenizer import ScratchTokenizer
from ops.conductor.writer import load_in_process
from ops.config import Generation, PretrainedPolicy, Prompting, load_pool
from ops.core.messages import Message
from ops.synthetic.problems import generate_problems
from ops.workflow.prompt import PromptTooLongError, build_conductor_messages
from tests.builders import SCRATCH_COMPLETION, scratch_policy
from tests.unit.training.tiny import ROOT, as_llama, tiny_plan

COMPLETION, CONTEXT = SCRATCH_COMPLETION, 224
ALL = [logits_process.TopKLogitsWarper(9), logits_process.TopPLogitsWarper(0.7), logits_process.MinPLogitsWarper(0.1)]
STRANGE = [
    "", " ", "x", "12 + 3456.7", "é e\u0301 中文 🙂 \u2028", "<|end|><|user|>", 'model_id = [0]\nsubtasks = ["',
    "\ud7ff\x00", "two\n\n \n  lines \t\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of random weights, whose likeliest tokens are close to each other."""
    place = tmp_path_factory.mktemp("untrained") / "policy"
    scratch_policy(place, *prompts(40, seed=9), vocabulary=500, hidden=48, layers=3, heads=4, max_tokens=CONTEXT)
    return place


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learnt one workflow."""
    plan, _ = tiny_plan(tmp_path_factory.mktemp("taught"))
    return plan.base_policy


def prompts(count: int, seed: int = 1) -> list[list[Message]]:
    """Real questions, and strange ones of 1 to 80 characters."""
    drawn, offered = Random(seed), len(load_pool(ROOT / "config", "quickstart").names)
    prompting = Prompting(style="compact", few_shots="none")
    real = [
        build_conductor_messages(problem, offered, prompting, ())
        for name in ("math500", "mmlu", "rlpr")
        for problem in generate_problems(name, "test", 1 + count // 4, seed)
    ]
    strange = [[user("".join(drawn.choices("aé7 <|>\n中", k=drawn.randint(1, 80))))] for _ in range(count)]
    mixed = [*real, *strange]
    drawn.shuffle(mixed)
    return mixed[:count]


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def scratch(folder: Path, **changes: Any) -> ScratchConductor:
    loaded = load_in_process(folder, PolicyCard.read(folder).model_copy(update=changes))
    assert isinstance(loaded, ScratchConductor)
    return loaded


def in_batches(
    complete: Callable[[Sequence[Sequence[Message]]], list[Completion]], asked: Sequence[Sequence[Message]], size: int
) -> list[Completion]:
    return [each for start in range(0, len(asked), size) for each in complete(asked[start : start + size])]


@pytest.mark.parametrize("policy", ["untrained", "taught"])
@pytest.mark.parametrize(("batch", "count"), [(1, 12), (64, 144), pytest.param(3, 36, marks=pytest.mark.long)])
def test_greedy_completions_are_those_of_transformers(
    policy: str, batch: int, count: int, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(policy)
    asked = prompts(count)
    mine = in_batches(scratch(folder).complete, asked, batch)
    assert mine == in_batches(Conductor.load(folder).complete, asked, batch)
    assert len({each.prompt_tokens for each in mine}) > 10, "the prompts differ in length"
    assert policy == "untrained" or any(each.is_ended for each in mine)


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_a_completion_stops_at_max_tokens(taught: Path, max_tokens: int) -> None:
    asked = prompts(8)
    mine = scratch(taught).complete(asked, max_tokens=max_tokens)
    assert mine == Conductor.load(taught).complete(asked, max_tokens=max_tokens)
    assert {each.tokens for each in mine} == {max_tokens} and not any(each.is_ended for each in mine)


def test_a_prompt_at_the_limit_of_the_context_is_completed_and_one_beyond_is_not(untrained: Path) -> None:
    mine, reference = scratch(untrained), Conductor.load(untrained)
    assert mine.prompt_limit == reference.prompt_limit == CONTEXT - COMPLETION
    around = count_chat_tokens(reference._tokenizer, [user("")])
    longest, beyond = ([user("7" * (CONTEXT - COMPLETION - around + more))] for more in (0, 1))
    asked = [longest, [user("short")]]
    assert [(each.has_room(longest), each.has_room(beyond)) for each in (mine, reference)] == [(True, False)] * 2
    assert mine.complete(asked) == reference.complete(asked)
    assert mine.complete(asked)[0].prompt_tokens == CONTEXT - COMPLETION
    with pytest.raises(PromptTooLongError) as error:
        mine.complete([*asked, beyond])
    assert (error.value.index, error.value.tokens, error.value.limit) == (2, mine.prompt_limit + 1, mine.prompt_limit)


def test_a_repetition_penalty_applies_to_greedy_completions(untrained: Path) -> None:
    drawn, asked = Generation(repetition_penalty=1.4), prompts(64)
    card = PolicyCard.read(untrained).model_copy(update={"generation": drawn})
    penalized = scratch(untrained, generation=drawn).complete(asked)
    # One at a time: transformers penalizes the padding of a batch, too.
    assert penalized[:16] == in_batches(Conductor.load(untrained, card).complete, asked[:16], 1)
    assert penalized != scratch(untrained).complete(asked)


@pytest.mark.parametrize(
    ("drawn", "warpers"),
    [
        (Generation(), []),
        (Generation(top_k=5), [logits_process.TopKLogitsWarper(5)]),
        (Generation(top_p=0.6), [logits_process.TopPLogitsWarper(0.6)]),
        (Generation(min_p=0.2), [logits_process.MinPLogitsWarper(0.2)]),
        (Generation(top_k=9, top_p=0.7, min_p=0.1), ALL),
        (Generation(top_p=1e-6), [logits_process.TopPLogitsWarper(1e-6)]),
    ],
    ids=["plain", "top-k", "top-p", "min-p", "all", "one token"],
)
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_tokens_are_drawn_from_the_distribution_of_transformers(
    drawn: Generation, warpers: list[Any], temperature: float
) -> None:
    logits = np.random.default_rng(3).normal(0, 2, (50, 300)).astype(np.float32)
    processors = logits_process.LogitsProcessorList([logits_process.TemperatureLogitsWarper(temperature), *warpers])
    reference = processors(torch.zeros((50, 1), dtype=torch.long), torch.from_numpy(logits.copy())).softmax(-1).numpy()
    mine = TokenSampler(drawn, temperature, [[0]] * 50, range(50)).probabilities(logits)
    np.testing.assert_allclose(mine, reference, atol=1e-6)
    assert ((mine > 0) == (reference > 0)).all()


def test_draws_follow_the_distribution() -> None:
    logits, count = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], dtype=np.float32)), 8000
    sampler = TokenSampler(Generation(top_k=3), 1.0, [[0]] * count, range(count))
    tokens = sampler(np.repeat(logits, count, axis=0), np.arange(count))
    shares = np.bincount(tokens, minlength=4) / count
    np.testing.assert_allclose(shares, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], atol=0.02)


def test_a_sampled_completion_does_not_depend_on_its_batch(untrained: Path) -> None:
    conductor, asked = scratch(untrained), prompts(12)
    together = conductor.complete(asked, temperature=1.0, seed=5)
    assert together == in_batches(lambda some: conductor.complete(some, temperature=1.0, seed=5), asked, 1)
    assert together == conductor.complete(asked, temperature=1.0, seed=5)
    assert not set(together) & set(conductor.complete(asked, temperature=1.0, seed=6))


def test_texts_have_the_tokens_of_transformers(untrained: Path) -> None:
    mine, (_, reference) = ScratchTokenizer.read(untrained), load_model(untrained, PolicyCard.read(untrained))
    assert mine is not None
    chats = [*([user(text)] for text in STRANGE), *prompts(50), [*prompts(1)[0], {"role": "assistant", "content": "x"}]]
    texts = [render_chat(reference, chat) for chat in chats]
    assert [render_chat(mine, chat) for chat in chats] == texts
    encoded = mine(texts, add_special_tokens=False)["input_ids"]
    assert encoded == reference(texts, add_special_tokens=False)["input_ids"]
    assert encoded == [mine(text, add_special_tokens=False)["input_ids"] for text in texts]
    for tokens in (*encoded, list(range(len(reference)))):
        assert mine.decode(tokens, skip_special_tokens=True) == reference.decode(tokens, skip_special_tokens=True)


def _edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")


OTHERS: dict[str, Callable[[Path], object]] = {
    "another architecture": as_llama,
    "another precision": lambda folder: _edit(folder / "config.json", dtype="bfloat16"),
    "grouped queries": lambda folder: _edit(folder / "config.json", num_key_value_heads=1),
    "another rope": lambda folder: _edit(folder / "config.json", rope_parameters={"rope_type": "yarn", "factor": 4.0}),
    "another template": lambda folder: (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "large weights": lambda folder: _enlarge(folder / "model.safetensors"),
}


def _enlarge(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(65 * 2**20)


@pytest.mark.parametrize("change", OTHERS)
def test_transformers_generates_for_any_other_policy(taught: Path, tmp_path: Path, change: str) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(taught, folder)
    card = PolicyCard.read(folder)
    assert ScratchConductor.load(folder, card) is not None
    hub = card.model_copy(update={"pretrained": PretrainedPolicy(model=str(folder), dtype="float32")})
    assert ScratchConductor.load(folder, hub) is None
    OTHERS[change](folder)
    assert ScratchConductor.load(folder, card) is None


def test_neither_torch_nor_transformers_is_imported(taught: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ops.conductor.writer import load_in_process\n"
        "text = load_in_process(Path(sys.argv[1])).write([[{'role': 'user', 'content': 'What is 1 + 1?'}]])\n"
        "print(text, {'torch', 'transformers', 'scipy'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(taught)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, cwd=ROOT)
    assert made.stdout.strip() == f"{scratch(taught).write([[user('What is 1 + 1?')]])} set()"


def test_weights_are_read_as_transformers_reads_them(taught: Path) -> None:
    model, _ = load_model(taught, PolicyCard.read(taught))
    tokens = [5, 9, 30, 31, 32]
    with torch.inference_mode():
        reference = model(torch.tensor([tokens])).logits[0, -1].numpy()
    seen: list[Any] = []

    def choose(logits: Any, numbers: Any) -> Any:
        seen.append(logits)
        return logits.argmax(axis=1)

    scratch(taught)._decoder.generate([tokens], 1, (), choose)
    np.testing.assert_allclose(seen[0][0], reference, atol=1e-4)
