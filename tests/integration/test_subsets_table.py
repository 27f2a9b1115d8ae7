"""A study of subsets: two policies on subsets of a pool, with real questions, workers and grading."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Setup
from ops.core.workspace import Workspace
from ops.evaluation.arms import make_arm_table
from ops.stages.studies.subsets import PolicyOnSubsets, PolicyPair, SubsetEvaluator
from ops.stages.study_context import StudyContext
from ops.training.run.training_run import RunPlan, RunResult, build_training_command, prepare_environment
from tests.integration.checkouts import TRAINED, configure, load_raw
from tests.unit.training.tiny import tiny_plan

pytestmark = pytest.mark.slow


def train(folder: Path) -> RunResult:
    """Train the run to its end in a process of its own."""
    plan = RunPlan.read(folder)
    variables = os.environ | prepare_environment(plan, folder)
    subprocess.run(
        build_training_command(plan, folder), cwd=plan.root, env=variables, check=True, capture_output=True, timeout=240
    )
    result = RunResult.read(folder)
    assert result is not None
    return result


@pytest.fixture
def setup(project: Workspace) -> Setup:
    """Eight questions of every training benchmark."""
    unseen = dict.fromkeys(("aime25", "gpqa_diamond", "bigcodebench"))
    known = {name: {"source": "embedded", "train": 4, "test": 8} for name in TRAINED}
    recipe = {"base": "adaptive", "name": "few", "benchmarks": unseen | known}
    configure(project, {"recipes/few": recipe})
    made = Setup.read(project, "few")
    load_raw(made)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run whose policy uses one worker, the guesser."""
    (tmp_path / "tiny").mkdir()
    plan, _ = tiny_plan(tmp_path / "tiny")
    shutil.copytree(plan.base_policy, tmp_path / "run" / "policy")
    return tmp_path / "run"


def line(bench: SubsetEvaluator, label: str, sides: PolicyPair) -> tuple[dict[str, str], dict[str, str]]:
    """Return the cells of the arms before and after."""
    made = make_arm_table({1: bench.make_arms(label, sides)})
    before, after = (dict(zip(made.head, map(str, row), strict=True)) for row in made.rows)
    return before, after


def test_two_arms_hold_both_policies_against_the_best_worker_of_each_subset(setup: Setup, run: Path) -> None:
    bench, names = SubsetEvaluator("subsets", setup, 4, StudyContext(train)), setup.pool.names
    guesser, solver = names.index("guesser"), names.index("solver")
    sides = PolicyPair(PolicyOnSubsets(run, [(guesser,), (solver,)]), PolicyOnSubsets(run, [(guesser,)]))
    before, after = line(bench, "with and without", sides)
    assert (before["system"], after["system"], after["subsets"]) == (
        "with and without: before the stage", "with and without: after it", "1",
    )  # fmt: skip
    assert float(before["valid, %"]) == 50.0 and float(after["valid, %"]) == 100.0  # not on offer: no workflow
    right, wrong = (float(cells["in-domain, %"].split()[0]) for cells in (after, before))
    assert right == pytest.approx(2 * wrong, abs=0.2)
    assert float(after["in-domain minus before, points"].split()[0]) == pytest.approx(right - wrong, abs=0.2)
    assert float(after["best of them alone, %"]) == right  # alone, the guesser is the best of the one on offer

    def refuse() -> None:
        raise AssertionError("something was asked")

    again = SubsetEvaluator("subsets", setup, 4, StudyContext(train, on_begin=refuse))
    assert line(again, "with and without", sides) == (before, after)


def test_a_newcomers_ordinal_follows_those_of_the_policys_workers(setup: Setup, run: Path) -> None:
    card = PolicyCard.read(run / "policy")
    card.model_copy(update={"offered": tuple(n for n in card.offered if n != "solver")}).write(run / "policy")
    side = PolicyOnSubsets(run, [(0, 8), (1, 8)])  # the newcomer has the ninth ordinal
    bench = SubsetEvaluator("subsets", setup, 2, StudyContext(train))
    before, after = line(bench, "a newcomer", PolicyPair(side, side, setup.pool.worker("solver")))
    assert after["subsets"] == "2"
    assert before["valid, %"] == after["valid, %"] == "0.0"  # it uses the guesser, who is not offered
    _, alone = line(bench, "alone", PolicyPair(PolicyOnSubsets(run, [(5,)]), PolicyOnSubsets(run, [(5,)])))
    assert float(after["best of them alone, %"]) >= float(alone["best of them alone, %"])
