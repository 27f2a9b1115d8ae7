"""The whole lifecycle of a small Conductor, by `podium run`: its trainer is killed, it is run again, its pool's prices
are edited while it finishes, and its costs are computed again.

One lifecycle serves all tests of this file, in this process: most of a process's time goes to imports. Under `make
soak` a command is a process that is killed, and a finished run is run again.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import psutil
import pytest
import yaml

from assets.resources import SNAPSHOT_TAG, RunResource
from ops.conductor.policy import PolicyCard
from ops.config import Setup, Snapshot, load_pool
from ops.core.workspace import Workspace
from ops.planning.estimate import Cost, Range, add_costs
from ops.planning.machine import detect_machine
from ops.planning.recipe_plan import make_plan
from ops.release import registry
from ops.release.champion import open_registered_versions
from ops.release.lineage import describe_cost
from ops.serving.worker_strengths import WorkerStrengths
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.training.run.training_run import RESULT_FILE, RunResult
from pipelines.dagster_home import prepare_home
from pipelines.definitions import make_definitions
from pipelines.lifecycle import JOBS
from tests.command import podium, start_run
from tests.integration.checkouts import LENIENT, SHORT, TRAINED, changed, command, configure, metadata, sizes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LIFECYCLE = JOBS["lifecycle"].assets
# One OOD benchmark, and not the first: the partitions of a run are not always neighbours.
BENCHMARKS = sizes(40, 6, ("math500", "livecodebench")) | {"aime25": {"test": 4}}
RECIPE = changed(
    SHORT, name="mini", benchmarks=BENCHMARKS, curation={"per_domain": 10}, cold_start={"steps": 30}, grpo={"steps": 4}
)


class Finished(NamedTuple):
    """A finished lifecycle: where, what it printed, the steps at the kill, and what went before.

    `edit`: what the sensor made of a price that was edited while the whole one ran.
    """

    workspace: Workspace
    printed: str
    steps_when_killed: int
    edit: Edit
    without_trainer: tuple[int, str]
    """Exit status and output of the run whose trainer was killed."""
    planned_usd: tuple[float, float]
    """What the plan expected and had at most, before anything was asked."""
    spent_usd: float
    """Booked by the whole run, its killed parts among it."""


class Edit(NamedTuple):
    """The sensor's tick after the run, the run of the job that it asked for, and its tick after that."""

    tick: dg.RunRequest
    run_id: str
    later_tick: str
    calls: tuple[int, int]
    """Booked before and after that job."""


def kill_when(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """`kill -9` of the one process (not of its children) as soon as `reached`."""
    while process.poll() is None and not reached():
        time.sleep(0.02)
    assert process.poll() is None, f"ended too early:\n{process.communicate(timeout=2400)[0]}"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=2400)


def run_without_trainer(workspace: Workspace) -> tuple[int, str]:
    """`kill -9` of the trainer alone, as the kernel does for want of memory; what the command made of it."""

    def kill() -> None:
        while not ended.wait(0.005) and len(curve(workspace)) < 2:
            pass
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if str(workspace.root) in " ".join(child.cmdline()) and "ops.training.grpo" in child.cmdline():
                    child.kill()

    ended = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return command(workspace.root, "run", "mini")
    finally:
        ended.set()
        killer.join(60)


def calls(workspace: Workspace) -> int:
    """Calls that the ledger has booked."""
    if not workspace.ledger.is_file():
        return 0
    try:
        return sum(spent.calls for spent in Ledger(workspace.ledger).by_run().values())
    except sqlite3.OperationalError:  # its tables are being made
        return 0


def curve(workspace: Workspace) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for file in workspace.runs.glob("*/curve.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Finished:
    workspace = make(tmp_path_factory.mktemp("life") / "project")
    write_recipe(workspace)
    usd = planned(workspace).usd
    without_trainer = run_without_trainer(workspace)
    steps = len(curve(workspace))
    edited: list[str] = []

    def edit_once(text: str) -> None:
        if "worker_responses" in text and not edited:
            edited.append(text)
            edit_price(workspace)

    status, printed = command(workspace.root, "run", "mini", see=edit_once)
    assert edited, printed
    assert status == 0, printed
    spent = sum(each.usd for each in Ledger(workspace.ledger).by_run().values())
    edit = act_on(workspace)
    return Finished(workspace, printed, steps, edit, without_trainer, (usd.expected, usd.high), spent)


def planned(workspace: Workspace) -> Cost:
    """What the plan expects of a whole run now."""
    setup = Setup.read(workspace, "mini")
    return add_costs(make_plan(setup, detect_machine(workspace)).stages)


def write_recipe(workspace: Workspace) -> None:
    configure(workspace, {"recipes/mini": RECIPE, "promotion": LENIENT, "retraining": {"settle_s": 0}})


def edit_price(workspace: Workspace) -> None:
    """Every worker ten times as dear."""
    pool = yaml.safe_load((workspace.config / "pools" / "quickstart.yaml").read_text(encoding="utf-8"))
    for worker in pool["workers"]:
        worker["price"] = {side: 10 * usd for side, usd in worker["price"].items()}
    configure(workspace, {"pools/quickstart": pool})


def act_on(workspace: Workspace) -> Edit:
    """What the daemon would do: tick the sensor, run what it asks for, tick it again."""
    prepare_home(workspace)
    resource = RunResource(root=str(workspace.root), recipe="mini")
    code = make_definitions(resource)
    sensor = code.resolve_sensor_def("pool_changed")
    before = calls(workspace)
    with dg.DagsterInstance.get() as instance:

        def tick() -> Any:
            return sensor(dg.build_sensor_context(instance=instance, resources={"podium": resource}))

        result = tick()
        assert result.run_requests, result.skip_reason
        [request] = result.run_requests
        job = code.resolve_job_def("retraining")
        done = job.execute_in_process(instance=instance, run_config=request.run_config, tags=request.tags)
        assert done.success
        later = tick().skip_reason.skip_message
        return Edit(request, done.run_id, str(later), (before, calls(workspace)))


@pytest.fixture
def instance(pipeline: Finished, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", str(pipeline.workspace.dagster_home))
    with dg.DagsterInstance.get() as found:
        yield found


def test_it_tells_the_story_to_its_end(pipeline: Finished) -> None:
    for asset in LIFECYCLE:
        assert re.search(rf"^  ✓ {asset} +[\d.]+ s", pipeline.printed, re.MULTILINE), f"{asset}:\n{pipeline.printed}"
    assert re.search(r"system +in-domain, % +OOD, % +USD a question", pipeline.printed)
    assert "aime25 " not in pipeline.printed, "scores of a benchmark stand in the full table alone"
    assert "models:/conductor@champion is version 1" in pipeline.printed
    assert "Traceback" not in pipeline.printed


def test_commands_say_what_the_run_did(
    pipeline: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(pipeline.workspace.root))

    def read(*words: str) -> Any:
        capsys.readouterr()
        assert podium(*words, "--json") == 0
        return json.loads(capsys.readouterr().out)

    known = registry.find_champion(pipeline.workspace)
    assert known is not None and known.tags["recipe"] == "mini" and known.metrics["math500/accuracy"] >= 0
    status = read("status")
    assert status["champion"]["version"] == known.version and status["last_run"]["status"] == "success"
    assert status["usd_in_all"] == sum(each["usd"] for each in read("ledger")["run"].values()) > 0
    listed = read("runs", "list")
    assert {each["status"] for each in listed} == {"success", "failure"} and listed[0] == status["last_run"]
    verdict = read("verdict", known.version)
    assert verdict["promote"] and {each["passed"] for each in verdict["checks"]} == {True}
    assert read("forecast", "mini")["worker_calls"] > 0
    assert read("retrain")["plan"] == ""
    capsys.readouterr()
    assert podium("rollback", "--reason", "why", "--dry-run") == 1
    assert "did not replace another version" in capsys.readouterr().err
    assert podium("promote", known.version, "--by", "a", "--reason", "b", "--dry-run") == 0
    assert "is the champion already" in capsys.readouterr().out


def test_the_version_has_the_accuracy_of_each_worker_on_its_card(pipeline: Finished) -> None:
    with open_registered_versions(pipeline.workspace) as source:
        files = source.fetch_files("1")
        card, strengths = PolicyCard.read(files.policy), WorkerStrengths.from_dict(files.settings["strengths"])
    assert card.offered
    for worker in load_pool(pipeline.workspace.config, "quickstart").workers:
        assert worker.name in card.offered
        assert strengths.choose_best([worker], "math") == (worker, "profile"), (
            "whom to ask alone is never a guess by price"
        )


def test_a_killed_trainer_ends_the_command_in_one_line(pipeline: Finished) -> None:
    status, printed = pipeline.without_trainer
    assert status == 1
    assert "Traceback" not in printed
    [line] = [line for line in printed.splitlines() if line.startswith("error: ")]
    assert "SIGKILL" in line and "memory" in line and "goes on from the last checkpoint" in line
    assert "trainer.log" in line


def test_a_killed_run_continues_and_pays_for_no_response_twice(pipeline: Finished) -> None:
    result = RunResult.read(next(pipeline.workspace.runs.iterdir()))
    assert result is not None
    assert result.steps == 4
    assert [row["step"] for row in curve(pipeline.workspace)] == [1, 2, 3, 4]
    assert 2 <= pipeline.steps_when_killed <= 4
    stored = len(ResponseCache(pipeline.workspace.cache))
    assert 0 < calls(pipeline.workspace) <= stored


def test_the_plan_is_within_a_quarter_of_the_ledger(pipeline: Finished) -> None:
    expected, most = pipeline.planned_usd
    assert pipeline.spent_usd == pytest.approx(expected, rel=0.25)
    assert pipeline.spent_usd <= most


def test_what_a_version_cost_is_the_same_in_ledger_asset_and_registry(
    pipeline: Finished, instance: dg.DagsterInstance
) -> None:
    version, ledger = registry.get_version(pipeline.workspace, "1"), Ledger(pipeline.workspace.ledger)
    result = RunResult.read(next(pipeline.workspace.runs.iterdir()))
    assert result is not None
    run = version.tags["ledger_run"]
    figures = {
        "paid_usd": ledger.by_run()[run].usd,
        "training_paid_usd": ledger.by_purpose(run)["training"].usd,
        "rollouts_usd": result.rollouts_usd,
    }
    assert 0 < figures["training_paid_usd"] < figures["paid_usd"]
    asset, trained = metadata(instance, "registered_model"), metadata(instance, "conductor")
    assert float(str(trained["rollouts_usd"])) == pytest.approx(result.rollouts_usd, rel=1e-3)
    for name, usd in figures.items():
        shown = [version.tags[name], version.metrics[name], asset[name]]
        assert [float(str(each)) for each in shown] == pytest.approx([usd] * 3, abs=1e-6), name
    page = (pipeline.workspace.reports / "verdict-version-1.html").read_text(encoding="utf-8")
    assert describe_cost(version.tags) in page
    with open_registered_versions(pipeline.workspace) as source:
        description = source._client.get_model_version("conductor", "1").description
    assert describe_cost(version.tags) in description and "(9 workers)" in description


def test_finished_work_costs_nothing_more(pipeline: Finished) -> None:
    """At ten times the prices by now: the plan does not count what is stored."""
    assert planned(pipeline.workspace).usd == Range.exactly(0.0)


def test_a_price_edited_while_it_ran_waits_for_the_next_run(pipeline: Finished, instance: dg.DagsterInstance) -> None:
    now = load_pool(pipeline.workspace.config, "quickstart")
    whole = instance.get_runs(dg.RunsFilter(job_name="lifecycle"))[0]
    asked = Snapshot.read(pipeline.workspace.snapshots, whole.tags[SNAPSHOT_TAG])
    assert asked.pool.prices_key != now.prices_key
    event = instance.get_latest_materialization_event(dg.AssetKey("registered_model"))
    assert event is not None and event.run_id == whole.run_id
    tags = str(metadata(instance, "registered_model")["tags"])
    assert asked.key in tags and asked.pool.prices_key in tags, "of the snapshot to its end"


def test_the_edit_computes_costs_again_and_asks_and_trains_nothing(
    pipeline: Finished, instance: dg.DagsterInstance
) -> None:
    assert pipeline.edit.tick.tags["plan"].startswith("another price: ")
    assert "nothing to pay" in pipeline.edit.tick.tags["estimate"]
    materialized = {
        event.dagster_event.asset_key.to_user_string()
        for event in instance.all_logs(pipeline.edit.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        if event.dagster_event is not None and event.dagster_event.asset_key is not None
    }
    assert materialized == {"worker_pool", "worker_responses", "worker_profiles", "champion_standing"}
    assert {"conductor", "promotion"} <= skipped(instance, pipeline.edit.run_id)
    assert pipeline.edit.calls[0] == pipeline.edit.calls[1]
    assert "the pool is unchanged" in pipeline.edit.later_tick
    assert len(list(pipeline.workspace.runs.iterdir())) == len(list(pipeline.workspace.policies.iterdir())) == 1


def test_the_same_answers_cost_ten_times_as_much(instance: dg.DagsterInstance) -> None:
    records = instance.fetch_materializations(dg.AssetKey("worker_profiles"), limit=10).records
    spent = [record.asset_materialization.metadata["responses_usd"].value for record in records]  # type: ignore[union-attr]
    assert spent[0] == pytest.approx(10 * spent[1], rel=1e-3)  # edited, before


def test_dvc_recorded_every_stage(pipeline: Finished) -> None:
    lock = yaml.safe_load((pipeline.workspace.root / "dvc.lock").read_text(encoding="utf-8"))
    declared = yaml.safe_load((pipeline.workspace.root / "dvc.yaml").read_text(encoding="utf-8"))
    assert set(lock["stages"]) == set(declared["stages"])
    assert all(out["md5"] for stage in lock["stages"].values() for out in stage["outs"])


def skipped(instance: dg.DagsterInstance, run_id: str) -> set[str | None]:
    return {event.step_key for event in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_SKIPPED)}


def test_each_benchmark_of_the_run_is_a_partition_and_others_say_that_nothing_was_made(
    instance: dg.DagsterInstance,
) -> None:
    for name in ("raw_problems", "baselines", "benchmark_scores"):
        made = {
            record.partition_key: "not_in_recipe" not in record.asset_materialization.metadata
            for record in instance.fetch_materializations(dg.AssetKey(name), limit=20).records
            if record.asset_materialization is not None
        }
        assert made == {key: key in BENCHMARKS for key in (*TRAINED, "aime25")}


def test_the_run_whose_trainer_was_killed_has_failed_and_no_other(instance: dg.DagsterInstance) -> None:
    runs = instance.get_runs(dg.RunsFilter(job_name="lifecycle"))
    statuses = [run.status for run in reversed(runs)]
    assert statuses == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    assert {run.job_name for run in instance.get_runs()} == {"lifecycle", "retraining"}, "and nothing launched another"
    [failed] = [
        entry.step_key for entry in instance.all_logs(runs[-1].run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    ]
    assert failed == "conductor"


def test_the_metadata_has_tables_and_pictures(instance: dg.DagsterInstance) -> None:
    trained = metadata(instance, "conductor")
    assert "data:image/png;base64," in trained["reward_curve"] and "algebraist" in str(trained["worker_use"])
    board = metadata(instance, "leaderboard")["accuracy_in_percent"]
    assert [column.name for column in board.schema.columns if column.name.startswith("best worker")]
    assert re.search(r"±|…", str(board.records[0].data["Conductor"])), "an accuracy has its uncertainty"
    assert re.search(r"±|…", str(metadata(instance, "worker_profiles")["by_domain"]))


@pytest.mark.soak  # `make test` kills the trainer alone, above
def test_a_run_killed_in_training_continues_and_a_second_run_makes_no_call(project: Workspace) -> None:
    write_recipe(project)
    kill_when(start_run(project.root, "mini"), lambda: len(curve(project)) >= 2)
    whole = [row for row in curve(project) if row["step"] == 1]
    status, printed = command(project.root, "run", "mini")
    assert status == 0, printed
    assert [row["step"] for row in curve(project)] == [1, 2, 3, 4]
    assert curve(project)[:1] == whole, "what the checkpoint holds is not done again"
    status, again = command(project.root, "run", "mini")
    assert status == 0 and "no call made" in again, again
    assert "models:/conductor@champion is version 1" in again
    folder = next(project.runs.iterdir())
    scores = project.scores / "conductor" / folder.name / "math500.parquet"
    assert (folder / RESULT_FILE).stat().st_mtime < scores.stat().st_mtime
