"""What needs the result of an earlier step, in a workspace without it: one line that says what is lacking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ops.benchmarks.problem_files import describe_evaluation_tests, read_training_candidates
from ops.conductor.stored_writer import policy_id
from ops.config import PoolChange, Setup, load_pool, load_recipe
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.stored_scores import list_solo_workers
from ops.release import aliases, mlflow_store, registry
from ops.release.mlflow_store import RegistryError
from ops.retraining.fine_tuning_start import find_fine_tuning
from ops.versioning.without_dvc import hash_stage_output

CONFIG = Workspace.find().config


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """The quickstart in an empty workspace."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recipe = load_recipe(CONFIG, "quickstart")
    return Setup(Workspace(tmp_path), recipe, load_pool(CONFIG, recipe.pool))


@pytest.mark.parametrize(
    ("ask", "lacks"),
    [
        (lambda setup: registry.load_decision(setup.workspace, "1"), "nothing is registered yet"),
        (lambda setup: registry.get_latest_version(setup.workspace), "neither a challenger nor a champion"),
        (lambda setup: registry.get_challenger_with_policy(setup.workspace, "key"), "There is no challenger"),
        (lambda setup: aliases.find_rollback_target(setup.workspace), "roll"),
        (lambda setup: aliases.roll_back_champion(setup.workspace, "why"), "roll"),
        (lambda setup: hash_stage_output(setup.workspace, "mix"), "dvc.yaml: .*does not exist"),
        (lambda setup: describe_evaluation_tests(setup.workspace, hidden(setup).recipe, "livecodebench"), "data/raw"),
        (
            lambda setup: read_training_candidates(setup.workspace, untrained(setup).recipe),
            "no benchmark with training",
        ),
        (lambda setup: list_solo_workers(without_baselines(setup)), "Precache first"),
        (lambda setup: policy_id(setup.workspace.root / "policy"), "holds no policy: .*`podium train RECIPE`"),
    ],
)
def test_what_is_lacking_is_said(empty: Setup, ask: Callable[[Setup], object], lacks: str) -> None:
    with pytest.raises(PodiumError, match=lacks) as said:
        ask(empty)
    assert "\n" not in str(said.value)


def hidden(setup: Setup) -> Setup:
    """With a benchmark whose tests are hidden, from the hub."""
    source = setup.recipe.benchmarks["livecodebench"].model_copy(update={"source": "hub"})
    benchmarks = setup.recipe.benchmarks | {"livecodebench": source}
    return changed(setup, benchmarks=benchmarks)


def untrained(setup: Setup) -> Setup:
    return changed(setup, benchmarks={"aime25": setup.recipe.benchmarks["aime25"]})


def without_baselines(setup: Setup) -> Setup:
    return changed(setup, evaluation=setup.recipe.evaluation.model_copy(update={"baselines": ()}))


def changed(setup: Setup, **values: object) -> Setup:
    return Setup(setup.workspace, setup.recipe.model_copy(update=values), setup.pool)


def test_a_registry_without_a_champion_has_nothing_to_roll_back(empty: Setup) -> None:
    with mlflow_store.connect(empty.workspace):
        pass  # the store is there, and nothing in it
    for ask in (aliases.find_rollback_target, registry.get_latest_version):
        with pytest.raises(RegistryError):
            ask(empty.workspace)


def test_a_fine_tuning_that_was_never_started_has_no_folder(empty: Setup) -> None:
    change = PoolChange(version="1", policy="key", before=empty.pool)
    assert find_fine_tuning(empty, change) is None


def test_a_deleted_current_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_ROOT", raising=False)
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(PodiumError, match="the current folder was deleted"):
        Workspace.find()
