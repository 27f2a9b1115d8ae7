"""A run reads only what was resolved at its launch: edits, retries, and the studies of config/studies.yaml."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
import yaml

from assets import partitions
from assets.resources import SNAPSHOT_TAG, RunResource, offer_recipes
from assets.studies import RECIPE_STUDIES, UNREADABLE_STUDY, describe_recipe_studies, load_study, make_recipe_studies
from ops.benchmarks.registry import BENCHMARKS
from ops.config import Setup, Snapshot
from ops.config.studies import STUDIES, Changes, load_studies, require_studies
from ops.core.errors import ConfigError, DataError, PodiumError
from ops.core.workspace import Workspace
from ops.stages.studies.recipe_changes import make_changed_setups
from ops.training.cold_start.sampling import load_subtasks
from ops.workflow.few_shots import load_few_shots
from pipelines.dagster_home import make_process_tags
from pipelines.definitions import make_definitions
from pipelines.launching import execute_in_process
from pipelines.studies import run_study

POOL = dg.AssetKey("worker_pool")


@pytest.fixture
def instance(project: Workspace) -> dg.DagsterInstance:
    project.dagster_home.mkdir(parents=True)
    return dg.DagsterInstance.local_temp(str(project.dagster_home))


@pytest.fixture
def podium(project: Workspace) -> RunResource:
    return RunResource(root=str(project.root))


def reprice(project: Workspace, usd: float) -> None:
    file = project.config / "pools" / "quickstart.yaml"
    pool = yaml.safe_load(file.read_text(encoding="utf-8"))
    pool["workers"][0]["price"]["output"] = usd
    file.write_text(yaml.safe_dump(pool), encoding="utf-8")


def price(snapshot: Snapshot) -> float:
    known = snapshot.pool.workers[0].price
    assert known is not None
    return known.output


def shown_pool(instance: dg.DagsterInstance) -> tuple[str, object]:
    """Return the run that materialized the pool last, and the metadata of the pool there."""
    event = instance.get_latest_materialization_event(POOL)
    assert event is not None and event.asset_materialization is not None
    return event.run_id, event.asset_materialization.metadata["pool"].value


def materialize(podium: RunResource, instance: dg.DagsterInstance, asset: dg.AssetKey = POOL, **tags: str) -> str:
    """Materialize an asset in a separate run and return its id."""
    job = make_definitions(podium).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        instance=instance, asset_selection=[asset], run_config=podium.make_run_config(), tags=tags
    )
    assert done.success
    return done.run_id


def snapshot_of(project: Workspace, instance: dg.DagsterInstance, run_id: str) -> Snapshot:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return Snapshot.read(project.snapshots, run.tags[SNAPSHOT_TAG])


def test_it_holds_everything_resolved_and_reads_back(project: Workspace) -> None:
    snapshot = Snapshot.capture(project.config, "quickstart", 7, "c0ffee")
    assert (snapshot.recipe.seed, snapshot.pool.name, snapshot.git_commit) == (7, "quickstart", "c0ffee")
    assert snapshot.gate.min_format_compliance == 0.95
    file = snapshot.write(project.snapshots)
    assert Snapshot.read(project.snapshots, snapshot.key) == snapshot
    assert snapshot.write(project.snapshots) == file
    assert snapshot.key != Snapshot.capture(project.config, "quickstart", 8, "c0ffee").key
    with pytest.raises(DataError, match=r"nothing\.json.*does not exist.*Start a new run"):
        Snapshot.read(project.snapshots, "nothing")


def test_a_deepspeed_file_is_read_when_the_run_is_launched(project: Workspace) -> None:
    file = project.config / "recipes" / "deep.yaml"
    recipe = yaml.safe_load((project.config / "recipes" / "quickstart.yaml").read_text(encoding="utf-8"))
    recipe["grpo"] |= {"deepspeed": "zero2.json"}
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    snapshot = Snapshot.capture(project.config, "deep", None, "c0ffee")
    assert snapshot.deepspeed is not None and snapshot.deepspeed["zero_optimization"]["stage"] == 2
    file.write_text(yaml.safe_dump(recipe | {"grpo": recipe["grpo"] | {"deepspeed": "zero9.json"}}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"zero9\.json: does not exist\. Did you mean zero\d\.json\?"):
        Snapshot.capture(project.config, "deep", None, "c0ffee")


def test_few_shots_and_subtasks_that_are_edited_or_removed_stay_as_they_were(project: Workspace) -> None:
    asked = Snapshot.capture(project.config, "quickstart", 7, "c0ffee")
    written = {name: (project.data / name).read_text(encoding="utf-8") for name in asked.texts}
    assert {"few_shots/mixed.yaml", "cold_start/subtasks.yaml"} <= set(written)
    assert asked.texts == written
    shown = load_few_shots(project.data, "mixed")
    asked.write(project.snapshots)
    shutil.rmtree(project.data / "few_shots")
    (project.data / "cold_start" / "subtasks.yaml").write_text("- {say: Other., about: x}\n", encoding="utf-8")
    setup = Snapshot.read(project.snapshots, asked.key).setup(project)
    assert load_few_shots(setup.workspace.texts, "mixed") == shown
    subtasks = load_subtasks(setup.workspace.texts / "cold_start" / "subtasks.yaml")
    assert "Other." not in [subtask.text for subtask in subtasks]
    assert setup.workspace == project
    with pytest.raises(ConfigError, match=r"mixed\.yaml: does not exist"):
        load_few_shots(project.data, "mixed")
    later = Snapshot.capture(project.config, "quickstart", 7, "c0ffee")
    assert later.key != asked.key
    assert later.setup(project).workspace.texts != setup.workspace.texts


def test_the_first_step_of_a_run_takes_it_and_the_tags_say_so(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    run = instance.get_run_by_id(materialize(podium, instance))
    assert run is not None
    snapshot = Snapshot.read(project.snapshots, run.tags[SNAPSHOT_TAG])
    assert snapshot.pool == podium.load_setup().pool
    assert "quickstart" in run.tags["recipe"]


def test_a_run_that_was_launched_before_an_edit_does_not_see_it(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    launched = podium.make_launch_tags()
    reprice(project, 777.0)
    old = snapshot_of(project, instance, materialize(podium, instance, **launched))
    assert price(old) != 777.0
    assert "777.0" not in str(shown_pool(instance)[1])
    assert price(snapshot_of(project, instance, materialize(podium, instance))) == 777.0


@pytest.mark.long
def test_a_retry_works_from_the_snapshot_of_the_run_that_it_repeats(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    """`costs` fails where nothing was precached; it has read the pool by then, and reads no second one."""
    job = dg.build_reconstructable_job("tests.unit.test_snapshot", "costs_again", (str(project.root),))
    first = dg.execute_job(job, instance, run_config=podium.make_run_config())
    assert not first.success
    reprice(project, 777.0)
    again = dg.execute_job(job, instance, reexecution_options=dg.ReexecutionOptions(first.run_id))
    repeated = instance.get_run_by_id(again.run_id)
    assert repeated is not None and repeated.root_run_id == first.run_id
    snapshot = snapshot_of(project, instance, first.run_id)
    assert price(snapshot) != 777.0
    assert shown_pool(instance) == (again.run_id, snapshot.pool.model_dump(mode="json"))


def costs_again(root: str) -> dg.JobDefinition:
    """Build the job again, as Dagster does for a run in a separate process."""
    return make_definitions(RunResource(root=root)).resolve_job_def("costs")


def test_a_commands_run_is_listed_on_the_page_of_its_job_and_is_not_begun_again(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    job, tags, run_id = make_definitions(podium).resolve_job_def("costs"), make_process_tags(), str(uuid4())
    with pytest.raises(Exception, match="training_mix"):
        execute_in_process(job, instance, run_id=run_id, run_config=podium.make_run_config(), tags=tags)
    [run] = instance.get_runs(dg.RunsFilter(job_name="costs", tags={".dagster/repository": "__repository__@podium"}))
    assert (run.run_id, run.status) == (run_id, dg.DagsterRunStatus.FAILURE)
    assert run.tags["dagster/max_retries"] == "0"  # the command decides whether it begins again


@pytest.mark.long
def test_a_run_from_a_launchpad_covers_the_range_of_its_recipe(
    project: Workspace, instance: dg.DagsterInstance
) -> None:
    """Its job's tags name every benchmark: nothing else knows the recipe before the run has begun."""
    own = {"source": "embedded", "test": 4}
    sources = {name: own if name in ("aime25", "bigcodebench") else None for name in BENCHMARKS}
    recipe = {"base": "quickstart", "name": "two", "benchmarks": sources}
    (project.config / "recipes" / "two.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    podium = RunResource(root=str(project.root), recipe="two")
    raw = dg.AssetKey("raw_problems")
    job = (
        make_definitions(podium)
        .resolve_job_def("precache")
        .get_subset(asset_selection={raw}, asset_check_selection=set())
    )
    done = job.execute_in_process(
        instance=instance, run_config=podium.make_run_config(), tags=partitions.tag_all_benchmarks()
    )
    made = instance.fetch_materializations(raw, limit=9).records
    empty = {record.partition_key: "not_in_recipe" in record.asset_materialization.metadata for record in made}
    assert empty == {"aime25": False, "gpqa_diamond": True, "bigcodebench": False}
    run = instance.get_run_by_id(done.run_id)
    assert run is not None and partitions.tag_recipe_benchmarks(podium.load_setup().recipe).items() <= run.tags.items()


def test_a_launchpad_explains_what_it_offers() -> None:
    resources = make_definitions(RunResource()).resolve_job_def("train").resource_defs
    offered = {
        name: getattr(resource.config_schema.as_field().config_type, "fields", {})  # type: ignore[attr-defined]
        for name, resource in resources.items()
    }
    podium = offered.pop("podium")
    assert set(podium) == {"recipe", "pool", "root", "seed"}
    assert all(field.description for field in podium.values())
    assert {"io_manager", "reporter", "trainer"} <= set(offered)
    assert not any(offered.values())  # no other field to fill in


def test_a_launchpad_offers_the_recipes_that_exist_in_its_root(project: Workspace) -> None:
    recipes = project.config / "recipes"
    (recipes / "mine.yaml").write_bytes((recipes / "quickstart.yaml").read_bytes())
    job = make_definitions(RunResource(root=str(project.root), recipe="mine")).resolve_job_def("lifecycle")

    def chosen(**config: str) -> str:
        resolved = dg.validate_run_config(job, {"resources": {"podium": {"config": config}}})
        return str(resolved["resources"]["podium"]["config"]["recipe"])

    assert (chosen(), chosen(recipe="paper")) == ("mine", "paper")
    with pytest.raises(dg.DagsterInvalidConfigError, match=r"not in enum type Recipe \(.*mine, .*paper, "):
        chosen(recipe="papre")


@pytest.mark.filterwarnings("error")
def test_a_run_of_another_recipe_is_configured_without_a_warning(project: Workspace) -> None:
    offered = offer_recipes(RunResource(root=str(project.root)))(root=str(project.root))
    asked = Snapshot.capture(project.config, "quickstart", 7, "").model_copy(update={"recipe_file": "paper"})
    again = offered.for_new_run(asked)
    assert (str(again.recipe), again.seed) == ("paper", 7)
    again.model_dump()


# ── studies ──────────────────────────────────────────────────────────────────

BROKEN = "studies:\n  sizes: [\n"
WIDER = {"wider": {"policy": {"hidden": 256}}}


def write(config: Path, changes: object, text: str = "") -> None:
    study = {"kind": "changes", "title": "Sizes", "recipe": "quickstart", "changes": changes}
    said = text or yaml.safe_dump({"studies": {"sizes": study}}, sort_keys=False)
    (config / STUDIES).write_text(said, encoding="utf-8")


def names(config: Path) -> list[str]:
    """Return the partitions of the asset of the studies."""
    return [key for asset in make_recipe_studies(config) for key in asset.partitions_def.get_partition_keys()]  # type: ignore[union-attr]


def sizes(podium: RunResource) -> dict[str, Setup]:
    entry = load_study(podium, "sizes").entry
    assert isinstance(entry, Changes)
    return make_changed_setups("sizes", entry, podium.load_setup())


def hidden(podium: RunResource, name: str) -> int:
    """Return the width of the policy with that change."""
    return sizes(podium)[name].recipe.policy.hidden  # type: ignore[union-attr]


def test_each_study_is_a_partition_and_the_asset_says_what_it_changes(project: Workspace, podium: RunResource) -> None:
    write(project.config, WIDER)
    [asset] = make_recipe_studies(project.config)
    assert names(project.config) == ["sizes"]
    said = "Sizes: the cold start and the Conductor of recipe quickstart, trained again with: wider."
    assert said in str(asset.specs_by_key[asset.key].description)
    definitions = make_definitions(podium)
    assert definitions.resolve_asset_graph().get(asset.key).group_name == "experiments"
    assert definitions.resolve_job_def("study_sizes").description == said
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
    assert names(tmp_path) == [UNREADABLE_STUDY]
    assert why in describe_recipe_studies(tmp_path)[UNREADABLE_STUDY]
    with pytest.raises(ConfigError, match=why):
        load_studies(tmp_path)


def test_a_file_that_cannot_be_read_stops_only_its_own_studies(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    why = "studies.yaml: line 3: is not valid YAML"
    write(project.config, {}, BROKEN)
    materialize(podium, instance)
    with pytest.raises(PodiumError, match=why):
        materialize(podium, instance, dg.AssetKey(RECIPE_STUDIES), **partitions.tag_range([UNREADABLE_STUDY]))
    write(project.config, WIDER)
    broken = podium.get_snapshot().model_copy(update={"studies": why})  # the state at the launch of the run
    with pytest.raises(PodiumError, match=why):
        require_studies(podium.bind_snapshot(broken).get_snapshot().studies)


def test_a_study_is_made_from_the_snapshot_of_its_run(project: Workspace, podium: RunResource) -> None:
    write(project.config, WIDER | {"narrower": {"policy": {"hidden": 64}}})
    snapshot = podium.get_snapshot()
    kept = podium.bind_snapshot(Snapshot.read(snapshot.write(project.snapshots).parent, snapshot.key))
    write(project.config, {"wider": {"policy": {"hidden": 192}}})
    assert (hidden(kept, "as it is"), hidden(kept, "wider"), hidden(podium, "wider")) == (128, 256, 192)
    changed = sizes(kept).values()
    caps = {each.recipe.budget.run_usd for each in changed}
    assert caps == {3 * podium.load_setup().recipe.budget.run_usd}  # the unchanged recipe, and two changes
    assert {each.run for each in changed} == {f"{podium.load_setup().run}-sizes"}, "the recipe's own run does not pay"


IMPOSSIBLE: tuple[tuple[str, tuple[str, ...], str | None, str], ...] = (
    ("size", (), None, r"there is no study 'size'\. Did you mean sizes\? `podium study` lists all studies"),
    ("sizes", ("narrower",), None, r"studies\.sizes\.changes: has no 'narrower'\. The changes there are: wider, wrong"),
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
            run_study(project, name, changes, recipe)
    with pytest.raises(PodiumError, match="'strategy_emergence' reads one training: name one seed"):
        run_study(project, "strategy_emergence", (), seeds=(1, 2))


def test_without_the_recipe_trained_as_it_is_there_is_nothing_to_stand_beside(
    project: Workspace, podium: RunResource, instance: dg.DagsterInstance
) -> None:
    write(project.config, WIDER)
    with pytest.raises(PodiumError, match=r"training_mix\.jsonl.*nothing was trained.*`podium run"):
        materialize(podium, instance, dg.AssetKey(RECIPE_STUDIES), **partitions.tag_range(["sizes"]))


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b""), lambda file: (file.unlink(), file.mkdir())])
def test_a_new_run_replaces_a_damaged_digest_of_its_snapshot(
    project: Workspace, damage: Callable[[Path], object]
) -> None:
    asked = Snapshot.capture(project.config, "quickstart", None, "")
    damage(asked.write(project.snapshots).with_suffix(".json.sha256"))
    with pytest.raises(DataError, match="Start a new run"):
        Snapshot.read(project.snapshots, asked.key)
    asked.write(project.snapshots)
    assert Snapshot.read(project.snapshots, asked.key) == asked
