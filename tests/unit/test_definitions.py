"""The definitions load, agree with docs/extend.md, launch valid runs, and show metadata with readable figures."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets import gate, metadata, partitions
from assets.checks import RECURSION_GUARD
from assets.resources import EXCLUSIVE_RUN_TAGS
from ops.config import load_recipe
from ops.config.studies import load_studies
from ops.evaluation.study import STUDIES
from ops.precaching.profiles import Score
from ops.training.guards import GUARDS
from pipelines.definitions import OWNERS, make_definitions
from pipelines.lifecycle import JOBS

ROOT = Path(__file__).parents[2]
DEPENDENCIES = {
    "raw_problems": set(),
    "shortlist": {"raw_problems"},
    "worker_pool": set(),
    "worker_responses": {"shortlist", "worker_pool"},
    "worker_profiles": {"worker_responses"},
    "training_mix": {"champion_standing", "worker_responses"},
    "signal_forecast": {"training_mix", "worker_profiles"},
    "base_policy": {"signal_forecast"},
    "conductor": {"base_policy", "training_mix"},
    "adaptive_conductor": {"conductor"},
    "recursive_conductor": {"adaptive_conductor"},
    "baselines": {"base_policy", "training_mix"},
    "benchmark_scores": {"recursive_conductor"},
    "leaderboard": {"baselines", "benchmark_scores"},
    "registered_model": {"leaderboard"},
    "promotion": {"leaderboard", "registered_model"},
    "report": {"policy_studies", "promotion"},
}
"""Each asset depends on the nearest ones. A job of a part of the assets has no others to order them by, which is why
some depend on an asset before the nearest one as well."""
EXPERIMENTS = {"policy_studies": {"benchmark_scores"}, "recipe_studies": {"benchmark_scores"}}
"""Materialized by separate jobs, on request."""
RETRAINING = {"champion_standing": {"worker_profiles"}, "drift": {"promotion"}}
"""Materialized by jobs of their own."""


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return make_definitions()


@pytest.fixture(scope="module")
def graph(defs: dg.Definitions) -> dg.AssetGraph:
    dg.Definitions.validate_loadable(defs)
    return defs.resolve_asset_graph()


def test_the_page_draws_edges_that_exist() -> None:
    page = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
    drawn = re.search(r"```mermaid\nflowchart LR\n(.*?)```", page, re.DOTALL)
    assert drawn is not None
    chains = [line.strip().split(" --> ") for line in drawn[1].splitlines()]
    edges = {edge for chain in chains for edge in pairwise(chain)}
    assert edges <= {(parent, asset) for asset, parents in DEPENDENCIES.items() for parent in parents}
    assert {name for edge in edges for name in edge} >= {"raw_problems", "conductor", "leaderboard", "promotion"}


def test_the_graph_is_the_one_that_the_design_draws(graph: dg.AssetGraph) -> None:
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == DEPENDENCIES | EXPERIMENTS | RETRAINING
    for group, members in {"experiments": EXPERIMENTS, "retraining": RETRAINING}.items():
        keys = (key for key in graph.get_all_asset_keys() if graph.get(key).group_name == group)
        assert {key.to_user_string() for key in keys} == set(members)


def test_every_asset_says_what_it_is_and_whose_and_belongs_to_a_group(graph: dg.AssetGraph) -> None:
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.owners == [OWNERS[str(node.group_name)]], key


def test_every_study_is_a_partition_with_a_job_that_selects_it(defs: dg.Definitions, graph: dg.AssetGraph) -> None:
    keys = {name: graph.get(dg.AssetKey(name)).partitions_def for name in EXPERIMENTS}
    assert keys["policy_studies"] == dg.StaticPartitionsDefinition(list(STUDIES))
    studies = load_studies(ROOT / "config").studies
    assert keys["recipe_studies"] == dg.StaticPartitionsDefinition(list(studies))
    for name in studies:
        assert partitions.tag_range([name]).items() <= defs.resolve_job_def(f"study_{name}").run_tags.items()


def test_a_job_that_a_person_starts_needs_no_partition(defs: dg.Definitions) -> None:
    assert {job.partitions_def for job in defs.get_repository_def().get_all_jobs()} == {None}


def test_every_asset_is_in_a_job_that_a_person_starts(defs: dg.Definitions, graph: dg.AssetGraph) -> None:
    jobs = [job for job in defs.get_repository_def().get_all_jobs() if not job.name.startswith("__")]
    held = {key.to_user_string() for job in jobs for key in job.asset_layer.executable_asset_keys}
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == held
    assert all(job.description for job in jobs)


def test_partitioned_assets_take_all_their_partitions_in_one_run(graph: dg.AssetGraph) -> None:
    keys = graph.get_all_asset_keys()
    partitioned = {key.to_user_string() for key in keys if graph.get(key).is_partitioned}
    assert partitioned == {"raw_problems", "worker_responses", "baselines", "benchmark_scores", *EXPERIMENTS}
    for name in partitioned:
        assert graph.get(dg.AssetKey(name)).backfill_policy == partitions.single_run_backfill


def test_every_data_asset_is_gated(graph: dg.AssetGraph) -> None:
    by_asset: dict[str, set[str]] = {}
    for check in graph.asset_check_keys:
        if graph.get_check_spec(check).blocking:
            by_asset.setdefault(check.asset_key.to_user_string(), set()).add(check.name)
    assert by_asset == {asset: set(checks) for asset, checks in gate.BLOCKING_CHECKS.items()}


@pytest.mark.parametrize(
    ("asset", "guards"),
    [
        ("conductor", set(GUARDS) - {RECURSION_GUARD}),
        ("adaptive_conductor", set(GUARDS) - {RECURSION_GUARD}),
        ("recursive_conductor", set(GUARDS)),
    ],
)
def test_every_guard_of_a_training_run_is_a_check_that_blocks_nothing(
    graph: dg.AssetGraph, asset: str, guards: set[str]
) -> None:
    specs = [graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key == dg.AssetKey(asset)]
    assert {spec.name for spec in specs} == guards
    for spec in specs:
        assert not spec.blocking
        assert GUARDS[spec.name].remedy in str(spec.description)


def test_the_lifecycle_holds_every_asset_but_experiments_once() -> None:
    assert sorted(JOBS["lifecycle"].assets) == sorted(DEPENDENCIES)


@pytest.mark.parametrize("name", ["train", "evaluate", "retraining"])
def test_a_job_executes_its_assets_in_the_order_of_the_graph(defs: dg.Definitions, name: str) -> None:
    """Between two of its assets lies no other one, without which Dagster would not order them."""
    held = {key.to_user_string() for key in defs.resolve_job_def(name).asset_layer.executable_asset_keys}
    graph = DEPENDENCIES | (RETRAINING if name == "retraining" else {"champion_standing": set()})

    def before(asset: str, among: set[str] | None = None) -> set[str]:
        direct = {each for each in graph.get(asset, ()) if among is None or each in among}
        return direct.union(*(before(each, among) for each in direct))

    for asset in held:
        assert before(asset) & held == before(asset, held), asset


def test_what_writes_what_others_write_goes_one_at_a_time_over_every_benchmark(defs: dg.Definitions) -> None:
    for name in (*JOBS, "retraining"):
        assert EXCLUSIVE_RUN_TAGS.items() <= defs.resolve_job_def(name).run_tags.items()
        assert partitions.tag_all_benchmarks().items() <= defs.resolve_job_def(name).run_tags.items()
    for file in ("dagster.yaml", "config/team/dagster.yaml"):
        runs = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["concurrency"]["runs"]
        [key] = EXCLUSIVE_RUN_TAGS
        assert runs["max_concurrent_runs"] == 1 or {"key": key, "limit": 1} in runs["tag_concurrency_limits"]


JOB_OF = {"nightly_drift": "detect_drift", "monthly_check": "retraining"}
"""Schedule → the job that it starts."""


def test_schedules_and_sensor_start_stopped(defs: dg.Definitions) -> None:
    sensor = defs.resolve_sensor_def("pool_changed")
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert sensor.job_name == "retraining"
    repository = defs.get_repository_def()
    assert {schedule.name: schedule.job_name for schedule in repository.schedule_defs} == JOB_OF
    assert {schedule.default_status for schedule in repository.schedule_defs} == {dg.DefaultScheduleStatus.STOPPED}


@pytest.mark.parametrize("names", [("math500", "bigcodebench"), ("aime25", "rlpr"), ("mmlu",)], ids=" ".join)
def test_a_run_covers_the_smallest_range_with_all_of_the_recipe(names: tuple[str, ...]) -> None:
    recipe = load_recipe(ROOT / "config", "quickstart")
    recipe = recipe.model_copy(update={"benchmarks": {name: recipe.benchmarks[name] for name in names}})
    first, last = partitions.tag_recipe_benchmarks(recipe).values()
    keys = partitions.benchmarks.get_partition_keys()
    covered = keys[keys.index(first) : keys.index(last) + 1]
    assert set(names) <= set(covered) and {covered[0], covered[-1]} <= set(names)


# ── metadata ─────────────────────────────────────────────────────────────────


def test_a_table_is_dagsters_own_with_typed_columns() -> None:
    shown = metadata.make_table(("worker", "calls", "USD", "note"), [("a", 3, 0.5, None), ("b", 4, 1, "|x|")])
    assert isinstance(shown, dg.TableMetadataValue)
    assert [(column.name, column.type) for column in shown.schema.columns] == [
        ("worker", "string"), ("calls", "int"), ("USD", "float"), ("note", "string"),
    ]  # fmt: skip
    assert [dict(record.data) for record in shown.records] == [
        {"worker": "a", "calls": 3, "USD": 0.5, "note": "–"},
        {"worker": "b", "calls": 4, "USD": 1, "note": "|x|"},
    ]


def test_a_table_without_rows_still_names_its_columns_and_a_row_that_does_not_fit_them_is_an_error() -> None:
    shown = metadata.make_table(("kind", "count"), [])
    assert [column.name for column in shown.schema.columns] == ["kind", "count"] and list(shown.records) == []
    with pytest.raises(ValueError, match="zip"):
        metadata.make_table(("kind", "count"), [("near",)])


def test_an_accuracy_is_never_without_its_error() -> None:
    assert metadata.format_percent(Score(100, 0.71, 0.0454)) == "71.0\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}4.5"
    assert metadata.format_percent(None) == "–"


def test_missing_measurements_are_dashes_among_rounded_figures() -> None:
    facts = {"usd": 0.123456789, "mean_steps": float("nan"), "patterns": 3}
    assert metadata.round_floats(facts) == {"usd": 0.123457, "mean_steps": "–", "patterns": 3}
