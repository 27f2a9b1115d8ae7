"""Assets of experiments that train anew: named by a file that people edit, and made from the run's snapshot."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.resources import Podium
from assets.retrained import retrained_experiments, setups
from ops.config import Snapshot
from ops.config.ablations import EXPERIMENTS, load_ablations
from ops.core.errors import ConfigError, PodiumError
from ops.core.workspace import Workspace
from pipelines.definitions import definitions

BROKEN = "recipe: quickstart\nchanges:\n  wider: [\n"


def write(config: Path, text: str = "", **changes: object) -> None:
    said = text or yaml.safe_dump({"recipe": "quickstart", "changes": changes}, sort_keys=False)
    (config / EXPERIMENTS).write_text(said, encoding="utf-8")


def names(config: Path) -> list[str]:
    return [key.to_user_string() for made in retrained_experiments(config) for key in made.keys]


def materialize(podium: Podium, name: str) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions(podium).resolve_implicit_global_asset_job_def()
        key = dg.AssetKey.from_user_string(name)
        return job.execute_in_process(instance=instance, asset_selection=[key], run_config=podium.run_config())


def test_each_change_is_an_asset_that_says_what_it_changes(project: Workspace) -> None:
    write(project.config, wider={"policy": {"hidden": 256}}, conductor={"grpo": {"kl": 0.1}})
    wider, other = retrained_experiments(project.config)
    assert names(project.config) == ["retrained/wider", "retrained/conductor"]  # no other asset's name is in the way
    assert "recipe quickstart trained anew on the same data with policy.hidden: 256" in str(
        wider.specs_by_key[wider.key].description
    )
    graph = definitions(Podium(root=str(project.root))).resolve_asset_graph()
    assert {graph.get(made.key).group_name for made in (wider, other)} == {"experiments"}
    (project.config / EXPERIMENTS).unlink()
    assert names(project.config) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BROKEN, "experiments.yaml: line 4: is not valid YAML"),
        ("recipe: quickstart\nchanges: {wider: 3}\n", "experiments.yaml: changes.wider"),
        ("recipe: quickstart\nchanges: {a b: {policy: {hidden: 8}}}\n", "changes.a b: cannot be a name"),
    ],
)
def test_a_file_that_cannot_be_read_stops_only_its_own_experiments(project: Workspace, text: str, why: str) -> None:
    write(project.config, text)
    podium = Podium(root=str(project.root))
    assert names(project.config) == ["retrained/experiments_yaml"]
    [stands] = retrained_experiments(project.config)
    assert why in str(stands.specs_by_key[stands.key].description)
    assert materialize(podium, "worker_pool").success
    with pytest.raises(PodiumError, match=why):
        materialize(podium, "retrained/experiments_yaml")
    with pytest.raises(ConfigError, match=why):
        load_ablations(project.config, EXPERIMENTS)
    write(project.config, wider={"policy": {"hidden": 256}})
    with pytest.raises(PodiumError, match=why):  # the snapshot says what was so when the run was launched
        podium.of(podium.snapshot().model_copy(update={"experiments": why})).snapshot().readable_experiments()


def test_an_experiment_is_made_from_the_snapshot_of_its_run(project: Workspace) -> None:
    write(project.config, wider={"policy": {"hidden": 256}}, narrower={"policy": {"hidden": 64}})
    podium = Podium(root=str(project.root))
    snapshot = podium.snapshot()
    kept = Snapshot.read(snapshot.write(project.snapshots).parent, snapshot.key)
    write(project.config, wider={"policy": {"hidden": 192}})
    as_it_is, other = setups(podium.of(kept), "wider")
    assert (as_it_is.recipe.policy.hidden, other.recipe.policy.hidden) == (128, 256)  # type: ignore[union-attr]
    assert other.recipe.budget.run_usd == 3 * podium.load().recipe.budget.run_usd  # the recipe's own, and two changes
    assert setups(podium, "wider")[1].recipe.policy.hidden == 192  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"experiments\.yaml: changes\.narrower: does not exist"):
        setups(podium, "narrower")
    with pytest.raises(ConfigError, match=r"changes\.wider: changes the recipe 'quickstart', not 'adaptive'"):
        setups(Podium(root=str(project.root), recipe="adaptive"), "wider")


def test_a_change_that_leaves_no_recipe_is_told_where_it_is_asked_for(project: Workspace) -> None:
    write(project.config, wrong={"policy": {"hiddenn": 8}}, wider={"policy": {"hidden": 256}})
    podium = Podium(root=str(project.root))
    assert setups(podium, "wider")
    with pytest.raises(ConfigError, match=r"experiments\.yaml.*policy\.scratch\.hiddenn"):
        materialize(podium, "retrained/wrong")


def test_without_the_recipe_trained_as_it_is_there_is_nothing_to_stand_beside(project: Workspace) -> None:
    write(project.config, wider={"policy": {"hidden": 256}})
    with pytest.raises(PodiumError, match=r"no finished training of recipe 'quickstart' as it is.*`podium run"):
        materialize(Podium(root=str(project.root)), "retrained/wider")
