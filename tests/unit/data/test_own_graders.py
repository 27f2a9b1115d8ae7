"""A benchmark's own grader in a recipe: what loads, what is refused, what its problems carry; and a judge's agreement
with labelled answers, which the gate requires."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml

from ops.benchmarks.problem_files import read_problems, write_problems
from ops.benchmarks.registry import BENCHMARKS
from ops.config import JudgeGrader, PromotionGate, Setup, Worker, load_pool, load_recipe
from ops.core.errors import ConfigError, DataError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.quality.agreement import (
    INJECTED_INSTRUCTION,
    AgreementRate,
    JudgeAgreement,
    label_gold_answers,
    load_agreement,
    measure_agreement,
    read_labelled_answers,
    save_agreement,
)
from ops.quality.gold import grade_gold
from ops.release.judgement import add_judge_checks
from ops.release.promotion import GateCheck, GateDecision
from tests.builders import Answering, make_problem
from tests.unit.data.inputs import write_rows

CONFIG = Workspace.find().config
SCORED = {"name": "one", "model": "openai/one"}
FUNCTION = {"kind": "function", "file": "own.py"}
JUDGE = {"kind": "judge", "pool": "judges", "worker": "referee", "rubric": "It is right."}


@pytest.fixture
def checkout(workspace: Workspace) -> Workspace:
    """The shipped recipes, and pools with one scored worker and two judges, of which one is the scored model."""
    shutil.copytree(CONFIG, workspace.config)
    judges = [{"name": "referee", "model": "openai/other"}, {"name": "twin", "model": "openai/one"}]
    judges.append({"name": "one", "model": "openai/third"})
    for name, workers in {"solo": [SCORED], "judges": judges}.items():
        write(workspace, f"pools/{name}", {"name": name, "workers": workers})
    write_rows(workspace.root / "rows.jsonl", [{"id": "1", "question": "2 + 2?", "answer": "4"}])
    (workspace.root / "own.py").write_text("def grade(problem, answer):\n    return answer == problem['answer']\n")
    return workspace


def write(workspace: Workspace, name: str, values: dict[str, Any]) -> None:
    (workspace.config / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def setup(checkout: Workspace, grader: dict[str, Any], **source: Any) -> Setup:
    """The recipe `own`, whose one benchmark has that grader."""
    rows = {"source": "file", "train_file": "rows.jsonl", "test_file": "rows.jsonl", "grader": grader}
    policy = {"kind": "static", "workflow": [{"worker": "one"}]}
    recipe = {"name": "own", "pool": "solo", "benchmarks": {"rlpr": rows | source}, "policy": policy}
    write(checkout, "recipes/own", recipe)
    return Setup.read(checkout, "own")


def problems(made: Setup) -> list[Problem]:
    source = made.recipe.benchmarks["rlpr"].model_copy(update={"train_file": None})
    return BENCHMARKS["rlpr"].load("test", source, made.workspace, 0).problems


def test_problems_carry_the_graders_version_through_their_file(checkout: Workspace) -> None:
    made = setup(checkout, FUNCTION)
    [problem] = problems(made)
    assert problem.grader == "function" and problem.grading.startswith("function-")
    write_problems(checkout.root / "stored.jsonl", [problem])
    assert read_problems(checkout.root / "stored.jsonl") == [problem]
    (checkout.root / "own.py").write_text("def grade(problem, answer):\n    return True\n")
    [later] = problems(setup(checkout, FUNCTION))
    assert later.grading != problem.grading, "another source is another version"
    assert "grading" not in make_problem().as_row(), "rows without an own grader are as they were"


def test_a_functions_gold_answers_are_graded_by_it_and_a_judges_are_not(checkout: Workspace) -> None:
    made = setup(checkout, FUNCTION)
    configure(checkout.root, "resource_limits", graders=made.recipe.own_graders)
    assert [verdict.score for verdict in grade_gold(problems(made))] == [1.0]
    [verdict] = grade_gold(problems(setup(checkout, JUDGE)))
    assert (verdict.score, verdict.reason) == (None, "no gold answer, or a judge grades it")


def test_rows_need_no_answer_where_the_grader_needs_none(checkout: Workspace) -> None:
    row = {"id": "1", "question": "Write a line about rain.", "answer": "", "grader": "anything"}
    write_rows(checkout.root / "rows.jsonl", [row])
    [problem] = problems(setup(checkout, JUDGE))
    assert (problem.answer, problem.grader) == ("", "judge")


def test_a_judge_of_another_pool_is_found_and_counts_among_the_pools(checkout: Workspace) -> None:
    made = setup(checkout, JUDGE)
    [grader] = made.recipe.own_graders
    assert isinstance(grader, JudgeGrader) and grader.judge.model == "openai/other"
    assert {name: pool.names for name, pool in made.all_pools.items()} == {"solo": ("one",), "judges": ("referee",)}


def test_a_judge_of_the_scored_model_needs_consent(checkout: Workspace) -> None:
    words = r"grader\.worker: twin would grade its own model's answers: .*asks one, which is openai/one.*scored_too"
    with pytest.raises(ConfigError, match=words):
        setup(checkout, JUDGE | {"worker": "twin"})
    assert setup(checkout, JUDGE | {"worker": "twin", "scored_too": True}).recipe.judges["rlpr"].judge.name == "twin"
    with pytest.raises(ConfigError, match="one would grade its own"):
        setup(checkout, JUDGE | {"pool": None, "worker": "one"})


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        (FUNCTION | {"file": "absent.py"}, r"rlpr\.grader\.file: cannot be read .*absent\.py: No such file"),
        (FUNCTION | {"file": "rows.jsonl"}, r"grader\.function: 'grade' is not defined at the top level of"),
        (FUNCTION | {"function": "other"}, r"grader\.function: 'other' .*`def other\(problem, answer\):`"),
        (FUNCTION | {"function": "a b"}, r"grader\.function"),
        (FUNCTION | {"file": "broken.py"}, r"grader\.file: .*broken\.py is no Python"),
        (FUNCTION | {"file": "key.py"}, r"grader\.file: .*key\.py seems to hold an API key"),
        (JUDGE | {"worker": "nowhere"}, r"grader\.worker: names 'nowhere', which pool 'judges' does not have"),
        (JUDGE | {"worker": "one"}, r"grader\.worker: one is also the name of another worker"),
        (JUDGE | {"pool": "absent"}, r"absent\.yaml: does not exist"),
        (JUDGE | {"rubric": " "}, r"grader\.judge\.rubric"),
        ({"kind": "essay"}, r"benchmarks\.rlpr\.grader"),
    ],
)
def test_what_cannot_grade_is_refused_by_name(checkout: Workspace, grader: dict[str, Any], words: str) -> None:
    (checkout.root / "broken.py").write_text("def grade(:\n")
    (checkout.root / "key.py").write_text(f"KEY = 'sk-{'a' * 30}'\ndef grade(p, a):\n    return 1\n")
    with pytest.raises(ConfigError, match=words):
        setup(checkout, grader)


def test_a_benchmark_whose_grader_needs_settings_is_refused_without_them(checkout: Workspace) -> None:
    entry = replace(BENCHMARKS["rlpr"], grader="judge")
    source = setup(checkout, JUDGE).recipe.benchmarks["rlpr"].model_copy(update={"train_file": None})
    assert entry.load("test", source, checkout, 0).rows == 1
    with pytest.raises(ConfigError, match=r"benchmarks\.rlpr\.grader: is missing, and 'judge' needs settings"):
        entry.load("test", source.model_copy(update={"grader": None}), checkout, 0)
    with pytest.raises(ValueError, match="unknown grader essay; known: choice, code, function, judge, math"):
        replace(entry, grader="essay")


# ── agreement ────────────────────────────────────────────────────────────────

OWN = JudgeGrader(worker="judge", rubric="It is right.", asked=Worker(name="judge", model="openai/judge"))


@pytest.fixture
def judged(workspace: Workspace) -> list[Problem]:
    configure(workspace.root, graders=[OWN])
    golds = enumerate(("4", "5", "", "4", "6"))
    return [make_problem(id=str(i), answer=gold, grader="judge", grading=OWN.version) for i, gold in golds]


def judging(rejects: str) -> Answering:
    """A judge that accepts every answer without that text."""

    def says(_: Worker, messages: Sequence[Message]) -> str:
        head = messages[0]["content"].rpartition(' WRONG" if not')[0]
        code = head.rpartition('"')[2]
        return f"{code} {'WRONG' if rejects in head.partition('<<< answer')[2] else 'RIGHT'}"

    return Answering(says)


def test_gold_answers_are_right_and_another_problems_are_wrong_some_with_an_order(judged: list[Problem]) -> None:
    labelled = label_gold_answers(judged, max_answers=3)
    assert [(each.problem.id, each.answer, each.is_right) for each in labelled] == [
        ("0", "4", True), ("0", "5", False), ("1", "5", True), ("1", "4" + INJECTED_INSTRUCTION, False),
        ("3", "4", True),
        ("3", "6", False),
    ]  # fmt: skip


def test_right_and_wrong_answers_count_apart(judged: list[Problem]) -> None:
    labelled = label_gold_answers(judged, 9)
    obedient = measure_agreement("rlpr", "judge", "gold answers", labelled, judging("no answer has this"))
    assert (obedient.right, obedient.wrong) == (AgreementRate(4, 4), AgreementRate(0, 4)), "it accepts everything"
    assert obedient.lower_bound == 0.0
    strict = measure_agreement("rlpr", "judge", "gold answers", labelled, judging(""))
    assert (strict.right, strict.wrong, strict.usd) == (AgreementRate(0, 4), AgreementRate(4, 4), pytest.approx(0.008))


def test_replies_of_another_form_are_counted(judged: list[Problem]) -> None:
    made = measure_agreement("rlpr", "judge", "gold answers", label_gold_answers(judged, 9), Answering("RIGHT"))
    assert (made.unreadable, made.right, made.wrong) == (8, AgreementRate(0, 4), AgreementRate(4, 4))
    assert "8 unreadable replies" in str(made)


@pytest.mark.parametrize(
    ("agreed", "low", "high"),
    [
        (AgreementRate(0, 0), 0, 1),
        (AgreementRate(10, 10), 0.722, 1),
        (AgreementRate(0, 10), 0, 0.278),
        (AgreementRate(81, 100), 0.722, 0.875),
    ],
)
def test_the_interval_is_wilsons(agreed: AgreementRate, low: float, high: float) -> None:
    assert agreed.interval == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_labels_come_from_a_file(judged: list[Problem], workspace: Workspace) -> None:
    labels = [("rlpr/1", "Five.", True), ("rlpr/0", "5", False), ("mmlu/0", "A", True)]
    file = workspace.root / "labels.jsonl"
    write_rows(file, [dict(zip(("problem", "answer", "right"), label, strict=True)) for label in labels])
    found = [(each.problem.key, each.answer, each.is_right) for each in read_labelled_answers(file, judged)]
    assert found == labels[:2], "those of other benchmarks are skipped"


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
    judged: list[Problem], workspace: Workspace, row: dict[str, object], words: str
) -> None:
    file = workspace.root / "labels.jsonl"
    write_rows(file, [row])
    with pytest.raises(DataError, match=words):
        read_labelled_answers(file, judged)


def test_a_measurement_is_kept_for_one_version_of_the_judge(workspace: Workspace) -> None:
    made = JudgeAgreement("rlpr", "judge", "labels.jsonl", AgreementRate(9, 10), AgreementRate(8, 10), 0, 0.01)
    assert load_agreement(workspace, OWN, "rlpr") is None
    save_agreement(workspace, OWN, made)
    assert load_agreement(workspace, OWN, "rlpr") == made
    assert load_agreement(workspace, OWN, "mmlu") is None
    assert load_agreement(workspace, OWN.model_copy(update={"rubric": "Other."}), "rlpr") is None
    [file] = (workspace.state / "judges").iterdir()
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is not a judge's agreement"):
        load_agreement(workspace, OWN, "rlpr")


def test_the_gate_wants_the_lower_end_of_a_judges_agreement(workspace: Workspace) -> None:
    recipe, gate = load_recipe(CONFIG, "quickstart"), PromotionGate(min_judge_agreement=0.8)
    unjudged = Setup(workspace, recipe, load_pool(CONFIG, recipe.pool))
    rlpr = recipe.benchmarks["rlpr"].model_copy(update={"grader": OWN})
    benchmarks = recipe.benchmarks | {"rlpr": rlpr}
    made = replace(unjudged, recipe=recipe.model_copy(update={"benchmarks": benchmarks}))
    yes = GateDecision(True, (GateCheck("gain", 0.1, 0.0, True, ""),))
    assert add_judge_checks(unjudged, gate, yes) == yes, "a recipe without judges"
    decided = add_judge_checks(made, gate, yes)
    assert not decided.promote and "podium data gold quickstart" in decided.failed[0].explanation
    for same, promoted in (
        (AgreementRate(9, 10), False),
        (AgreementRate(198, 200), True),
    ):  # 9 of 10 may be far below 0.8
        save_agreement(workspace, OWN, JudgeAgreement("rlpr", "judge", "gold answers", same, same, 0, 0.0))
        decided = add_judge_checks(made, gate, yes)
        assert decided.promote == promoted and len(decided.checks) == 2
    assert not add_judge_checks(made, gate, GateDecision(False, yes.checks)).promote, "agreement alone promotes nothing"
