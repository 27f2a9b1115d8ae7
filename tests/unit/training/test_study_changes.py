"""The changes of a study: each stated change gives another recipe, and an error names its file and field."""

from pathlib import Path

import pytest

from ops.config import load_recipe
from ops.config.studies import STUDIES, Change, Changes, changed, load_studies
from ops.core.errors import ConfigError
from ops.core.registry import names
from tests.conftest import ROOT

CONFIG = ROOT / "config"
KNOWN = load_studies(CONFIG).studies
CHANGES = [(name, each) for name, study in KNOWN.items() if isinstance(study, Changes) for each in study.changes]


@pytest.mark.parametrize(("study", "name"), CHANGES)
def test_a_change_leaves_another_recipe_that_asks_for_as_many_rollouts(study: str, name: str) -> None:
    entry = KNOWN[study]
    assert isinstance(entry, Changes)
    before = load_recipe(CONFIG, entry.recipe)
    after = changed(before, entry.changes[name], CONFIG / STUDIES)
    assert after != before
    assert after.grpo.steps * after.grpo.rollouts_per_step == before.grpo.steps * before.grpo.rollouts_per_step


def test_no_study_of_the_file_has_the_name_of_one_of_the_code() -> None:
    assert not {*KNOWN} & {*names("ops.evaluation.studies")}
    assert {study.recipe for study in KNOWN.values()} <= {file.stem for file in (CONFIG / "recipes").glob("*.yaml")}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompting": {"subtask": False}}, "prompting.subtask"),
        ({"prompting": {"access": "fine"}}, "prompting.access"),
        ({"policy": {"hidden": 8}}, "policy.scratch.hidden"),
        ({"grpo": {"stepz": 3}}, "grpo.stepz"),
    ],
)
def test_a_change_that_leaves_no_recipe_names_file_and_field(change: Change, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(load_recipe(CONFIG, "quickstart"), change, CONFIG / STUDIES)
    assert (caught.value.field, Path(str(caught.value).partition(":")[0]).name) == (field, STUDIES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("studies: {a b: {kind: rounds, title: t, recipe: recursive}}", r"studies\.a b"),
        ("studies: {a: {kind: round, title: t, recipe: recursive}}", r"studies\.a.*'round'"),
        ("studies: {a: {kind: changes, title: t, recipe: quickstart, seeds: []}}", r"studies\.a\.changes\.seeds"),
        ("studies: {a: {kind: changes, title: t, recipe: r, baselines: [best]}}", r"baselines: unknown baseline best"),
        ("studies: {a: {kind: changes, title: t, recipe: r, claimed: [b]}}", r"claimed: 'b' is none of the changes"),
        ("studies: {a: {kind: changes, title: t, recipe: r, changes: {as it is: {}}}}", r"'as it is' names the unch"),
    ],
)
def test_a_study_that_cannot_be_names_its_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / STUDIES).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_studies(tmp_path)
