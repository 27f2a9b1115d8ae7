"""What an ablation changes: every change that is stated leaves a recipe, another one, and a mistake names its file."""

from pathlib import Path

import pytest

from ops.config import load_recipe
from ops.config.ablations import changed, load_ablations
from ops.core.errors import ConfigError
from tests.conftest import ROOT

CONFIG = ROOT / "config"
FILE = CONFIG / "ablations.yaml"
ABLATIONS = load_ablations(CONFIG)


@pytest.mark.parametrize("name", ABLATIONS.changes)
def test_a_change_leaves_another_recipe_that_asks_for_as_many_rollouts(name: str) -> None:
    before = load_recipe(CONFIG, ABLATIONS.recipe)
    after = changed(before, ABLATIONS.changes[name], FILE)
    assert after != before
    assert after.grpo.steps * after.grpo.rollouts_per_step == before.grpo.steps * before.grpo.rollouts_per_step


def test_a_change_that_is_none_says_which_field_of_which_file() -> None:
    with pytest.raises(ConfigError, match=r"config/ablations\.yaml.*grpo\.stepz") as caught:
        changed(load_recipe(CONFIG, "quickstart"), {"grpo": {"stepz": 3}}, Path("config/ablations.yaml"))
    assert caught.value.field == "grpo.stepz"
