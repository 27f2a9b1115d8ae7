"""What the Conductor is shown: ordinals, never names; examples that obey the grammar they teach."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ops.config import Pool, Prompting, Worker
from ops.errors import ConfigError
from ops.problem import Problem
from ops.workflow.grammar import parse
from ops.workflow.prompt import FewShot, conductor_messages, load_few_shots, offer
from ops.workflow.render import shape

DATA = Path(__file__).parents[3] / "data"
SETS = ("out_of_distribution", "in_distribution", "mixed")
CHOICE = Problem(
    id="q1",
    benchmark="mmlu",
    domain="mmlu",
    split="test",
    question="Which metal is liquid at 20 °C?",
    answer="B",
    grader="choice",
    choices=("Iron", "Mercury"),
)
POOL = Pool(name="p", workers=tuple(Worker(name=f"worker-{x}", model=f"openai/model-{x}") for x in "abcdefg"))


def full(**settings: object) -> str:
    few_shots = load_few_shots(DATA, "out_of_distribution")
    messages = conductor_messages(CHOICE, 6, Prompting.model_validate(settings), few_shots)
    assert [message["role"] for message in messages] == ["user"]
    return messages[0]["content"]


def test_compact_shows_the_question_and_the_ordinals_only() -> None:
    prompting = Prompting(style="compact", few_shots="none")
    assert conductor_messages(CHOICE, 6, prompting, ()) == [
        {
            "role": "user",
            "content": "Which metal is liquid at 20 °C?\nChoices: 2\nModels: 0 1 2 3 4 5",
        }
    ]


def test_compact_shows_examples_as_past_turns_in_the_exact_form() -> None:
    shots = load_few_shots(DATA, "mixed")
    messages = conductor_messages(CHOICE, 3, Prompting(style="compact"), shots)
    assert [message["role"] for message in messages] == ["user", "assistant"] * len(shots) + ["user"]
    assert messages[1]["content"] == shots[0].workflow.render()
    assert messages[0]["content"].endswith("\nModels: 0 1 2 3 4 5 6")
    assert messages[-1]["content"].endswith("\nModels: 0 1 2")


def test_full_explains_shows_examples_and_asks() -> None:
    text = full()
    question = "Which metal is liquid at 20 °C?\nA) Iron\nB) Mercury"
    assert text.index("model_id") < text.index("--- Example 4 ---") < text.index(question)
    assert "Models on offer: Model 0, Model 1, Model 2, Model 3, Model 4, Model 5\n" in text
    assert "at most 5 steps" in text
    assert '["all"]' in text
    for shot in load_few_shots(DATA, "out_of_distribution"):
        assert shot.question in text
        assert shot.workflow.render() in text
    assert not any(name in text for name in ("worker-a", "openai", "gpt", "Claude", "Gemini", "Qwen"))


def test_full_tells_the_mode_and_the_limit() -> None:
    assert "[0, 2]" not in full(access="binary")
    assert "[0, 2]" in full(access="fine_grained")
    assert "at most 3 steps" in full(max_steps=3)
    assert "--- Example" not in conductor_messages(CHOICE, 6, Prompting(), ())[0]["content"]


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_nothing_shown_breaks_the_limit_that_is_told(most: int) -> None:
    text = full(max_steps=most)
    blocks = text.split("model_id = ")[1:]
    assert blocks
    for block in blocks:
        parsed = parse("model_id = " + block, offered=7, max_steps=most)
        assert parsed.workflow is not None, parsed.detail


def test_the_instance_in_the_instruction_names_only_offered_models() -> None:
    alone = conductor_messages(CHOICE, 1, Prompting(), ())[0]["content"]
    assert parse(alone, offered=1).workflow is not None


@pytest.mark.parametrize("name", SETS)
def test_examples_parse_and_vary(name: str) -> None:
    shots = load_few_shots(DATA, name)
    assert len(shots) >= 4
    for shot in shots:
        assert parse(shot.workflow.render(), offered=7).workflow == shot.workflow
        assert "Model " not in shot.reasoning
    assert len({len(shot.steps) for shot in shots}) >= 3
    assert len({step.worker for shot in shots for step in shot.steps}) >= 5
    assert len({shape(shot.workflow) for shot in shots}) >= 3


def test_the_sets_are_what_their_names_say() -> None:
    kinds = {name: sorted(shot.kind for shot in load_few_shots(DATA, name)) for name in SETS}
    assert kinds["out_of_distribution"] == [
        "countdown numbers",
        "countdown numbers",
        "deep mathematics",
        "medical reasoning",
    ]
    assert kinds["in_distribution"] == ["mathematics", "multiple choice", "programming", "short answer"]
    assert kinds["mixed"] == ["countdown numbers", "mathematics", "medical reasoning", "programming"]
    questions = [shot.question for name in SETS for shot in load_few_shots(DATA, name)]
    assert len(set(questions)) == len(questions)
    assert load_few_shots(DATA, "none") == ()


SHOT = {
    "kind": "x",
    "question": "Q?",
    "reasoning": "Think.",
    "steps": [{"worker": 0, "subtask": "Go.", "access": "none"}],
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": [{"worker": 9, "subtask": "Go."}]}, "9 is not among 0 … 6"),
        ({"steps": [{"worker": -1, "subtask": "Go."}]}, "negative"),
        ({"steps": [{"worker": 0, "subtask": " "}]}, "must say something"),
        ({"steps": [{"worker": 0, "subtask": "Go.", "access": [0]}]}, "steps.0.access"),
        ({"steps": []}, "examples.0.steps"),
        ({"workers": 3}, "not a known key"),
        ({"question": None}, "examples.0.question"),
    ],
)
def test_a_bad_example_file_is_one_clear_error(tmp_path: Path, change: dict[str, object], told: str) -> None:
    folder = tmp_path / "few_shots"
    folder.mkdir()
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({"examples": [SHOT]}), encoding="utf-8")
    assert load_few_shots(tmp_path, "mine") == (FewShot.model_validate(SHOT),)
    file.write_text(yaml.safe_dump({"examples": [SHOT | change]}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_few_shots(tmp_path, "mine")
    assert told in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_a_missing_example_file_names_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="in_distribution, mixed, out_of_distribution"):
        load_few_shots(DATA, "absent")


def test_offer_keeps_or_shuffles_the_pool() -> None:
    assert offer(POOL, None) == POOL.workers
    orders = {tuple(worker.name for worker in offer(POOL, seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == sorted(POOL.names) for order in orders)
    assert offer(POOL, 3) == offer(POOL, 3)
