"""Assets of studies: config/studies.yaml names them, and they are made from the run's snapshot."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.resources import Podium
from assets.studies import configured_studies, study_of
from ops.config import Snapshot
from ops.config.studies import STUDIES, Changes, load_studies, readable
from ops.core.errors import ConfigError, PodiumError
from ops.core.workspace import Workspace
from ops.stages.studies.recipe_changes import setups
from pipelines.definitions import definitions
from pipelines.studies import made

BROKEN = "studies:\n  sizes: [\n"
WIDER = {"wider": {"policy": {"hidden": 256}}}


def write(config: Path, changes: object, text: str = "") -> None:
    study = {"kind": "changes", "title": "Sizes", "recipe": "quickstart", "changes": changes}
    said = text or yaml.safe_dump({"studies": {"sizes": study}}, sort_keys=False)
    (config / STUDIES).write_text(said, encoding="utf-8")


def names(config: Path) -> list[str]:
    return [key.to_user_string() for made in configured_studies(config) for key in made.keys]


def materialize(podium: Podium, name: str) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions(podium).resolve_implicit_global_asset_job_def()
        key = dg.AssetKey.from_user_string(name)
        return job.execute_in_process(instance=instance, asset_selection=[key], run_config=podium.run_config())


def hidden(podium: Podium, name: str) -> int:
    """Return the width of the policy with that change."""
    entry = study_of(podium, "sizes").entry
    assert isinstance(entry, Changes)
    return setups("sizes", entry, podium.load())[name].recipe.policy.hidden  # type: ignore[union-attr]


def test_each_study_is_an_asset_that_says_what_it_changes(project: Workspace) -> None:
    write(project.config, WIDER)
    [asset] = configured_studies(project.config)
    assert names(project.config) == ["study/sizes"]  # no conflict with another asset's name
    said = "Sizes: the cold start and the Conductor of recipe quickstart, trained again with: wider."
    assert asset.specs_by_key[asset.key].description == said
    graph = definitions(Podium(root=str(project.root))).resolve_asset_graph()
    assert graph.get(asset.key).group_name == "experiments"
    (project.config / STUDIES).unlink()
    assert names(project.config) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BROKEN, "studies.yaml: line 3: is not valid YAML"),
        ("studies: {sizes: 3}\n", "studies.yaml: studies.sizes"),
        ("studies: {a b: {kind: rounds, title: t, recipe: recursive}}\n", "studies.a b"),
    ],
)
def test_the_asset_of_a_file_that_cannot_be_read_says_why(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path, {}, text)
    assert names(tmp_path) == ["study/studies_yaml"]
    [stands] = configured_studies(tmp_path)
    assert why in str(stands.specs_by_key[stands.key].description)
    with pytest.raises(ConfigError, match=why):
        load_studies(tmp_path)


def test_a_file_that_cannot_be_read_stops_only_its_own_studies(project: Workspace) -> None:
    why = "studies.yaml: line 3: is not valid YAML"
    write(project.config, {}, BROKEN)
    podium = Podium(root=str(project.root))
    assert materialize(podium, "worker_pool").success
    with pytest.raises(PodiumError, match=why):
        materialize(podium, "study/studies_yaml")
    write(project.config, WIDER)
    broken = podium.snapshot().model_copy(update={"studies": why})  # the state at the launch of the run
    with pytest.raises(PodiumError, match=why):
        readable(podium.of(broken).snapshot().studies)


def test_a_study_is_made_from_the_snapshot_of_its_run(project: Workspace) -> None:
    write(project.config, WIDER | {"narrower": {"policy": {"hidden": 64}}})
    podium = Podium(root=str(project.root))
    snapshot = podium.snapshot()
    kept = podium.of(Snapshot.read(snapshot.write(project.snapshots).parent, snapshot.key))
    write(project.config, {"wider": {"policy": {"hidden": 192}}})
    assert (hidden(kept, "as it is"), hidden(kept, "wider"), hidden(podium, "wider")) == (128, 256, 192)
    entry = study_of(kept, "sizes").entry
    assert isinstance(entry, Changes)
    made = setups("sizes", entry, kept.load()).values()
    caps = {each.recipe.budget.run_usd for each in made}
    assert caps == {3 * podium.load().recipe.budget.run_usd}  # the unchanged recipe, and two changes
    assert {each.run for each in made} == {f"{podium.load().run}-sizes"}, "the recipe's own run does not pay for them"


IMPOSSIBLE: tuple[tuple[str, tuple[str, ...], str | None, str], ...] = (
    ("size", (), None, r"there is no study 'size'\. Studies: one_worker, .*sizes"),
    ("sizes", ("narrower",), None, r"studies\.yaml: studies\.sizes\.changes: has no 'narrower'.*wider; wrong"),
    ("sizes", (), "adaptive", r"studies\.sizes: is of recipe 'quickstart', not 'adaptive'"),
    ("sizes", (), None, r"studies\.yaml.*policy\.scratch\.hiddenn"),
    ("rounds", (), None, r"recipe 'quickstart' has no recursive section"),
    ("subsets", (), None, r"pool 'quickstart' has no 'unknown' to keep from training"),
    ("one_worker", ("solver",), None, r"study 'one_worker' has no separate changes: there is no 'solver'"),
)
"""Study, changes and recipe that are asked for, and why they are refused."""


def test_an_impossible_study_is_refused_before_anything_runs(project: Workspace) -> None:
    write(project.config, WIDER | {"wrong": {"policy": {"hiddenn": 8}}})
    with (project.config / STUDIES).open("a", encoding="utf-8") as file:
        file.write(
            "  rounds: {kind: rounds, title: Rounds, recipe: quickstart}\n"
            "  subsets: {kind: subsets, title: Subsets, recipe: adaptive, unseen: unknown}\n"
        )
    for name, changes, recipe, why in IMPOSSIBLE:
        with pytest.raises(PodiumError, match=why):
            made(project, name, changes, recipe)
    with pytest.raises(PodiumError, match="'strategy_emergence' reads one training: name one seed"):
        made(project, "strategy_emergence", (), seeds=(1, 2))


def test_without_the_recipe_trained_as_it_is_there_is_nothing_to_stand_beside(project: Workspace) -> None:
    write(project.config, WIDER)
    with pytest.raises(PodiumError, match=r"training_mix\.jsonl.*nothing was trained.*`podium run"):
        materialize(Podium(root=str(project.root)), "study/sizes")
