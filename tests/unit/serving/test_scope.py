"""The notice on questions outside of a version's training: its threshold, its sentence, and where it is stored."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import raw_file, write_problems
from ops.conductor.policy import PolicyCard
from ops.config import Pool, PretrainedPolicy, StaticPolicy, load_recipe
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.release import ask as asking
from ops.release.lineage import Lineage
from ops.release.model_card import Release
from ops.release.new_version import measure_scope
from ops.serving.scope import MIN_TEST_QUESTIONS, PASSING_SHARE, SCOPE_FILE, TrainingScope, is_calibration_question
from ops.synthetic.problems import generate_problems
from ops.workflow.grammar import Workflow
from tests.serving.script import POOL, Scripted, ask, card_of, engine_of

MIX = ("What is the density of iron?", "What is the capital of France?", "Convert 3 miles to kilometres.")
TESTS = tuple(f"What is the density of {name}?" for name in ("iron", *(f"metal{'x' * n}" for n in range(99))))
OUTSIDE = "This question lies outside of what this version was trained on"


def scope() -> TrainingScope:
    found = TrainingScope.measure(MIX, TESTS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("question", "share"),
    [
        ("What is the density of iron?", 1.0),
        ("  what is the DENSITY of iron ?", 1.0),
        ("Convert 12.5 miles to kilometres.", 1.0),  # all numbers are alike
        ("What is the density of gold?", 6 / 8),
        ("Why?", 1 / 3),  # the end, with its question mark, is known
        ("鉄の密度は", 0.0),
        ("\udfff", 0.0),
        ("", 0.0),
    ],
)
def test_the_share_of_known_pairs_of_words(question: str, share: float) -> None:
    assert scope().compute_known_share(question) == pytest.approx(share)


def test_the_threshold_lets_pass_the_stated_share_of_the_questions_that_set_it() -> None:
    calibrating = [question for question in TESTS if is_calibration_question(question)]
    assert 30 < len(calibrating) < 70
    passed = [question for question in calibrating if not scope().write_notice(question)]
    assert len(passed) >= PASSING_SHARE * len(calibrating)
    # One test question in ten is in other words, more than may fail, so the threshold is theirs.
    others = [f"Why is it so {'very ' * n}late?" for n in range(12)]
    lower = TrainingScope.measure(MIX, [*TESTS, *others])
    assert lower is not None and lower.min_known_share < scope().min_known_share


def test_too_few_test_questions_set_no_threshold() -> None:
    calibrating = [question for question in TESTS if is_calibration_question(question)]
    assert TrainingScope.measure(MIX, calibrating[: MIN_TEST_QUESTIONS - 1]) is None
    assert TrainingScope.measure(MIX, calibrating[:MIN_TEST_QUESTIONS]) is not None


def test_the_sentence_names_both_shares() -> None:
    said = scope().write_notice("Who wrote Hamlet?")
    assert said.startswith(OUTSIDE)
    assert f"{scope().compute_known_share('Who wrote Hamlet?'):.0%} of the question's" in said
    assert f"reach {scope().min_known_share:.0%}" in said
    assert scope().write_notice("What is the density of iron?") == ""


def test_it_is_stored_beside_the_weights_without_any_text(tmp_path: Path) -> None:
    assert TrainingScope.read(tmp_path) is None
    scope().write(tmp_path)
    assert TrainingScope.read(tmp_path) == scope()
    assert "density" not in (tmp_path / SCOPE_FILE).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "[]", '{"least": 1}', '{"least": "x", "known": []}', '{"least": 1, "known": 3}'])
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / SCOPE_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"{SCOPE_FILE}.*rollback"):
        TrainingScope.read(tmp_path)


# ── answers ──────────────────────────────────────────────────────────────────


def test_an_answer_has_the_notice_beside_it_and_a_version_without_a_scope_says_nothing(tmp_path: Path) -> None:
    writer = Scripted(Workflow.single(POOL.names.index("guesser")).render())
    with closing(engine_of(tmp_path, POOL, writer)) as engine:
        loaded = engine.engine.loaded
        assert loaded is not None
        assert ask(engine, "Who wrote Hamlet?").as_account(texts=False)["notice"] == ""
        loaded.scope = scope()
        outside, inside = ask(engine, "Who wrote Hamlet?"), ask(engine, "What is the density of iron?")
    assert outside.as_account(texts=False)["notice"].startswith(OUTSIDE)
    assert inside.as_account(texts=False)["notice"] == ""
    assert OUTSIDE not in (outside.text or "")


def test_podium_ask_prints_the_notice_below_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    outputs: dict[str, Any] = {
        "workflow": "model_id = [0]", "steps": [], "fallbacks": [], "prompt_tokens": 1, "completion_tokens": 1,
        "cost_usd": 0.0, "latency_s": 0.0, "cached": 0, "calls": 1, "notice": f"{OUTSIDE}: [sic]",
    }  # fmt: skip
    for notice in (outputs["notice"], ""):
        answer = {"output": [{"content": [{"text": "yes"}]}], "custom_outputs": {**outputs, "notice": notice}}
        asking.print_answer(answer, Console(width=200))
        printed = capsys.readouterr().out
        assert (f"{OUTSIDE}: [sic]" in printed) is bool(notice)
        assert not notice or printed.index("yes") < printed.index(OUTSIDE)


# ── release ──────────────────────────────────────────────────────────────────


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A quickstart's problems, as `podium run` lays them out."""
    recipe = load_recipe(Workspace.find().config, "quickstart")
    workspace = Workspace(tmp_path)
    mix = [problem for name in ("math500", "mmlu", "rlpr") for problem in generate_problems(name, "train", 60, 1)]
    write_problems(workspace.data / "training_mix.jsonl", mix)
    for name in ("math500", "mmlu", "rlpr"):
        write_problems(raw_file(workspace, recipe, name, "test"), generate_problems(name, "test", 24, 1))
    return workspace


def released(pool: Pool = POOL, **card: Any) -> Release:
    recipe = load_recipe(Workspace.find().config, "quickstart")
    policy: PolicyCard = card_of(pool).model_copy(update=card)
    return Release(policy, pool, (), Lineage("c0ffee", "d41d8c", "p", "a", "b", "quickstart"), recipe)


def test_a_version_made_from_scratch_carries_what_it_was_trained_on(workspace: Workspace) -> None:
    found = measure_scope(workspace, released())
    assert found is not None
    tests = [problem.question for name in ("math500", "mmlu") for problem in generate_problems(name, "test", 24, 1)]
    passed = [question for question in tests if not found.write_notice(question)]
    assert len(passed) > 0.8 * len(tests)
    assert all(found.write_notice(text) for text in ("Who wrote Hamlet?", "Write a short poem about the sea.", "Why?"))
    assert not found.write_notice("What is 17 * 23?") and not found.write_notice("What is 6 * 7?")
    assert f"less than {found.min_known_share:.0%} of a question's" in released().write_model_card(found)


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ({"pretrained": PretrainedPolicy(model="org/model")}, "its base model has read far more"),
        ({"untrained": StaticPolicy(workflow=[{"worker": "solver"}])}, "It was not trained"),
    ],
    ids=["pretrained", "untrained"],
)
def test_another_policy_carries_none_and_its_card_says_why(
    workspace: Workspace, card: dict[str, Any], why: str
) -> None:
    assert measure_scope(workspace, released(**card)) is None
    assert why in released(**card).write_model_card(None)


def test_nothing_is_carried_without_a_mix_or_of_a_confidential_benchmark(workspace: Workspace) -> None:
    mix = workspace.data / "training_mix.jsonl"
    secret = [replace(problem, benchmark="gpqa_diamond") for problem in generate_problems("gpqa_diamond", "test", 3, 1)]
    write_problems(mix, secret)
    assert measure_scope(workspace, released()) is None
    mix.unlink()
    assert measure_scope(workspace, released()) is None
