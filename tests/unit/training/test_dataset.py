"""The prompts that GRPO trains on: plain text between the turns, and room for a completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trl.trainer.utils import RepeatSampler

from ops.conductor.policy import PolicyCard, chat_tokens
from ops.config import Pool, Recipe, Worker, load_recipe
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.grpo.dataset import by_length, dataset, row_maker
from ops.training.run.plan import RunPlan
from ops.workflow.cards import WorkerCard
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.team import Team
from tests.unit.training.plans import plan_of

ROOT = Path(__file__).parents[3]
POOL = Pool(name="p", workers=(Worker(name="a", model="local/a"), Worker(name="b", model="local/b")))


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["What is 1 + 1? Models: 0 1"] * 9, 300)


def plan(steps: int = 1, questions: int = 1, window: int = 1, **prompting: object) -> tuple[RunPlan, Team]:
    quick = load_recipe(ROOT / "config", "quickstart")
    grpo = {
        "steps": steps, "questions_per_step": questions, "rollouts_per_question": 4, "micro_batch": 4,
        "length_window": window,
    }  # fmt: skip
    changed = {
        "prompting": quick.prompting.model_dump() | prompting, "grpo": quick.grpo.model_dump() | grpo,
    }  # fmt: skip
    recipe = Recipe.model_validate(quick.model_dump() | changed)
    cards = tuple(WorkerCard(accuracy={"math": share}, cost_usd=0.001) for share in (0.25, 0.75))
    card = PolicyCard(
        recipe="quickstart", pool=POOL, offered=POOL.names, prompting=recipe.prompting, max_completion_tokens=56,
        cards=cards if recipe.prompting.cards else (),
    )  # fmt: skip
    made = plan_of(recipe, pool=POOL, offered=POOL.names)
    return made, card.team(POOL, ROOT / "data", recipe.execution)


def problem(question: str, key: str = "p1") -> Problem:
    return Problem(key, "rlpr", "rlpr", "train", question, "42", "text")


def test_control_tokens_in_a_question_are_text(tokenizer) -> None:
    made, team = plan()
    [row] = dataset(made, [problem("What?<|end|><|assistant|>")], row_maker(made, team, tokenizer))
    assert row["problem"] == "rlpr/p1"
    assert row["prompt"] == [{"role": "user", "content": "What?< |end|>< |assistant|>\nModels: 0 1"}]


def test_cards_are_shown_where_the_recipe_asks_for_them(tokenizer) -> None:
    made, team = plan(cards=True)
    [row] = dataset(made, [problem("What?")], row_maker(made, team, tokenizer))
    assert row["prompt"][0]["content"].endswith("Models: 0 1\n0: math 25 $0.0010\n1: math 75 $0.0010")


def test_unknown_words_are_random_letters_that_differ_by_epoch(tokenizer) -> None:
    made, team = plan(steps=2, unknown_words=0.5)
    asked = problem("How many apples cost 12 euros? Élise pays 3.50 for 4 of them and 7 for 2 pears")
    first, second = (each[0]["content"] for each in dataset(made, [asked], row_maker(made, team, tokenizer))["prompt"])
    assert first != second
    for text in (first, second):
        words, shown = asked.question.split(), text.split("\n")[0].split()
        changed = [new for old, new in zip(words, shown, strict=True) if old != new]
        assert 2 < len(changed) < 12
        assert list(map(len, shown)) == list(map(len, words))
        assert [word for word in shown if word[0].isdigit()] == ["12", "3.50", "4", "7", "2"]
    again = dataset(made, [asked], row_maker(made, team, tokenizer))["prompt"]
    assert [each[0]["content"] for each in again] == [first, second]


def test_a_problem_too_long_for_the_model_is_named_before_training_starts(tokenizer) -> None:
    made, team = plan()
    room, row = 300 - made.recipe.grpo.max_completion_tokens, row_maker(made, team, tokenizer, 300)
    short, long = problem("7" * 40), problem("7" * 400)
    assert chat_tokens(tokenizer, dataset(made, [short], row)[0]["prompt"]) < room
    with pytest.raises(PromptTooLongError, match=rf"rlpr problem p1: .* takes {room} before"):
        dataset(made, [short, long], row)


def test_steps_of_like_length_keep_every_row_and_differ_little_within() -> None:
    rows = [{"prompt": [{"role": "user", "content": "x" * (7 * n % 101)}], "problem": str(n)} for n in range(96)]
    ordered = by_length(rows, 8, 4, seed=1)
    assert sorted(row["problem"] for row in ordered) == sorted(row["problem"] for row in rows)
    assert ordered == by_length(rows, 8, 4, seed=1) != by_length(rows, 8, 4, seed=2)

    def padded(some: list[dict[str, Any]]) -> int:
        lengths = [len(row["prompt"][0]["content"]) for row in some]
        return sum(8 * max(lengths[start : start + 8]) for start in range(0, 96, 8))

    assert padded(ordered) < 0.75 * padded(rows)


def test_an_unfinished_step_comes_last() -> None:
    rows = [{"prompt": [{"role": "user", "content": "x" * n}], "problem": str(n)} for n in range(19)]
    ordered = by_length(rows, 8, 2, seed=1)
    last = sorted(len(row["prompt"][0]["content"]) for row in ordered[16:])
    assert len(ordered) == 19
    assert len(last) == 3


def test_a_whole_training_is_asked_as_trls_own_sampler_would(tokenizer) -> None:
    made, team = plan(steps=7, questions=2)
    some = [problem(f"What is {n}?", str(n)) for n in range(7)]
    rows = dataset(made, some, row_maker(made, team, tokenizer))
    sampler = RepeatSampler(some, mini_repeat_count=1, batch_size=2, seed=made.recipe.seed)
    asked = [f"rlpr/{place}" for _ in range(3) for place in sampler]
    assert rows["problem"] == asked[:14]
    assert rows["epoch"] == [0] * 6 + [1] * 6 + [2] * 2


@pytest.mark.parametrize("window", [1, 2])
def test_every_epoch_has_an_order_of_its_own(tokenizer, window: int) -> None:
    made, team = plan(steps=8, questions=2, window=window)
    some = [problem("x" * n, str(n)) for n in range(8)]
    asked = dataset(made, some, row_maker(made, team, tokenizer))["problem"]
    assert sorted(asked[:8]) == sorted(asked[8:]) == sorted(each.key for each in some)
    assert asked[:8] != asked[8:]


def test_fewer_problems_than_a_step_asks_are_refused(tokenizer) -> None:
    made, team = plan(questions=4)
    some = [problem("What?", str(n)) for n in range(3)]
    with pytest.raises(DataError, match=r"holds 3 problems .* asks 4\. Ask fewer at a step \(grpo.questions_per_step"):
        dataset(made, some, row_maker(made, team, tokenizer))
