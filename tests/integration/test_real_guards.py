"""The guards on the mix of 960 from real rows, and on the same mix with an evaluation question planted in it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ops.benchmarks.raw import evaluation_questions
from ops.benchmarks.store import read_problems, write_problems
from ops.config import Recipe, Setup, load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.quality import stages
from ops.stages.curation import materialize_mix, materialize_shortlist
from ops.stages.problems import materialize_raw
from tests.setups import without_workers

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT.parent / "shared" / "benchmarks"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not ROWS.is_dir(), reason="no real benchmark rows beside the project"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Recipe]:
    """The recipe `files`, materialized up to the mix."""
    workspace = Workspace(tmp_path_factory.mktemp("real"))
    shutil.copytree(ROOT / "config", workspace.config)
    (workspace.root / "benchmarks").symlink_to(ROWS)
    recipe = load_recipe(workspace.config, "files")
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    materialize_shortlist(without_workers(workspace, recipe))
    materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool)))
    return workspace, recipe


def test_every_suite_is_green_on_real_rows(made: tuple[Workspace, Recipe]) -> None:
    workspace, recipe = made
    reports = {
        "raw": stages.raw_problems(without_workers(workspace, recipe)),
        "raw gold": stages.raw_gold(without_workers(workspace, recipe)),
        "shortlist": stages.shortlist(without_workers(workspace, recipe)),
        "shortlist gold": stages.shortlist_gold(workspace),
        "mix": stages.training_mix(without_workers(workspace, recipe)),
        "mix gold": stages.training_mix_gold(workspace),
    }
    assert {name: report.failures for name, report in reports.items() if not report} == {}
    assert reports["mix"].checked == 960
    assert reports["mix gold"].skipped == 240, "LiveCodeBench has no reference programs"
    assert reports["raw"].checked > 16_000


def test_a_damaged_row_of_a_release_is_named(made: tuple[Workspace, Recipe]) -> None:
    workspace, recipe = made
    file = workspace.data / "raw" / "livecodebench-v1-train.jsonl"
    rows = read_problems(file)
    write_problems(file, [replace(rows[0], tests=()), *rows[1:]])
    damaged = stages.raw_problems(without_workers(workspace, recipe))
    file.unlink()
    gone = stages.raw_problems(without_workers(workspace, recipe))
    write_problems(file, rows)
    assert f"program without tests: livecodebench/{rows[0].id}" in damaged.failures
    assert [failure for failure in gone.failures if file.name in failure]


def test_an_evaluation_question_in_the_mix_is_named(made: tuple[Workspace, Recipe]) -> None:
    workspace, recipe = made
    file = workspace.data / "training_mix.jsonl"
    mix, held_out = read_problems(file), evaluation_questions(workspace, recipe)["math500"]
    respaced = held_out[3].question.replace(" ", "  ").upper()
    planted = replace(held_out[3], id="planted", split="train", question=respaced)
    first = next(index for index, problem in enumerate(mix) if problem.domain == "math")
    write_problems(file, [*mix[:first], planted, *mix[first + 1 :]])
    report = stages.training_mix(without_workers(workspace, recipe))
    write_problems(file, mix)
    assert report.failures == ["repeats an evaluation question: math500/planted"]
