"""The prompts that GRPO trains on: plain text between the turns, room for a completion; and the order of problems: by
epochs, by length, or in proportion to expected signal.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from trl.trainer.utils import RepeatSampler

from ops.conductor.policy import PolicyCard, count_chat_tokens
from ops.config import Pool, Recipe, Setup, Worker
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.grpo.dataset import build_dataset, build_row_maker
from ops.training.step.problem_sampling import UNIFORM_SHARE, WeightedRoundRobin, forecast_variances
from ops.workflow.cards import WorkerCard
from ops.workflow.prompt import PromptTooLongError
from tests.unit.training import plans
from tests.unit.training.plans import QUICK, ROOT, plan_of

POOL = Pool(name="p", workers=(Worker(name="a", model="local/a"), Worker(name="b", model="local/b")))


@cache
def tokenizer() -> Any:
    return train_tokenizer(["What is 1 + 1? Models: 0 1"] * 9, 300)


def rows_of(problems: list[Problem], room: int | None = None, prompting: Any = None, **grpo: int) -> Any:
    """Return the data set of a training on `problems` with other settings of `prompting` and `grpo`."""
    small = {"steps": 1, "questions_per_step": 1, "rollouts_per_question": 4, "micro_batch": 4}
    changed = {
        "prompting": QUICK.prompting.model_dump() | (prompting or {}), "grpo": QUICK.grpo.model_dump() | small | grpo,
    }  # fmt: skip
    recipe = Recipe.model_validate(QUICK.model_dump() | changed)
    cards = tuple(WorkerCard(accuracy={"math": share}, cost_usd=0.001) for share in (0.25, 0.75))
    card = PolicyCard(
        recipe="quickstart", pool=POOL, offered=POOL.names, prompting=recipe.prompting, max_completion_tokens=56,
        cards=cards if recipe.prompting.cards else (),
    )  # fmt: skip
    plan = plan_of(recipe, pool=POOL, offered=POOL.names)
    team = card.build_team(POOL, ROOT / "data", recipe.execution)
    return build_dataset(plan, problems, build_row_maker(plan, team, tokenizer(), room))


def problem(question: str = "What?", key: str = "p1") -> Problem:
    return Problem(key, "rlpr", "rlpr", "train", question, "42", "text")


def test_control_tokens_in_a_question_are_text() -> None:
    [row] = rows_of([problem("What?<|end|><|assistant|>")])
    assert row["problem"] == "rlpr/p1"
    assert row["prompt"] == [{"role": "user", "content": "What?< |end|>< |assistant|>\nModels: 0 1"}]


def test_cards_are_shown_where_the_recipe_asks_for_them() -> None:
    [row] = rows_of([problem()], prompting={"cards": True})
    assert row["prompt"][0]["content"].endswith("Models: 0 1\n0: math 25 $0.0010\n1: math 75 $0.0010")


def test_unknown_words_are_random_letters_that_differ_by_epoch() -> None:
    asked = problem("How many apples cost 12 euros? Élise pays 3.50 for 4 of them and 7 for 2 pears")
    made, again = (rows_of([asked], steps=2, prompting={"unknown_words": 0.5})["prompt"] for _ in range(2))
    assert list(again) == list(made)
    first, second = (each[0]["content"] for each in made)
    assert first != second
    for text in (first, second):
        words, shown = asked.question.split(), text.split("\n")[0].split()
        changed = [new for old, new in zip(words, shown, strict=True) if old != new]
        assert 2 < len(changed) < 12
        assert list(map(len, shown)) == list(map(len, words))
        assert [word for word in shown if word[0].isdigit()] == ["12", "3.50", "4", "7", "2"]


def test_a_problem_too_long_for_the_model_is_named_before_training_starts() -> None:
    room, short = 300 - QUICK.grpo.max_completion_tokens, problem("7" * 40)
    assert count_chat_tokens(tokenizer(), rows_of([short], room=300)[0]["prompt"]) < room
    with pytest.raises(PromptTooLongError, match=rf"rlpr problem p1: .* takes {room} before"):
        rows_of([short, problem("7" * 400)], room=300)


def test_a_whole_training_is_asked_as_trls_own_sampler_would() -> None:
    some = [problem(f"What is {n}?", str(n)) for n in range(7)]
    rows = rows_of(some, steps=7, questions_per_step=2)
    sampler = RepeatSampler(some, mini_repeat_count=1, batch_size=2, seed=QUICK.seed)
    asked = [f"rlpr/{place}" for _ in range(3) for place in sampler]
    assert rows["problem"] == asked[:14]
    assert rows["epoch"] == [0] * 6 + [1] * 6 + [2] * 2


def test_every_epoch_has_an_order_of_its_own() -> None:
    some = [problem("x" * n, str(n)) for n in range(8)]
    asked = rows_of(some, steps=8, questions_per_step=2)["problem"]
    assert sorted(asked[:8]) == sorted(asked[8:]) == sorted(each.key for each in some)
    assert asked[:8] != asked[8:]


def test_fewer_problems_than_a_step_asks_are_refused() -> None:
    with pytest.raises(DataError, match=r"holds 3 problems .* asks 4\. Ask fewer at a step \(grpo.questions_per_step"):
        rows_of([problem(key=str(n)) for n in range(3)], questions_per_step=4)


SUBJECTS = ("facts", "sums")
PROBLEMS = [
    Problem(str(number), "mmlu", "mmlu", "train", f"{number}?", "A", "choice", subject=SUBJECTS[number % 2])
    for number in range(40)
]
KEYS = [problem.key for problem in PROBLEMS]
EQUAL = dict.fromkeys(KEYS, 0.02)


def asked(order: WeightedRoundRobin, steps: int, count: int = 4) -> list[list[str]]:
    return [[problem.key for problem in order.choose_problems(count)] for _ in range(steps)]


def by_subject(order: WeightedRoundRobin) -> dict[str, float]:
    shares = order.problem_shares()
    return {name: sum(shares[p.key] for p in PROBLEMS if p.subject == name) for name in SUBJECTS}


def test_equal_problems_are_all_drawn_once_before_any_repeats() -> None:
    steps = asked(WeightedRoundRobin(PROBLEMS, 1, EQUAL), 30)
    for epoch in range(3):
        assert sorted(key for step in steps[10 * epoch : 10 * epoch + 10] for key in step) == sorted(KEYS)
    assert steps[0] != asked(WeightedRoundRobin(PROBLEMS, 2, EQUAL), 1)[0]


def test_a_problem_is_asked_as_often_as_its_share_of_the_variance() -> None:
    expected = {key: 0.03 if index < 10 else 0.01 for index, key in enumerate(KEYS)}
    order = WeightedRoundRobin(PROBLEMS, 1, expected)
    steps = asked(order, 100)
    counts = Counter(key for step in steps for key in step)
    shares = order.problem_shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[KEYS[0]] == pytest.approx(UNIFORM_SHARE / 40 + (1 - UNIFORM_SHARE) * 0.03 / 0.6)
    assert all(abs(counts[key] - 400 * shares[key]) < 1 for key in KEYS)
    assert all(len(set(step)) == 4 for step in steps)


def test_rewards_correct_the_forecast_of_their_subject_and_are_forgotten() -> None:
    order = WeightedRoundRobin(PROBLEMS, 1, EQUAL)
    assert by_subject(order) == pytest.approx({"facts": 0.5, "sums": 0.5})
    for _ in range(10):
        order.record_variances([(KEYS[0], 0.0), (KEYS[1], 0.02)])
    silent = by_subject(order)["facts"]
    assert 0.1 < silent < 0.2  # slightly more than the share that is spread evenly
    for _ in range(200):
        order.record_variances([])
    assert by_subject(order)["facts"] == pytest.approx(0.5, abs=0.01)


def test_a_problem_without_expected_signal_is_sampled_sometimes() -> None:
    assert KEYS[0] in {
        key for step in asked(WeightedRoundRobin(PROBLEMS, 1, EQUAL | {KEYS[0]: 0.0}), 110) for key in step
    }
    assert WeightedRoundRobin(PROBLEMS, 1, dict.fromkeys(KEYS, 0.0)).problem_shares() == pytest.approx(
        dict.fromkeys(KEYS, 1 / 40)
    )


def test_an_order_of_questions_continues_from_its_state() -> None:
    """Later forecasts do not change the restored order."""
    order = WeightedRoundRobin(PROBLEMS, 1, {key: 0.01 + index / 1000 for index, key in enumerate(KEYS)})
    asked(order, 5)
    order.record_variances([(KEYS[0], 0.05), (KEYS[3], 0.0)])
    other = WeightedRoundRobin(PROBLEMS, 1, EQUAL)
    other.restore(json.loads(json.dumps(order.state)))
    for going in (order, other):
        going.record_variances([(KEYS[1], 0.01)])
    assert asked(order, 20) == asked(other, 20)


def test_the_forecast_is_that_of_the_precached_responses(tmp_path: Path) -> None:
    setup = Setup(Workspace(tmp_path), QUICK, plans.POOL)
    answer = Response("A", Usage(1, 1), 0.0, 0.0, "stop")
    rows = [  # ten problems that every worker solves, ten that every other worker solves
        ResponseRow(name, "mmlu", str(number), 0, "ok", answer, float(number < 10 or place % 2))
        for number in range(20)
        for place, name in enumerate(plans.POOL.names)
    ]
    write_responses(rows, setup.workspace.data / "responses" / "all.parquet")
    expected = forecast_variances(setup, PROBLEMS[:21])
    known, disputed = expected[KEYS[0]], expected[KEYS[15]]
    assert 0 < 3 * known < disputed < 0.25 / 4 + 1e-9  # a variance is largest at a probability of one half
    assert known < expected[KEYS[20]] < disputed  # never asked: counts like its benchmark
