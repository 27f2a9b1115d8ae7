"""The definitions load, say what docs/architecture.md draws, and what they would launch is valid."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets import gate, partitions
from assets.checks import LOOPS
from assets.resources import SNAPSHOT, Podium
from ops.config import Snapshot
from ops.core.workspace import Workspace
from ops.training.guards import GUARDS
from pipelines.definitions import definitions
from pipelines.lifecycle import STAGES

DEPENDENCIES = {
    "raw_problems": set(),
    "shortlist": {"raw_problems"},
    "worker_pool": set(),
    "worker_responses": {"shortlist", "worker_pool"},
    "worker_profiles": {"worker_responses"},
    "signal_forecast": {"training_mix", "worker_profiles"},
    "training_mix": {"shortlist", "worker_responses"},
    "base_policy": {"signal_forecast", "training_mix", "worker_profiles"},
    "conductor": {"base_policy", "training_mix"},
    "adaptive_conductor": {"conductor"},
    "baselines": {"base_policy", "raw_problems", "worker_pool"},
    "recursive_conductor": {"adaptive_conductor"},
    "benchmark_scores": {"raw_problems", "recursive_conductor"},
    "leaderboard": {"baselines", "benchmark_scores"},
    "registered_model": {"leaderboard", "recursive_conductor"},
    "promotion": {"registered_model"},
}
EXPERIMENTS = {
    "one_worker": {"benchmark_scores"},
    "without_subtasks_served": {"benchmark_scores"},
    "mechanism_isolation": {"benchmark_scores"},
    "cold_start_validation": {"base_policy"},
    "strategy_emergence": {"conductor"},
}
REPORTS = {
    f"report_{name}": {"leaderboard"}
    for name in (
        "accuracy", "in_domain", "accuracy_against_usd", "equal_price", "equal_calls", "claims", "worker_use", "steps",
        "shapes", "training", "cost_adjusted", "oracle", "experiments", "opponents", "page",
    )
}  # fmt: skip
"""Both are materialized when a person asks for them, by no job."""


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return definitions()


@pytest.fixture(scope="module")
def graph(defs: dg.Definitions) -> dg.AssetGraph:
    dg.Definitions.validate_loadable(defs)
    return defs.resolve_asset_graph()


def test_the_graph_is_the_one_that_the_design_draws(graph: dg.AssetGraph) -> None:
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == DEPENDENCIES | EXPERIMENTS | REPORTS
    for group, members in {"experiments": EXPERIMENTS, "reports": REPORTS}.items():
        keys = (key for key in graph.get_all_asset_keys() if graph.get(key).group_name == group)
        assert {key.to_user_string() for key in keys} == set(members)


def test_every_asset_says_what_it_is_and_belongs_to_a_group(graph: dg.AssetGraph) -> None:
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        groups = {"data", "workers", "training", "evaluation", "experiments", "release", "reports"}
        assert node.group_name in groups, key


def test_partitioned_assets_take_all_their_partitions_in_one_run(graph: dg.AssetGraph) -> None:
    keys = graph.get_all_asset_keys()
    partitioned = {key.to_user_string() for key in keys if graph.get(key).is_partitioned}
    assert partitioned == {"raw_problems", "worker_responses", "baselines", "benchmark_scores"}
    for name in partitioned:
        assert graph.get(dg.AssetKey(name)).backfill_policy == partitions.one_run


def test_every_data_asset_is_gated(graph: dg.AssetGraph) -> None:
    by_asset: dict[str, set[str]] = {}
    for check in graph.asset_check_keys:
        if graph.get_check_spec(check).blocking:
            by_asset.setdefault(check.asset_key.to_user_string(), set()).add(check.name)
    assert by_asset == {asset: set(checks) for asset, checks in gate.BLOCKING.items()}


@pytest.mark.parametrize(
    ("asset", "guards"),
    [
        ("conductor", set(GUARDS) - {LOOPS}),
        ("adaptive_conductor", set(GUARDS) - {LOOPS}),
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


def test_the_lifecycle_holds_every_asset_but_experiments_and_reports_once_and_after_its_parents() -> None:
    order = [name for stage in STAGES for name in stage.assets]
    assert sorted(order) == sorted(DEPENDENCIES)
    place = {name: index for index, name in enumerate(order)}
    assert all(place[parent] < place[name] for name, parents in DEPENDENCIES.items() for parent in parents)


def test_schedule_and_sensor_start_stopped_and_launch_the_lifecycle(defs: dg.Definitions) -> None:
    schedule, sensor = (
        defs.resolve_schedule_def("nightly_retraining"),
        defs.resolve_sensor_def("pool_changed"),
    )
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert schedule.job_name == "lifecycle"
    assert {job.name for job in sensor.jobs} == {"lifecycle", "costs"}


def test_the_schedule_launches_a_run_that_the_job_accepts(defs: dg.Definitions) -> None:
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime(2026, 1, 1, 2), resources={"podium": Podium()}
    )
    tick = defs.resolve_schedule_def("nightly_retraining").evaluate_tick(context)
    assert tick.run_requests
    assert dg.validate_run_config(defs.resolve_job_def("lifecycle"), tick.run_requests[0].run_config)


class TestPoolChanged:
    """The sensor, against a real instance with a real materialization."""

    @pytest.fixture
    def instance(self, project: Workspace) -> dg.DagsterInstance:
        project.dagster_home.mkdir(parents=True)
        return dg.DagsterInstance.local_temp(str(project.dagster_home))

    @pytest.fixture
    def podium(self, project: Workspace) -> Podium:
        write_recipe(project)
        return Podium(root=str(project.root), recipe="small")

    @pytest.fixture
    def defs(self, podium: Podium) -> dg.Definitions:
        return definitions(podium)

    def tick(self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium) -> object:
        context = dg.build_sensor_context(instance=instance, resources={"podium": podium})
        return defs.resolve_sensor_def("pool_changed")(context)

    def materialize(self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium) -> None:
        job = defs.resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey("worker_pool")]
        job.execute_in_process(instance=instance, asset_selection=chosen, run_config=podium.run_config())

    def test_waits_for_a_first_lifecycle(
        self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium
    ) -> None:
        outcome = self.tick(defs, instance, podium)
        assert isinstance(outcome, dg.SkipReason)
        assert "never materialized" in str(outcome.skip_message)

    def test_launches_once_for_a_change(
        self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium, project: Workspace
    ) -> None:
        self.materialize(defs, instance, podium)
        assert set(instance.get_dynamic_partitions("worker")) == set(podium.load().pool.names)
        assert isinstance(self.tick(defs, instance, podium), dg.SkipReason)

        file = project.config / "pools" / "quickstart.yaml"
        pool = yaml.safe_load(file.read_text(encoding="utf-8"))
        gone = pool["workers"].pop()["name"]
        pool["workers"][0]["revision"] = "2"
        file.write_text(yaml.safe_dump(pool), encoding="utf-8")
        request = self.tick(defs, instance, podium)
        assert isinstance(request, dg.RunRequest)
        assert gone in request.tags["podium/reasons"]
        assert dg.validate_run_config(defs.resolve_job_def("lifecycle"), request.run_config)
        again = self.tick(defs, instance, podium)
        assert isinstance(again, dg.RunRequest)
        assert again.run_key == request.run_key

        self.materialize(defs, instance, podium)
        assert gone not in instance.get_dynamic_partitions("worker")
        assert isinstance(self.tick(defs, instance, podium), dg.SkipReason)

    def test_another_price_is_counted_and_not_trained(
        self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium, project: Workspace
    ) -> None:
        self.materialize(defs, instance, podium)
        file = project.config / "pools" / "quickstart.yaml"
        pool = yaml.safe_load(file.read_text(encoding="utf-8"))
        pool["workers"][0]["price"]["output"] += 1
        file.write_text(yaml.safe_dump(pool), encoding="utf-8")
        request = self.tick(defs, instance, podium)
        assert isinstance(request, dg.RunRequest)
        assert request.job_name == "costs"
        assert Snapshot.read(project.snapshots, request.tags[SNAPSHOT]).pool == podium.load().pool
        job = defs.resolve_job_def("costs")
        assert dg.validate_run_config(job, request.run_config)
        self.materialize(defs, instance, podium)
        assert isinstance(self.tick(defs, instance, podium), dg.SkipReason)

    def test_waits_for_the_end_of_a_run(
        self, defs: dg.Definitions, instance: dg.DagsterInstance, podium: Podium, project: Workspace
    ) -> None:
        self.materialize(defs, instance, podium)
        file = project.config / "pools" / "quickstart.yaml"
        file.write_text(file.read_text(encoding="utf-8").replace("revision: ", "revision: x"), encoding="utf-8")
        running = instance.create_run_for_job(defs.resolve_job_def("lifecycle"), run_config=podium.run_config())
        skipped = self.tick(defs, instance, podium)
        assert isinstance(skipped, dg.SkipReason)
        assert "is not finished" in str(skipped.skip_message)
        instance.report_run_failed(running)
        assert "is not finished" not in str(self.tick(defs, instance, podium))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("abcd", [("a", "d")]),
        ("ac", [("a", "a"), ("c", "c")]),
        ("bcd", [("b", "d")]),
        ("", []),
        ("dba", [("a", "b"), ("d", "d")]),
    ],
)
def test_ranges_cover_exactly_what_is_wanted(wanted: str, expected: list[tuple[str, str]]) -> None:
    assert partitions.ranges("abcd", list(wanted)) == expected


def write_recipe(project: Workspace) -> Path:
    """A recipe that loads; nothing of it is run here."""
    benchmarks = {name: {"train": 10, "test": 2} for name in ("math500", "mmlu", "rlpr", "livecodebench")}
    recipe = {
        "name": "small",
        "pool": "quickstart",
        "grading": {"isolation": "resource_limits"},  # programs of our own: see the quickstart
        "benchmarks": benchmarks,
        "policy": {"kind": "scratch"},
        "cold_start": {},
    }
    file = project.config / "recipes" / "small.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return file
