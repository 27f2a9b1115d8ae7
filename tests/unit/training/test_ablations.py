"""What an ablation changes: every change that is stated leaves a recipe, another one, and a mistake names its file."""

from pathlib import Path

import pytest

from ops.config import load_recipe
from ops.config.ablations import ABLATIONS as ABLATIONS_FILE
from ops.config.ablations import EXPERIMENTS, Change, changed, load_ablations
from ops.core.errors import ConfigError
from ops.core.registry import names
from tests.conftest import ROOT

CONFIG = ROOT / "config"
CHANGES = [(file, name) for file in (ABLATIONS_FILE, EXPERIMENTS) for name in load_ablations(CONFIG, file).changes]


@pytest.mark.parametrize(("file", "name"), CHANGES)
def test_a_change_leaves_another_recipe_that_asks_for_as_many_rollouts(file: str, name: str) -> None:
    ablations = load_ablations(CONFIG, file)
    before = load_recipe(CONFIG, ablations.recipe)
    after = changed(before, ablations.changes[name], CONFIG / file)
    assert after != before
    assert after.grpo.steps * after.grpo.rollouts_per_step == before.grpo.steps * before.grpo.rollouts_per_step


def test_no_experiment_that_trains_has_the_name_of_one_that_does_not() -> None:
    assert not {name for file, name in CHANGES if file == EXPERIMENTS} & set(names("ops.evaluation.experiments"))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompting": {"subtask": False}}, "prompting.subtask"),
        ({"prompting": {"access": "fine"}}, "prompting.access"),
        ({"policy": {"hidden": 8}}, "policy.scratch.hidden"),
    ],
)
def test_a_change_of_prompting_or_size_that_is_none_says_where(change: Change, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(load_recipe(CONFIG, "quickstart"), change, CONFIG / EXPERIMENTS)
    assert (caught.value.field, Path(str(caught.value).partition(":")[0]).name) == (field, EXPERIMENTS)


def test_a_change_that_is_none_says_which_field_of_which_file() -> None:
    with pytest.raises(ConfigError, match=r"config/ablations\.yaml.*grpo\.stepz") as caught:
        changed(load_recipe(CONFIG, "quickstart"), {"grpo": {"stepz": 3}}, Path("config/ablations.yaml"))
    assert caught.value.field == "grpo.stepz"
