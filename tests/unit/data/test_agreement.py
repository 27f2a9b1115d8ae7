"""A judge's agreement with labelled answers, and what the gate requires of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.config import Grading, JudgeGrader, PromotionGate, Setup, Worker, load_pool, load_recipe
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Message
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.quality.agreement import (
    ORDER,
    Agreed,
    Agreement,
    by_file,
    by_gold,
    load_agreement,
    measure,
    save_agreement,
)
from ops.release.judgement import with_judges
from ops.release.promotion import Check, GateDecision
from tests.builders import Answering, make_problem

OWN = JudgeGrader(worker="judge", rubric="It is right.", asked=Worker(name="judge", model="openai/judge"))


@pytest.fixture
def problems(tmp_path: Path) -> list[Problem]:
    configure(Grading(), tmp_path, graders=[OWN])
    golds = enumerate(("4", "5", "", "4", "6"))
    return [make_problem(id=str(i), answer=gold, grader="judge", grading=OWN.version) for i, gold in golds]


def judging(rejects: str) -> Answering:
    """A judge that accepts every answer without that text."""

    def says(_: Worker, messages: Sequence[Message]) -> str:
        head = messages[0]["content"].rpartition(' WRONG" if not')[0]
        code = head.rpartition('"')[2]
        return f"{code} {'WRONG' if rejects in head.partition('<<< answer')[2] else 'RIGHT'}"

    return Answering(says)


def test_gold_answers_are_right_and_another_problems_are_wrong_some_with_an_order(problems: list[Problem]) -> None:
    labelled = by_gold(problems, most=3)
    assert [(each.problem.id, each.answer, each.right) for each in labelled] == [
        ("0", "4", True), ("0", "5", False), ("1", "5", True), ("1", "4" + ORDER, False), ("3", "4", True),
        ("3", "6", False),
    ]  # fmt: skip


def test_right_and_wrong_answers_count_apart(problems: list[Problem]) -> None:
    labelled = by_gold(problems, 9)
    obedient = measure("rlpr", "judge", "gold answers", labelled, judging("no answer has this"))
    assert (obedient.right, obedient.wrong) == (Agreed(4, 4), Agreed(0, 4)), "it accepts everything"
    assert obedient.low == 0.0
    strict = measure("rlpr", "judge", "gold answers", labelled, judging(""))
    assert (strict.right, strict.wrong, strict.usd) == (Agreed(0, 4), Agreed(4, 4), pytest.approx(0.008))


def test_replies_of_another_form_are_counted(problems: list[Problem]) -> None:
    made = measure("rlpr", "judge", "gold answers", by_gold(problems, 9), Answering("RIGHT"))
    assert (made.unreadable, made.right, made.wrong) == (8, Agreed(0, 4), Agreed(4, 4))
    assert "8 unreadable replies" in str(made)


@pytest.mark.parametrize(
    ("agreed", "low", "high"),
    [(Agreed(0, 0), 0, 1), (Agreed(10, 10), 0.722, 1), (Agreed(0, 10), 0, 0.278), (Agreed(81, 100), 0.722, 0.875)],
)
def test_the_interval_is_wilsons(agreed: Agreed, low: float, high: float) -> None:
    assert agreed.interval == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_labels_come_from_a_file(problems: list[Problem], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    rows = [
        {"problem": "rlpr/1", "answer": "Five.", "right": True}, {"problem": "rlpr/0", "answer": "5", "right": False},
        {"problem": "mmlu/0", "answer": "A", "right": True},
    ]  # fmt: skip
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert [(each.problem.id, each.answer, each.right) for each in by_file(file, problems)] == [
        ("1", "Five.", True), ("0", "5", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"problem": "rlpr/77", "answer": "4", "right": True}, "column 'problem': is 'rlpr/77', which"),
        ({"problem": "rlpr/1", "answer": "4", "right": "yes"}, "column 'right': is 'yes'. Write true or false"),
        ({"problem": "rlpr/1", "right": True}, "column 'answer'"),
        ({"answer": "4"}, "column 'problem'"),
    ],
)
def test_a_wrong_label_is_refused_with_its_line(
    problems: list[Problem], tmp_path: Path, row: dict[str, object], words: str
) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=words):
        by_file(file, problems)


def test_a_measurement_is_kept_for_one_version_of_the_judge(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    made = Agreement("rlpr", "judge", "labels.jsonl", Agreed(9, 10), Agreed(8, 10), 0, 0.01)
    assert load_agreement(workspace, OWN, "rlpr") is None
    save_agreement(workspace, OWN, made)
    assert load_agreement(workspace, OWN, "rlpr") == made
    assert load_agreement(workspace, OWN, "mmlu") is None
    assert load_agreement(workspace, OWN.model_copy(update={"rubric": "Other."}), "rlpr") is None
    [file] = (workspace.state / "judges").iterdir()
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is not a judge's agreement"):
        load_agreement(workspace, OWN, "rlpr")


def test_the_gate_wants_the_lower_end_of_a_judges_agreement(tmp_path: Path) -> None:
    config, gate = Workspace.find().config, PromotionGate(min_judge_agreement=0.8)
    recipe = load_recipe(config, "quickstart")
    rlpr = recipe.benchmarks["rlpr"].model_copy(update={"grader": OWN})
    judged = recipe.model_copy(update={"benchmarks": {**recipe.benchmarks, "rlpr": rlpr}})
    setup = Setup(Workspace(tmp_path), judged, load_pool(config, recipe.pool))
    yes = GateDecision(True, (Check("gain", 0.1, 0.0, True, ""),))
    assert with_judges(Setup(setup.workspace, recipe, setup.pool), gate, yes) == yes, "a recipe without judges"
    decided = with_judges(setup, gate, yes)
    assert not decided.promote and "podium data gold quickstart" in decided.failed[0].explanation
    for same, promoted in ((Agreed(9, 10), False), (Agreed(198, 200), True)):  # 9 of 10 may be far below 0.8
        save_agreement(setup.workspace, OWN, Agreement("rlpr", "judge", "gold answers", same, same, 0, 0.0))
        decided = with_judges(setup, gate, yes)
        assert decided.promote == promoted and len(decided.checks) == 2
    assert not with_judges(setup, gate, GateDecision(False, yes.checks)).promote, "agreement alone promotes nothing"
