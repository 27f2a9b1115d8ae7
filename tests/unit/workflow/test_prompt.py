"""The Conductor's prompt: ordinals, never names; examples that obey the grammar that they teach."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Pool, Prompting, Worker
from ops.core.errors import ConfigError, DataError
from ops.workflow.cards import WorkerCard, load_cards
from ops.workflow.grammar import SOLVE_SUBTASK, parse_workflow
from ops.workflow.literals import FormatFailure
from ops.workflow.prompt import (
    FewShot,
    PromptTooLongError,
    assign_ordinals,
    build_conductor_messages,
    build_recursive_messages,
    check_prompt_length,
    load_few_shots,
)
from ops.workflow.strategy import classify_shape
from ops.workflow.team import Team
from tests.builders import make_problem

DATA = Path(__file__).parents[3] / "data"
SETS = ("out_of_distribution", "in_distribution", "mixed")
CHOICE = make_problem(
    id="q1", benchmark="mmlu", grader="choice", question="Which metal is liquid at 20 °C?", choices=("Iron", "Mercury")
)
SHOTS = {name: load_few_shots(DATA, name) for name in SETS}
EVERY_SET = pytest.mark.parametrize("shots", SHOTS.values(), ids=SHOTS)
EVERY_STYLE = pytest.mark.parametrize("style", ["full", "compact"])
POOL = Pool(name="p", workers=tuple(Worker(name=f"worker-{x}", model=f"openai/model-{x}") for x in "abcdefg"))


def full(**settings: object) -> str:
    [message] = build_conductor_messages(CHOICE, 6, Prompting.model_validate(settings), SHOTS["out_of_distribution"])
    assert message["role"] == "user"
    return message["content"]


def test_compact_shows_the_question_and_the_ordinals_only() -> None:
    prompting = Prompting(style="compact", few_shots="none")
    content = "Which metal is liquid at 20 °C?\nChoices: 2\nModels: 0 1 2 3 4 5"
    assert build_conductor_messages(CHOICE, 6, prompting, ()) == [{"role": "user", "content": content}]


def test_compact_shows_examples_as_past_turns_in_the_exact_form() -> None:
    shots = SHOTS["mixed"]
    messages = build_conductor_messages(CHOICE, 3, Prompting(style="compact"), shots)
    assert [message["role"] for message in messages] == ["user", "assistant"] * len(shots) + ["user"]
    assert messages[1]["content"] == shots[0].renumber_for(3).workflow.render()
    assert messages[0]["content"].endswith("\nModels: 0 1 2")
    assert messages[-1]["content"].endswith("\nModels: 0 1 2")


def test_full_explains_shows_examples_and_asks() -> None:
    text = full()
    question = "Which metal is liquid at 20 °C?\nA) Iron\nB) Mercury"
    assert text.index("model_id") < text.index("--- Example 4 ---") < text.index(question)
    assert "Models on offer: Model 0, Model 1, Model 2, Model 3, Model 4, Model 5\n" in text
    assert "at most 5 steps" in text
    assert '["all"]' in text
    for shot in SHOTS["out_of_distribution"]:
        assert shot.question in text
        assert shot.renumber_for(6).workflow.render() in text
    assert not any(name in text for name in ("worker-a", "openai", "gpt", "Claude", "Gemini", "Qwen"))


def test_the_full_prompt_states_the_mode_and_the_limit() -> None:
    assert "[0, 2]" not in full(access="binary")
    assert "[0, 2]" in full(access="fine_grained")
    assert "at most 3 steps" in full(max_steps=3)
    assert "--- Example" not in build_conductor_messages(CHOICE, 6, Prompting(), ())[0]["content"]


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_example_exceeds_the_stated_limit(most: int) -> None:
    text = full(max_steps=most)
    for block in blocks(text):
        parsed = parse_workflow(block, offered=6, max_steps=most)
        assert parsed.workflow is not None, parsed.detail


def blocks(text: str) -> list[str]:
    """Return the three lists of each workflow in the prompt, beginning with the form's own."""
    shown = re.findall(r"^model_id = .*\nsubtasks = .*\naccess_list = .*$", text, re.MULTILINE)
    assert shown
    return shown


@EVERY_STYLE
@EVERY_SET
@pytest.mark.parametrize("offered", [1, 2, 3, 5, 7, 9])
def test_every_workflow_that_is_shown_can_be_run_on_the_pool_on_offer(
    shots: tuple[FewShot, ...], offered: int, style: str
) -> None:
    messages = build_conductor_messages(CHOICE, offered, Prompting.model_validate({"style": style}), shots)
    text = "\n\n".join(message["content"] for message in messages)
    shown = [parse_workflow(block, offered=offered) for block in blocks(text)]
    assert [parsed.failure for parsed in shown] == [None] * len(shown)
    assert len(shown) >= len(shots)
    offers = re.findall(r"^Model(?:s on offer|s): (.*)$", text, re.MULTILINE)
    assert len(offers) == len(shots) + 1
    assert len(set(offers)) == 1  # the examples offer the same workers as the question


@EVERY_SET
def test_an_example_keeps_its_models_apart_while_the_pool_allows(shots: tuple[FewShot, ...]) -> None:
    for shot in shots:
        wanted = [step.worker for step in shot.steps]
        assert shot.renumber_for(7) == shot
        for offered in range(1, 10):
            ordinals = [step.worker for step in shot.renumber_for(offered).steps]
            assert len(set(ordinals)) == min(len(set(wanted)), offered)
            renamed = dict(zip(wanted, ordinals, strict=True))
            assert [renamed[worker] for worker in wanted] == ordinals  # one model stays one
            assert all(renamed[worker] == worker for worker in wanted if worker < offered)


STRATEGIES = re.compile(
    r"""\b(?:verif\w*|(?:double-?|cross-?)?check\w*|vote\w*|voting|majority|consensus|debat\w*|critici\w*|critique\w*
      |review\w*|refine\w*|reflect\w*|second\ opinion|opinion|independent\w*|compare\w*|reconcile\w*|aggregat\w*
      |summar\w*|chain\w*|tree|ensemble\w*|rival\w*|mistake\w*|error\ by|adversar\w*|recompute\w*|expert\w*)\b""",
    re.IGNORECASE | re.VERBOSE,
)


EVERY_ACCESS = pytest.mark.parametrize("access", ["binary", "fine_grained"])


@pytest.mark.parametrize("shots", [*SHOTS.values(), ()], ids=[*SETS, "none"])
@EVERY_ACCESS
def test_no_shown_text_names_a_strategy(shots: tuple[FewShot, ...], access: str) -> None:
    [message] = build_conductor_messages(CHOICE, 5, Prompting.model_validate({"access": access}), shots)
    assert not STRATEGIES.findall(message["content"])
    shapes = {
        classify_shape(parsed)
        for block in blocks(message["content"])
        if (parsed := parse_workflow(block, offered=5).workflow)
    }
    assert shapes <= {"single", "chain", "aggregate"}  # graphs of partial tasks, none named by wording
    assert len(shapes) == 3 or not shots


@EVERY_ACCESS
def test_the_form_is_three_lists_and_no_entry_is_shown_as_an_assignment(access: str) -> None:
    text = build_conductor_messages(CHOICE, 3, Prompting.model_validate({"access": access}), ())[0]["content"]
    assert len(blocks(text)) == 1
    assert not re.search(r"\b(?:model_id|subtasks|access_list)\W{0,3}:", text)
    assert len(re.findall(r"\b(?:model_id|subtasks|access_list)\s*=", text)) == 3
    assert text.count("three Python lists") == 1


@EVERY_SET
def test_examples_parse_and_vary(shots: tuple[FewShot, ...]) -> None:
    assert len(shots) >= 4
    for shot in shots:
        assert parse_workflow(shot.workflow.render(), offered=7).workflow == shot.workflow
        assert parse_workflow(shot.reasoning, offered=7).failure == FormatFailure.NO_ASSIGNMENT
        assert "Model " not in shot.reasoning
    assert len({len(shot.steps) for shot in shots}) >= 3
    assert len({step.worker for shot in shots for step in shot.steps}) >= 5
    assert len({classify_shape(shot.workflow) for shot in shots}) >= 3


def test_the_sets_are_what_their_names_say() -> None:
    assert {name: sorted(shot.kind for shot in shots) for name, shots in SHOTS.items()} == {
        "out_of_distribution": ["countdown numbers", "countdown numbers", "deep mathematics", "medical reasoning"],
        "in_distribution": ["mathematics", "multiple choice", "programming", "short answer"],
        "mixed": ["countdown numbers", "mathematics", "medical reasoning", "programming"],
    }
    questions = [shot.question for shots in SHOTS.values() for shot in shots]
    assert len(set(questions)) == len(questions)
    assert load_few_shots(DATA, "none") == ()


GO = {"worker": 0, "subtask": "Go.", "access": "none"}
SHOT = {"kind": "x", "question": "Q?", "reasoning": "Think.", "steps": [GO]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": [GO | {"worker": 9}]}, "9 is not among 0 … 6"),
        ({"steps": [GO | {"worker": -1}]}, "greater than or equal to 0"),
        ({"steps": [GO | {"subtask": " "}]}, "must say something"),
        ({"steps": [GO | {"access": [0]}]}, "steps.0.access"),
        ({"steps": []}, "examples.0.steps"),
        ({"workers": 3}, "not a known key"),
        ({"question": None}, "examples.0.question"),
    ],
)
def test_a_bad_example_file_is_one_clear_error(tmp_path: Path, change: dict[str, object], words: str) -> None:
    file = tmp_path / "few_shots" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({"examples": [SHOT]}), encoding="utf-8")
    assert load_few_shots(tmp_path, "mine") == (FewShot.model_validate(SHOT),)
    file.write_text(yaml.safe_dump({"examples": [SHOT | change]}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_few_shots(tmp_path, "mine")
    assert words in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_a_missing_example_file_names_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="in_distribution, mixed, out_of_distribution"):
        load_few_shots(DATA, "absent")


def test_offer_keeps_or_shuffles_the_pool() -> None:
    assert assign_ordinals(POOL, None) == POOL.workers
    orders = {tuple(worker.name for worker in assign_ordinals(POOL, seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == sorted(POOL.names) for order in orders)
    assert assign_ordinals(POOL, 3) == assign_ordinals(POOL, 3)


def test_offer_takes_any_part_of_the_pool() -> None:
    assert [worker.name for worker in assign_ordinals(POOL, None, only=["worker-e", "worker-b"])] == [
        "worker-b",
        "worker-e",
    ]
    orders = {
        tuple(w.name for w in assign_ordinals(POOL, seed, only=["worker-e", "worker-b", "worker-c"]))
        for seed in range(30)
    }
    assert len(orders) == 6
    with pytest.raises(KeyError, match="worker-z"):
        assign_ordinals(POOL, None, only=["worker-z"])
    with pytest.raises(ValueError, match="no worker"):
        assign_ordinals(POOL, 1, only=[])


CARDS = (
    WorkerCard(accuracy={"code": 0.05, "math": 0.714}, cost_usd=0.00213),
    WorkerCard(accuracy={"math": 0.2, "code": 0.9}, cost_usd=0.0),
)


@EVERY_STYLE
def test_cards_stand_beside_their_ordinals(style: str) -> None:
    prompting = Prompting.model_validate({"style": style, "cards": True})
    text = build_conductor_messages(CHOICE, 2, prompting, (), cards=CARDS)[-1]["content"]
    if style == "full":
        assert "Model 0: mathematics 71 %, programming 5 %; $0.0021 a call\n" in text
        assert "Model 1: mathematics 20 %, programming 90 %; $0 a call" in text
    else:
        assert text.endswith("Models: 0 1\n0: math 71 code 5 $0.0021\n1: math 20 code 90 $0")
    assert WorkerCard(accuracy={"math": 1.0}, cost_usd=2.751e-06).describe_briefly() == "math 100 $0.0000028"
    other = build_conductor_messages(CHOICE, 2, prompting, (), cards=CARDS[::-1])[-1]["content"]
    assert other != text
    without = build_conductor_messages(CHOICE, 2, Prompting.model_validate({"style": style}), (), cards=CARDS)
    assert "71" not in without[-1]["content"]
    with pytest.raises(ValueError, match="1 cards for 2 workers"):
        build_conductor_messages(CHOICE, 2, prompting, (), cards=CARDS[:1])


def profiles(folder: Path, **changes: object) -> None:
    rows = [
        {"worker": name, "by_domain": {"math": {"n": 9, "accuracy": share, "se": 0.1}}, "cost_usd": 0.001, **changes}
        for name, share in (("worker-a", 0.1), ("worker-b", 0.9))
    ]
    (folder / "profiles.json").write_text(json.dumps({"workers": rows}), encoding="utf-8")


def test_cards_follow_the_order_of_the_offer(tmp_path: Path) -> None:
    profiles(tmp_path)
    assert [card.accuracy["math"] for card in load_cards(tmp_path, ["worker-b", "worker-a"])] == [0.9, 0.1]
    assert [card.accuracy["math"] for card in load_cards(tmp_path, ["worker-a"])] == [0.1]


@pytest.mark.parametrize(
    ("changes", "offered", "words"),
    [
        (None, ["worker-a"], "cannot be read"),
        ({}, ["worker-a", "worker-c"], "has no profile of worker-c"),
        ({"by_domain": {}}, ["worker-a"], "is not a profile"),
        ({"cost_usd": "much"}, ["worker-a"], "is not a profile"),
    ],
    ids=["no file", "no such worker", "no domain", "no cost"],
)
def test_cards_that_were_never_measured_are_one_clear_error(
    tmp_path: Path, changes: dict[str, Any] | None, offered: list[str], words: str
) -> None:
    if changes is not None:
        profiles(tmp_path, **changes)
    with pytest.raises(DataError, match=words) as caught:
        load_cards(tmp_path, offered)
    assert "prompting.cards" in str(caught.value)
    assert "profiles.json" in str(caught.value)


def test_the_error_of_a_prompt_beyond_the_models_limit_names_its_problem() -> None:
    def words(messages: object) -> int:
        return len(str(messages).split())

    messages = build_conductor_messages(CHOICE, 6, Prompting(), SHOTS["mixed"])
    tokens = words(messages)
    check_prompt_length(messages, CHOICE, words, tokens)
    with pytest.raises(PromptTooLongError) as caught:
        check_prompt_length(messages, CHOICE, words, tokens - 1)
    text = str(caught.value)
    remedies = ("few_shots: none", "longer context", "policy.max_tokens")
    for phrase in ("mmlu problem q1", f"{tokens:,} tokens", f"{tokens - 1:,}", *remedies):
        assert phrase in text
    assert CHOICE.question not in text


def test_a_recursive_round_shows_what_was_written_and_what_came_of_it() -> None:
    previous, answer = "First {thoughts}.\nmodel_id = [1]", "It is {B}.\nmodel_id = [9]"
    first = build_conductor_messages(CHOICE, 6, Prompting(), ())
    messages = build_recursive_messages(first, previous, answer, style="full")
    assert messages[:-2] == first
    assert messages[-2] == {"role": "assistant", "content": previous}
    assert messages[-1]["role"] == "user"
    assert answer in messages[-1]["content"]
    assert "model_id = []\nsubtasks = []\naccess_list = []" in messages[-1]["content"]
    short = build_conductor_messages(CHOICE, 6, Prompting(style="compact"), ())
    compact = build_recursive_messages(short, previous, answer, style="compact")
    assert [message["role"] for message in compact] == ["user", "assistant", "user"]
    assert len(compact[-1]["content"]) < len(answer) + 30


def test_no_example_is_a_question_that_is_evaluated() -> None:
    folder = DATA.parents[1] / "shared" / "benchmarks"
    if not folder.is_dir():
        pytest.skip("no ../shared/benchmarks on this machine")
    questions = set()
    for file in folder.glob("*.jsonl.gz"):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            questions |= {json.loads(line)["question"] for line in lines}
    assert len(questions) > 10_000
    shown = {gram for shots in SHOTS.values() for shot in shots for gram in eights(shot.question)}
    assert [text for text in questions if not shown.isdisjoint(eights(text))] == []


def eights(text: str) -> list[str]:
    """Return every eight successive words, or all of a shorter text."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [" ".join(words[i : i + 8]) for i in range(max(1, len(words) - 7))]


def test_without_subtasks_nothing_that_is_shown_or_read_words_one() -> None:
    prompting = Prompting(subtasks=False, few_shots="mixed")
    team = Team([Worker(name="a", model="local/a")] * 3, prompting=prompting, few_shots=SHOTS["mixed"])
    [message] = team.build_messages(CHOICE)
    shown = re.findall(r"^subtasks = (\[.*\])$", message["content"], re.MULTILINE)
    assert len(shown) == 5  # the instruction's and four examples'
    assert all(set(yaml.safe_load(each)) == {SOLVE_SUBTASK} for each in shown)
    text = 'model_id = [0, 2]\nsubtasks = ["Look it up.", "Check it."]\naccess_list = [[], ["all"]]'
    read = team.parse(text).workflow
    assert read is not None
    assert [(step.worker, step.subtask, step.access) for step in read.steps] == [
        (0, SOLVE_SUBTASK, "none"),
        (2, SOLVE_SUBTASK, "all"),
    ]
    assert team.parse("nothing").failure == FormatFailure.NO_ASSIGNMENT
    with_subtasks = Team(team.workers).parse(text).workflow
    assert with_subtasks is not None and with_subtasks.steps[0].subtask == "Look it up."
