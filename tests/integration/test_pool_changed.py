"""Ticks of the sensor on a simulated clock: a real instance, a real registry, real files; no run is executed here.

`test_seven_edits` (soak) has the daemon and the runs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from rich.console import Console

from assets.opponents import find_base_policy
from assets.pool_change import CHANGE_TAG, HANDLING_JOBS, PendingChange, find_pending_change
from assets.resources import RETRAINING_JOB, SNAPSHOT_TAG, RunResource
from ops.alerts.notify import load_notices
from ops.benchmarks.problem_files import read_evaluation_questions, read_problems
from ops.config import PromotionGate, Snapshot
from ops.core.atomic import write_text
from ops.core.response_rows import response_file
from ops.core.workspace import Workspace
from ops.evaluation.comparison import Comparison
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, score_file, scores_key
from ops.planning.estimate import Range
from ops.precaching.precache import write_responses
from ops.release import aliases
from ops.release.judgement import apply_gate
from ops.release.promotion import GateDecision
from ops.results.leaderboard import Leaderboard
from ops.results.table import save_rows
from ops.retraining.decision import TrainingDecision
from ops.retraining.estimate import Estimate
from ops.retraining.revisions import record_revisions
from ops.spending.ledger import Ledger
from ops.training.run.training_run import PLAN_FILE, RunPlan
from pipelines.definitions import make_definitions
from pipelines.lifecycle import make_retraining_job
from pipelines.retraining.launch import ESTIMATE_TAG, POOL_CHANGED, estimate_change
from pipelines.retraining.manual import print_change, print_decision, print_drift_cost
from pipelines.retraining.schedules import make_monthly_check
from pipelines.retraining.sensor import make_pool_alert_sensor, make_pool_sensor
from pipelines.studies import run_study
from tests.builders import make_response
from tests.integration.checkouts import UNTRAINED, configure, crown, launch, shortlisted, sizes, succeed
from tests.once import made_once
from tests.releases import POLICY, scored, shared_store, version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECIPE: dict[str, Any] = UNTRAINED | {
    "name": "small",
    "benchmarks": sizes(16, 2),
    "curation": {"per_domain": 4, "shortlist_factor": 1.0, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
}
SETTLE_S = 60.0


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Ticking:
    """A sensor whose run requests the test launches like the daemon."""

    def __init__(self, workspace: Workspace, instance: dg.DagsterInstance, podium: RunResource) -> None:
        self.workspace, self.instance, self.podium, self.clock = workspace, instance, podium, Clock()
        self.job = make_definitions(podium).resolve_job_def(RETRAINING_JOB)
        self.sensor = make_pool_sensor(make_retraining_job(), self.clock)
        self.cursor: str | None = None
        self.watched: str | None = None
        self.file = workspace.config / "pools" / "quickstart.yaml"

    def tick(self, after_s: float = 0.0) -> dg.SensorResult:
        self.clock.now += after_s
        context = dg.build_sensor_context(self.instance, self.cursor, resources={"podium": self.podium})
        result = self.sensor(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        return result

    def said(self, after_s: float = 0.0) -> str:
        """Return why a tick requests nothing."""
        result = self.tick(after_s)
        assert not result.run_requests, result.run_requests
        assert result.skip_reason is not None
        return str(result.skip_reason.skip_message)

    def asked(self, after_s: float = 0.0) -> dg.RunRequest:
        """Return the request of a tick."""
        result = self.tick(after_s)
        assert result.run_requests, result.skip_reason
        [request] = result.run_requests
        return request

    def settled(self) -> dg.RunRequest:
        assert "settling" in self.said()
        return self.asked(SETTLE_S)

    def alerts(self, kind: str) -> list[str]:
        """Return the commands of the alerts of that kind, oldest first."""
        return [
            entry.notice.command for entry in reversed(load_notices(self.workspace, 99)) if entry.notice.kind == kind
        ]

    def watch(self, after_s: float = 0.0) -> None:
        """Tick the sensor that sends alerts."""
        self.clock.now += after_s
        context = dg.build_sensor_context(self.instance, self.watched, resources={"podium": self.podium})
        result = make_pool_alert_sensor(self.clock)(context)
        assert isinstance(result, dg.SensorResult) and not result.run_requests
        self.watched = result.cursor

    def monthly(self) -> dg.RunRequest | str:
        """Return the request of the monthly check, or why there is none."""
        context = dg.build_schedule_context(instance=self.instance, resources={"podium": self.podium})
        made = make_monthly_check()(context)
        return made if isinstance(made, dg.RunRequest) else str(made.skip_message)

    def due(self) -> PendingChange:
        return find_pending_change(self.podium, self.workspace, self.instance)

    def finish(self, request: dg.RunRequest) -> None:
        """The run that the daemon would launch, which succeeds."""
        succeed(self.instance, launch(self.instance, self.job, request))

    def score(self, system: str, policy: Path, right: int = 0) -> None:
        """Store scores of every benchmark with the pool of the present files."""
        setup = self.due().podium.load_setup()
        for name, questions in read_evaluation_questions(self.workspace, setup.recipe).items():
            file = score_file(self.workspace, system, policy, name)
            rows = scored(right, (name,)) if right else []
            save_rows(rows, file, key=scores_key(setup.for_benchmark(name), policy, questions))

    def decide(self, snapshot: Snapshot, decision: TrainingDecision) -> None:
        file = self.workspace.results_folder / "retraining" / f"{snapshot.key}.json"
        write_text(file, json.dumps(decision.as_dict()))

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        pool = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        edit(pool)
        self.file.write_text(yaml.safe_dump(pool, sort_keys=False), encoding="utf-8")


def costlier(pool: dict[str, Any]) -> None:
    pool["workers"][0]["price"]["output"] += 1


def without_the_last(pool: dict[str, Any]) -> None:
    pool["workers"].pop()


def another_model(pool: dict[str, Any]) -> None:
    pool["workers"][0]["model"] = "local/guesser"


NOVICE = {
    "name": "novice", "model": "local/guesser", "price": {"input": 1, "output": 1}, "latency_s": 0.1, "tags": ["tool"],
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Workspace:
    """A project with problems and without a champion."""
    workspace = make(tmp_path_factory.mktemp("ticks") / "project")
    configure(workspace, {f"recipes/{name}": RECIPE | {"name": name} for name in ("small", "other")})
    shortlisted(RunResource(root=str(workspace.root), recipe="small").load_setup())
    store = workspace.state / "mlflow" / "mlflow.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(shared_store(), store)
    return workspace


@pytest.fixture
def workspace(prepared: Workspace) -> Iterator[Workspace]:
    """The same project with its original files."""
    files = {file: file.read_text(encoding="utf-8") for file in prepared.config.rglob("*.yaml")}
    yield prepared
    for file in prepared.config.rglob("*.yaml"):
        if file in files:
            file.write_text(files[file], encoding="utf-8")
        else:
            file.unlink()
    for folder in (prepared.scores, prepared.runs, prepared.results_folder / "retraining"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ticking(workspace: Workspace, tmp_path: Path) -> Iterator[Ticking]:
    """The sensor with a champion of recipe `small`, a resource of another recipe, and no alerts."""
    (workspace.results_folder / "alerts.jsonl").unlink(missing_ok=True)
    crown(workspace, RunResource(root=str(workspace.root), recipe="small"))
    home = shutil.copytree(made_once("dagster-instance", empty_instance), tmp_path / "dagster")
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        yield Ticking(workspace, instance, RunResource(root=str(workspace.root), recipe="other"))


def empty_instance(folder: Path) -> None:
    """The files of a new instance, whose tables take a while to make; a copy is another new instance."""
    dg.DagsterInstance.local_temp(str(folder)).dispose()


def test_without_a_champion_the_sensor_skips(project: Workspace, tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert "no champion" in Ticking(project, instance, RunResource(root=str(project.root))).said()


def test_whitespace_order_tags_and_limits_are_no_change(ticking: Ticking) -> None:
    assert "unchanged" in ticking.said()
    ticking.file.write_text(ticking.file.read_text(encoding="utf-8") + "\n\n# nothing\n", encoding="utf-8")
    assert "unchanged" in ticking.said(SETTLE_S)
    ticking.change(lambda pool: pool["workers"].reverse())
    assert "unchanged" in ticking.said(SETTLE_S)
    ticking.change(lambda pool: pool["workers"][0].update(concurrency=1, tags=["code"]))
    assert "unchanged" in ticking.said(SETTLE_S)


@pytest.mark.long
def test_ten_edits_in_a_minute_are_one_run(ticking: Ticking) -> None:
    requests = []
    for edit in range(30):
        if edit < 10:
            ticking.change(costlier)
        requests += ticking.tick(6).run_requests or []
        if requests:
            break
    [request] = requests
    launch(ticking.instance, ticking.job, request)
    asked = Snapshot.read(ticking.workspace.snapshots, request.tags[SNAPSHOT_TAG])
    assert asked.pool == ticking.podium.for_new_run(asked).load_setup().pool
    assert "is not finished" in ticking.said(SETTLE_S)


@pytest.mark.parametrize(
    ("edit", "plan", "estimate"),
    [
        (without_the_last, "removed: solver (evaluate, fine-tune if below the gate)", "evaluation"),
        pytest.param(costlier, "another price: algebraist (costs)", "nothing to pay", marks=pytest.mark.long),
        pytest.param(
            another_model, "changed: algebraist (precache, evaluate, fine-tune if below the gate)", "precaching",
            marks=pytest.mark.long,
        ),
        pytest.param(
            lambda pool: pool["workers"].append(NOVICE),
            "new: novice (precache, evaluate; not offered: the champion has no worker descriptions)", "precaching",
            marks=pytest.mark.long,
        ),
    ],
    ids=["remove", "price", "model", "add"],
)  # fmt: skip
def test_a_change_becomes_one_run_of_its_plan_for_the_champions_recipe(
    ticking: Ticking, edit: Callable[[dict[str, Any]], object], plan: str, estimate: str
) -> None:
    ticking.change(edit)
    request = ticking.settled()
    assert request.tags["podium/plan"] == plan
    assert estimate in request.tags[ESTIMATE_TAG]
    assert request.tags["podium/recipe"].startswith("small,")
    assert dg.validate_run_config(ticking.job, request.run_config)
    asked = Snapshot.read(ticking.workspace.snapshots, request.tags[SNAPSHOT_TAG])
    assert asked.change is not None and asked.recipe.name == "small"
    ticking.finish(request)
    assert "unchanged" in ticking.said(SETTLE_S)


def test_finished_work_of_a_pool_change_is_not_counted_again(ticking: Ticking) -> None:
    """A worker was removed, the champion was scored without it, and the decision was not to train."""
    ticking.change(without_the_last)
    found = ticking.due()
    before, change = estimate_change(found), found.snapshot.change
    assert [part.name for part in before.parts] == ["every worker alone", "evaluation", "fine-tuning", "its evaluation"]
    assert change is not None and before.usd.expected > 0
    ticking.score(CONDUCTOR, ticking.workspace.runs / change.policy / "policy")
    now = estimate_change(found)
    assert now.parts[1].usd == Range.exactly(0.0)
    assert now.parts[2:] == before.parts[2:], "nothing is known of the training yet"
    ticking.decide(found.snapshot, TrainingDecision(False, "the champion holds", GateDecision(True, ())))
    assert [(part.name, part.usd.high) for part in estimate_change(found).parts[1:]] == [("evaluation", 0.0)]


@pytest.mark.long
def test_an_edit_during_a_run_is_handled_once_after_it(ticking: Ticking) -> None:
    ticking.change(without_the_last)
    run = launch(ticking.instance, ticking.job, ticking.settled())
    ticking.change(costlier)
    ticking.change(costlier)
    assert "is not finished" in ticking.said(600)
    succeed(ticking.instance, run)
    second = ticking.settled()
    assert second.tags["podium/plan"] == "another price: algebraist (costs)"
    ticking.finish(second)
    assert "unchanged" in ticking.said(SETTLE_S)


@pytest.mark.long
def test_an_edit_undone_during_its_run_is_handled_as_a_new_change(ticking: Ticking) -> None:
    before = ticking.file.read_text(encoding="utf-8")
    ticking.change(without_the_last)
    run = launch(ticking.instance, ticking.job, ticking.settled())
    ticking.file.write_text(before, encoding="utf-8")
    succeed(ticking.instance, run)
    assert ticking.settled().tags["podium/plan"].startswith("new: solver")


@pytest.mark.long
def test_a_change_that_comes_back_is_a_change_again(ticking: Ticking) -> None:
    before = ticking.file.read_text(encoding="utf-8")
    for planned in ("removed", "new", "removed", "new"):
        if planned == "removed":
            ticking.change(without_the_last)
        else:
            ticking.file.write_text(before, encoding="utf-8")
        request = ticking.settled()
        assert request.tags["podium/plan"].startswith(planned)
        ticking.finish(request)


@pytest.mark.long
def test_a_run_that_failed_is_named_and_not_started_again(ticking: Ticking) -> None:
    ticking.change(costlier)
    run = launch(ticking.instance, ticking.job, ticking.settled())
    ticking.instance.report_run_failed(run)
    said = ticking.said(SETTLE_S)
    assert run.run_id[:8] in said and "podium retrain" in said
    ticking.change(costlier)  # another change is another run, starting from the pool of the last successful one
    assert ticking.settled().tags["podium/plan"] == "another price: algebraist (costs)"


def test_a_file_in_the_middle_of_an_edit_is_reported_and_waited_for(ticking: Ticking) -> None:
    whole = ticking.file.read_text(encoding="utf-8")
    ticking.file.write_text(whole[: len(whole) // 2] + "\n  - nam", encoding="utf-8")
    assert "quickstart.yaml" in ticking.said()
    ticking.file.write_text(whole, encoding="utf-8")
    assert "unchanged" in ticking.said(SETTLE_S)


def test_above_the_budget_it_waits_for_a_person_with_one_alert_and_one_observation(ticking: Ticking) -> None:
    (ticking.workspace.config / "retraining.yaml").write_text("budget_usd: 0.0\n", encoding="utf-8")
    ticking.change(another_model)
    assert "settling" in ticking.said()
    result = ticking.tick(SETTLE_S)
    assert not result.run_requests
    assert "needs approval" in str(result.skip_reason.skip_message)
    assert "podium retrain" in str(result.skip_reason.skip_message)
    [note] = result.asset_events
    assert note.asset_key == dg.AssetKey("worker_pool")
    assert "precaching" in str(note.metadata["estimate"].value)
    again = ticking.tick(SETTLE_S)
    assert not again.asset_events and "needs approval" in str(again.skip_reason.skip_message)
    assert ticking.alerts("decision") == ["podium retrain"], "one alert, however often it ticks"
    (ticking.workspace.config / "retraining.yaml").write_text("budget_usd: 1000\n", encoding="utf-8")
    assert ticking.asked(SETTLE_S).tags["podium/plan"].startswith("changed: ")


def test_a_model_that_drifted_is_a_changed_worker(ticking: Ticking) -> None:
    pool = ticking.podium.load_setup().pool
    record_revisions(ticking.workspace.config, [pool.worker("scholar")], date(2026, 1, 2))
    assert ticking.settled().tags["podium/plan"].startswith("changed: scholar")


@pytest.mark.long
def test_only_a_pipeline_run_of_the_champions_recipe_handles_a_pool_change(ticking: Ticking) -> None:
    ticking.change(without_the_last)
    job = make_definitions(ticking.podium).resolve_job_def("lifecycle")
    assert job.name in HANDLING_JOBS
    for recipe, planned in (("other", True), ("small", False)):
        podium = RunResource(root=str(ticking.workspace.root), recipe=recipe)
        request = dg.RunRequest(run_config=podium.make_run_config(), tags=podium.make_launch_tags())
        run = launch(ticking.instance, job, request)
        assert "is not finished" in ticking.said()
        succeed(ticking.instance, run)
        assert ticking.due().plan.evaluate == planned


@pytest.mark.long
def test_a_part_of_the_lifecycle_deals_with_nothing(ticking: Ticking) -> None:
    ticking.change(without_the_last)
    podium, part = (
        RunResource(root=str(ticking.workspace.root), recipe="small"),
        frozenset([dg.AssetKey("worker_pool")]),
    )
    job = make_definitions(podium).resolve_job_def("lifecycle").get_subset(asset_selection=part)
    settings = {"run_config": podium.make_run_config(), "tags": podium.make_launch_tags()}
    succeed(ticking.instance, ticking.instance.create_run_for_job(job, asset_selection=part, **settings))
    assert ticking.due().plan.evaluate


def test_the_command_prints_the_plan_and_does_nothing(ticking: Ticking, capsys: pytest.CaptureFixture[str]) -> None:
    def done() -> tuple[int, object]:
        with closing(Ledger(ticking.workspace.ledger)) as ledger:
            return ticking.instance.get_runs_count(), ledger.by_run()

    before = done()
    print_change(ticking.workspace)
    assert "no difference" in capsys.readouterr().out
    ticking.change(without_the_last)
    print_change(ticking.workspace)
    shown = " ".join(capsys.readouterr().out.split())
    assert "- solver" in shown and "removed: solver" in shown and "fine-tuning" in shown
    assert done() == before


def test_dry_runs_of_drift_and_studies_say_what_they_cost_and_ask_nothing(
    ticking: Ticking, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = ticking.workspace
    setup = RunResource(root=str(workspace.root), recipe="small").load_setup()
    asked = setup.pool.workers[0].model_copy(update={"model": "openai/gpt-6-luna"})
    setup = replace(setup, pool=setup.pool.model_copy(update={"workers": (asked,)}))
    problems = read_problems(workspace.data / "shortlist.jsonl")[:2]
    rows = [make_response(worker=asked.name, benchmark=each.benchmark, problem_id=each.id) for each in problems]
    for row in rows:
        write_responses([row], response_file(workspace.data / "responses", asked.name, row.benchmark))
    monkeypatch.setattr("ops.config.Setup.read", lambda *_: setup)
    print_drift_cost(workspace)
    priced, said = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"about \$0\.\d+, at most \$0\.\d+ \(workers \$0\.\d+\)", priced)
    assert said.startswith("Recipe small calls paid workers for about $0.0") and said.endswith("Nothing was done")
    monkeypatch.undo()
    assert run_study(workspace, "seeds", (), seeds=[1], dry_run=True) == ""
    assert capsys.readouterr().out == "Recipe quickstart makes no call that costs money. Nothing was done\n"


def test_a_change_that_nothing_handles_is_one_alert_with_its_command(ticking: Ticking) -> None:
    ticking.watch()
    ticking.change(costlier)
    ticking.watch(300)
    assert ticking.alerts("decision") == [], "it has not settled"
    for _ in range(3):
        ticking.watch(300)
    assert ticking.alerts("decision") == ["podium retrain --dry-run"]
    ticking.change(costlier)
    ticking.watch(300)
    ticking.watch(300)
    assert ticking.alerts("decision") == ["podium retrain --dry-run"] * 2, "another change is another alert"


def test_a_change_that_the_sensor_handles_is_no_alert(ticking: Ticking) -> None:
    code = make_definitions(ticking.podium)
    repository = code.get_repository_def()
    ticking.instance.add_instigator_state(
        InstigatorState(
            RemoteInstigatorOrigin(
                RemoteRepositoryOrigin(
                    InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=__file__)), repository.name
                ),
                POOL_CHANGED,
            ),
            InstigatorType.SENSOR, InstigatorStatus.RUNNING, SensorInstigatorData(),
        )
    )  # fmt: skip
    ticking.change(costlier)
    for _ in range(3):
        ticking.watch(300)
    assert ticking.alerts("decision") == []


def test_a_worker_that_retires_is_one_alert_a_date(ticking: Ticking) -> None:
    today = datetime.fromtimestamp(ticking.clock.now, UTC).date()

    def retire(days: int) -> Callable[[dict[str, Any]], object]:
        return lambda pool: pool["workers"][0].update(retired=today + timedelta(days=days))

    ticking.change(retire(days=90))
    ticking.watch()
    assert ticking.alerts("decision") == [], "too early"
    ticking.change(retire(days=30))
    for _ in range(3):
        ticking.watch(300)
    assert ticking.alerts("decision") == ["podium retrain --dry-run"]
    [entry] = load_notices(ticking.workspace, 9)
    assert "algebraist" in entry.notice.title and "config/pools/quickstart.yaml" in entry.notice.text


def test_the_monthly_check_starts_a_run_of_a_change_alone(ticking: Ticking) -> None:
    assert "nothing changed" in str(ticking.monthly())
    ticking.change(costlier)
    request = ticking.monthly()
    assert isinstance(request, dg.RunRequest)
    assert request.tags["podium/plan"] == "another price: algebraist (costs)"
    assert request.tags["podium/recipe"].startswith("small,") and "nothing to pay" in request.tags[ESTIMATE_TAG]
    run = launch(ticking.instance, ticking.job, request)
    assert "is not finished" in str(ticking.monthly())
    succeed(ticking.instance, run)
    assert "nothing changed" in str(ticking.monthly())
    (ticking.workspace.config / "retraining.yaml").write_text("budget_usd: 0.0\n", encoding="utf-8")
    ticking.change(another_model)
    for _ in range(2):
        assert "needs approval" in str(ticking.monthly())
    assert ticking.alerts("decision") == ["podium retrain"]


@pytest.mark.parametrize(("right", "promoted"), [(1, False), (9, True)])
def test_a_fine_tuned_policy_is_judged_against_its_champion_on_the_present_pool(
    ticking: Ticking, right: int, promoted: bool
) -> None:
    ticking.change(without_the_last)
    found = ticking.due()
    change, pool = found.snapshot.change, found.podium.load_setup().pool
    assert change is not None
    lenient = {"min_gain_over_best_worker": -1.0, "min_paired_share": 0.2, "max_loss_against_champion": 0.5}
    ticking.score(CONDUCTOR, ticking.workspace.runs / change.policy / "policy", right=9)
    tuned = version(ticking.workspace, right, pool_answers_key=pool.answers_key, evaluation="origin-1")
    tested = Comparison(POLICY, Leaderboard({}), scored(right), "algebraist", scored(0), scores_key="origin-1")
    judged = apply_gate(found.podium.load_setup(), tuned, tested, PromotionGate(**lenient))
    assert judged.dossier is not None and judged.dossier.opponents[0].note == "Scored again with this pool."
    assert judged.decision.against == change.version
    assert ("difference to the champion" not in [check.name for check in judged.decision.failed]) == promoted
    assert aliases.promote_version(ticking.workspace, tuned.version, judged.decision) == promoted


@pytest.mark.parametrize("train_anew", [False, True])
def test_the_command_ends_with_the_decision_and_the_next_command(
    ticking: Ticking, capsys: pytest.CaptureFixture[str], train_anew: bool
) -> None:
    asked = ticking.due().snapshot
    ticking.decide(asked, TrainingDecision(False, "the champion holds", GateDecision(True, ()), train_anew=train_anew))
    print_decision(Console(width=120), ticking.workspace, asked)
    said = capsys.readouterr().out.split("\n")
    assert said[1] == "Decision    not trained: the champion holds"
    assert said[2].startswith("Champion    version ") and said[2].endswith(", as before")
    following = f"Next        `podium run small --seed {asked.recipe.seed}` trains from the start"
    assert said[3:] == ([following, ""] if train_anew else [""])


def test_other_prices_keep_the_cold_start_in_the_comparison(ticking: Ticking) -> None:
    """Its scores are of the same answers; a pool with other answers has none."""
    found = ticking.due()
    change, setup = found.snapshot.change, found.podium.load_setup()
    assert change is not None
    run, base = ticking.workspace.runs / change.policy, ticking.workspace.policies / "small-base"
    plan = RunPlan(
        root=setup.workspace.root, recipe=setup.recipe, pool=setup.pool, offered=setup.pool.names, base_policy=base,
        problems=run, few_shots=run,
    )  # fmt: skip
    run.mkdir(parents=True)
    (run / PLAN_FILE).write_text(plan.model_dump_json(), encoding="utf-8")
    ticking.score(COLD_START, base)
    for edit, shown in ((costlier, base), (without_the_last, None)):
        ticking.change(edit)
        assert find_base_policy(ticking.due().podium) == shown


def test_the_nightly_schedule_starts_the_champions_recipe_and_says_what_it_costs(ticking: Ticking) -> None:
    code = make_definitions(ticking.podium)
    schedule = code.resolve_schedule_def("nightly_drift")
    tick = schedule.evaluate_tick(
        dg.build_schedule_context(instance=ticking.instance, resources={"podium": ticking.podium})
    )
    [request] = tick.run_requests
    assert request.tags["podium/recipe"].startswith("small,")
    assert "$" in request.tags[ESTIMATE_TAG]
    assert dg.validate_run_config(code.resolve_job_def("detect_drift"), request.run_config)


def test_an_estimate_of_nothing_says_so() -> None:
    assert str(Estimate()) == "nothing to pay: no worker is asked"
    assert CHANGE_TAG.startswith("podium/")
