"""A benchmark's own grader in a recipe: what loads, what is refused, and what its problems carry."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import read_problems, write_problems
from ops.config import JudgeGrader, Setup
from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.quality.gold import grade_gold
from tests.builders import make_problem

CONFIG = Path(__file__).parents[3] / "config"
SCORED = {"name": "one", "model": "openai/one"}
FUNCTION = {"kind": "function", "file": "own.py"}
JUDGE = {"kind": "judge", "pool": "judges", "worker": "referee", "rubric": "It is right."}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The shipped recipes, and pools with one scored worker and two judges, of which one is the scored model."""
    shutil.copytree(CONFIG, tmp_path / "config")
    judges = [{"name": "referee", "model": "openai/other"}, {"name": "twin", "model": "openai/one"}]
    judges.append({"name": "one", "model": "openai/third"})
    for name, workers in {"solo": [SCORED], "judges": judges}.items():
        write(tmp_path, f"pools/{name}", {"name": name, "workers": workers})
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "question": "2 + 2?", "answer": "4"}\n', encoding="utf-8")
    (tmp_path / "own.py").write_text("def grade(problem, answer):\n    return answer == problem['answer']\n")
    return Workspace(tmp_path)


def write(root: Path, name: str, values: dict[str, Any]) -> None:
    (root / "config" / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def setup(workspace: Workspace, grader: dict[str, Any], **source: Any) -> Setup:
    """The recipe `own`, whose one benchmark has that grader."""
    rows = {"source": "file", "train_file": "rows.jsonl", "test_file": "rows.jsonl", "grader": grader}
    policy = {"kind": "static", "workflow": [{"worker": "one"}]}
    recipe = {"name": "own", "pool": "solo", "benchmarks": {"rlpr": rows | source}, "policy": policy}
    write(workspace.root, "recipes/own", recipe)
    return Setup.read(workspace, "own")


def problems(made: Setup) -> list[Problem]:
    source = made.recipe.benchmarks["rlpr"].model_copy(update={"train_file": None})
    return BENCHMARKS["rlpr"].read("test", source, made.workspace, 0).problems


def test_problems_carry_the_graders_version_through_their_file(workspace: Workspace) -> None:
    made = setup(workspace, FUNCTION)
    [problem] = problems(made)
    assert problem.grader == "function" and problem.grading.startswith("function-")
    write_problems(workspace.root / "stored.jsonl", [problem])
    assert read_problems(workspace.root / "stored.jsonl") == [problem]
    (workspace.root / "own.py").write_text("def grade(problem, answer):\n    return True\n")
    [later] = problems(setup(workspace, FUNCTION))
    assert later.grading != problem.grading, "another source is another version"
    assert "grading" not in make_problem().as_row(), "rows without an own grader are as they were"


def test_a_functions_gold_answers_are_graded_by_it_and_a_judges_are_not(workspace: Workspace) -> None:
    made = setup(workspace, FUNCTION)
    weakest = made.recipe.grading.model_copy(update={"isolation": "resource_limits"})
    configure(weakest, workspace.root, graders=made.recipe.own_graders)
    assert [verdict.score for verdict in grade_gold(problems(made))] == [1.0]
    [verdict] = grade_gold(problems(setup(workspace, JUDGE)))
    assert (verdict.score, verdict.reason) == (None, "no gold answer, or a judge grades it")


def test_rows_need_no_answer_where_the_grader_needs_none(workspace: Workspace) -> None:
    row = {"id": "1", "question": "Write a line about rain.", "answer": "", "grader": "anything"}
    (workspace.root / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    [problem] = problems(setup(workspace, JUDGE))
    assert (problem.answer, problem.grader) == ("", "judge")


def test_a_judge_of_another_pool_is_found_and_counts_among_the_pools(workspace: Workspace) -> None:
    made = setup(workspace, JUDGE)
    [grader] = made.recipe.own_graders
    assert isinstance(grader, JudgeGrader) and grader.judge.model == "openai/other"
    assert {name: pool.names for name, pool in made.every_pool.items()} == {"solo": ("one",), "judges": ("referee",)}


def test_a_judge_of_the_scored_model_needs_consent(workspace: Workspace) -> None:
    words = r"grader\.worker: twin would grade its own model's answers: .*asks one, which is openai/one.*scored_too"
    with pytest.raises(ConfigError, match=words):
        setup(workspace, JUDGE | {"worker": "twin"})
    assert setup(workspace, JUDGE | {"worker": "twin", "scored_too": True}).recipe.judges["rlpr"].judge.name == "twin"
    with pytest.raises(ConfigError, match="one would grade its own"):
        setup(workspace, JUDGE | {"pool": None, "worker": "one"})


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
def test_what_cannot_grade_is_refused_by_name(workspace: Workspace, grader: dict[str, Any], words: str) -> None:
    (workspace.root / "broken.py").write_text("def grade(:\n")
    (workspace.root / "key.py").write_text(f"KEY = 'sk-{'a' * 30}'\ndef grade(p, a):\n    return 1\n")
    with pytest.raises(ConfigError, match=words):
        setup(workspace, grader)


def test_a_benchmark_whose_grader_needs_settings_is_refused_without_them(workspace: Workspace) -> None:
    entry = replace(BENCHMARKS["rlpr"], grader="judge")
    source = setup(workspace, JUDGE).recipe.benchmarks["rlpr"].model_copy(update={"train_file": None})
    assert entry.read("test", source, workspace, 0).rows == 1
    with pytest.raises(ConfigError, match=r"benchmarks\.rlpr\.grader: is missing, and 'judge' needs settings"):
        entry.read("test", source.model_copy(update={"grader": None}), workspace, 0)
    with pytest.raises(ValueError, match="unknown grader essay; known: choice, code, function, judge, math"):
        replace(entry, grader="essay")
