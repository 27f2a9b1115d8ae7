"""`podium subsets`: rows of two policies on parts of a pool, with questions, workers and grading as they are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from assets.resources import Podium
from assets.subsets import Sampling
from ops.conductor.policy import PolicyCard
from ops.config import Setup
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.subsets import parts
from ops.stages.making import Making
from ops.stages.problems import materialize_raw
from ops.stages.subsets import HEAD, Side, Sides, Table
from ops.training.run.alone import train
from pipelines.subsets import write_table
from tests.unit.training.tiny import tiny_plan

pytestmark = pytest.mark.slow
NAMES = ("math500", "mmlu", "rlpr", "livecodebench")


@pytest.fixture
def setup(project: Workspace) -> Setup:
    """Eight questions of every benchmark that is trained on."""
    sources = {name: {"source": "embedded", "train": 4, "test": 8} for name in NAMES}
    recipe = {"base": "adaptive", "name": "few", "benchmarks": sources}
    for unseen in ("aime25", "gpqa_diamond", "bigcodebench"):
        sources[unseen] = None  # type: ignore[assignment]
    (project.config / "recipes" / "few.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    made = Podium(root=str(project.root), recipe="few").load()
    for name in NAMES:
        materialize_raw(made, name)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run whose policy knows one worker, the guesser."""
    (tmp_path / "tiny").mkdir()
    plan, _ = tiny_plan(tmp_path / "tiny")
    shutil.copytree(plan.base_policy, tmp_path / "run" / "policy")
    return tmp_path / "run"


def test_a_row_holds_both_policies_against_the_best_worker_of_each_part(setup: Setup, run: Path) -> None:
    making, names = Making(train), setup.pool.names
    table = Table(setup, 4, making)
    guesser, solver = names.index("guesser"), names.index("solver")
    sides = Sides(Side(run, [(guesser,), (solver,)]), Side(run, [(guesser,)]))
    cells = table.cells(table.row("with and without", sides))
    label, drawn, theirs, valid, ours, same, added, best = map(str, cells)
    assert (label, drawn) == ("with and without", "1")
    assert float(valid) == 50.0 and float(same) == 100.0  # who is not on offer is no workflow
    right, wrong = (float(re.match(r"[-\d.]+", cell)[0]) for cell in (ours, theirs))  # type: ignore[index]
    assert right == pytest.approx(2 * wrong, abs=0.2)
    assert added.startswith(f"{right - wrong:.1f}") or float(added.split()[0]) == pytest.approx(right - wrong, abs=0.2)
    assert float(best) == right  # alone, the guesser is the best of the one on offer

    again = Table(setup, 4, None)  # nothing is written or asked any more
    assert again.cells(again.row("with and without", sides)) == cells
    with pytest.raises(DataError, match="subsets has not been run"):
        again.row("another part", Sides(Side(run, [(0, 1)]), Side(run, [(0, 1)])))


def test_a_stranger_stands_behind_the_workers_that_the_policy_knows(setup: Setup, run: Path) -> None:
    card = PolicyCard.read(run / "policy")
    card.model_copy(update={"offered": tuple(n for n in card.offered if n != "solver")}).write(run / "policy")
    stranger = setup.pool.worker("solver")
    side = Side(run, [(0, 8), (1, 8)])  # the stranger's is the ninth ordinal
    table = Table(setup, 2, Making(train))
    row = table.cells(table.row("a stranger", Sides(side, side, stranger)))
    assert row[1] == "2" and row[3] == row[5] == "0.0"  # it asks for the guesser, who is not on offer
    alone = table.cells(table.row("alone", Sides(Side(run, [(5,)]), Side(run, [(5,)]))))
    assert float(row[-1]) >= float(alone[-1])


def test_what_cannot_be_measured_is_refused_before_anything_runs(setup: Setup) -> None:
    with pytest.raises(PodiumError, match="recipe 'quickstart' has no adaptive section"):
        write_table(setup.workspace, ["few", "quickstart"], 1, Sampling(per_size=1, questions=1, unseen=""))
    with pytest.raises(PodiumError, match="pool 'quickstart' has no 'nobody'"):
        write_table(setup.workspace, ["few"], 1, Sampling(unseen="nobody"))
    assert len(HEAD) == 8 and len(parts(9, 3, 1)) == 8
