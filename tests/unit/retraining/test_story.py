"""What a person reads the next morning: the page of the retrainings, the open alerts, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.alerts import notify
from ops.alerts.catalogue import CHAMPION_STAYS_BELOW, KEPT_BACK
from ops.alerts.notify import load_notices, load_open_alerts
from ops.config import Pool, PoolChange, Snapshot
from ops.core.atomic import write_text
from ops.core.workspace import Workspace
from ops.release.promotion import GateCheck, GateDecision
from ops.release.way_back import describe_way_back, record_standing
from ops.reports.retraining import load_last_summary
from ops.retraining.decision import TrainingDecision
from ops.retraining.record import BEFORE, NEW, NOW, measure_figures, plan_record, update_record
from ops.retraining.story import finish_record, load_stories, write_retraining_page
from ops.stages.release import promote_manually, roll_back
from tests.releases import checkout, scored, shared_store, version

INVALID = GateCheck("format compliance", 0.58, 0.95, False, "291 of 700 completions gave no workflow")
WORSE = GateCheck("difference to the champion", -0.09, -0.02, False, "mean -0.05: a price cannot have caused this")
COSTLIER = GateCheck("cost ratio to the champion", 1.2, 1.5, True, "0.12 against 0.1 USD", "cost", "at most")
BELOW = GateDecision(False, (INVALID, GateCheck("gain over the best single worker", 0.1, 0.0, True, "mean +0.2")))
ANOTHER_POOL = "fedcba987654"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return checkout(tmp_path / "project", shared_store())


def changed_snapshot(*removed: str) -> Snapshot:
    """A snapshot of the quickstart whose pool lacks these workers; without any, the first worker's price differs."""
    asked = Snapshot.capture(Workspace.find().config, "quickstart", None, "")
    facts = asked.pool.model_dump(mode="json")
    if not removed:
        facts["workers"][0]["price"]["output"] += 1
    facts["workers"] = [worker for worker in facts["workers"] if worker["name"] not in removed]
    change = PoolChange(version="1", policy="quickstart-1", before=asked.pool)
    return asked.model_copy(update={"pool": Pool.model_validate(facts), "change": change})


def begin(workspace: Workspace, asked: Snapshot, decision: TrainingDecision) -> None:
    """Store what a retraining leaves behind when it has decided."""
    asked.write(workspace.snapshots)
    plan_record(workspace, asked.key, waits=False, cause="pool changed", usd=(1.14, 3.84), seconds=(300.0, 900.0))
    write_text(workspace.state / "retraining" / f"{asked.key}.json", json.dumps(decision.as_dict()))
    figures = {BEFORE: measure_figures(scored(8)), NOW: measure_figures(scored(5))}
    update_record(workspace, asked.key, run="5f00ba11", began_at=1e9, ended_at=1e9 + 15, figures=figures)


def test_a_price_change_is_told_with_its_plan_its_figures_and_how_to_undo_it(workspace: Workspace) -> None:
    asked = changed_snapshot()
    assert write_retraining_page(workspace) is None, "there was no retraining yet"
    begin(workspace, asked, TrainingDecision(False, "the champion holds", GateDecision(False, (WORSE, COSTLIER))))
    [story] = load_stories(workspace)
    assert story.title == "quickstart: price of algebraist changed"
    assert story.outcome == "Version 1 stays champion, and nothing was trained: the champion holds."
    assert not story.next_step
    assert "A price changes no answer" in story.facts["What it required, and why"]
    assert story.facts["Money"].startswith("planned $1.14, at most $3.84; actual $0")
    assert story.facts["Time"] == "planned 5 minutes, at most 15 minutes (calls and training); actual 15 seconds"
    assert (
        story.facts["Decision"]
        == "do not train, because the champion holds; cost ratio to the champion 1.2 (passed, bound 1.5)"
    )
    assert "config/pools/quickstart.yaml" in story.facts["How to undo it"]
    assert [row[3] for row in story.tables[1].rows] == ["≥ -0.02", "≤ 1.5"], "bounds have a direction"
    page = write_retraining_page(workspace)
    assert page is not None
    assert load_last_summary(workspace) == story.summary, "what status shows"
    text = page.read_text(encoding="utf-8")
    assert "What the change cost" in text and "−30.0 points" in text
    before, now = measure_figures(scored(8)), measure_figures(scored(5))
    less = before._replace(benchmarks=before.benchmarks[1:])
    update_record(workspace, asked.key, figures={BEFORE: less, NOW: now})
    note = load_stories(workspace)[0].tables[0].note
    assert f"version 1 before the change, without {before.benchmarks[0]}" in note
    assert "points" not in note, "means over different benchmarks are not compared"


def test_a_fine_tuned_version_is_told_with_the_version_that_it_continues(workspace: Workspace) -> None:
    version(workspace, content="first")
    promote_manually(workspace, "1", "Ana", "the first")
    asked = changed_snapshot("librarian")
    begin(workspace, asked, TrainingDecision(True, "below the gate (format compliance)", BELOW))
    assert load_stories(workspace)[0].outcome.startswith("Version 1 is being fine-tuned")
    made = version(workspace, 9, content="second", snapshot=asked.key, fine_tuned_from_version="1")
    promote_manually(workspace, made.version, "Ana", "it is better")
    page = finish_record(workspace, asked.key, made.version)
    assert page is not None
    [story] = load_stories(workspace)
    assert story.version == made.version
    assert story.outcome.startswith(f"Version {made.version}, fine-tuned from version 1, was promoted")
    assert "format compliance 0.58 (failed, bound 0.95)" in story.facts["Decision"]
    assert [row[0] for row in story.tables[0].rows][-1] == f"version {made.version} with the changed pool"
    assert NEW in page.read_text(encoding="utf-8")
    roll_back(workspace, "a trial", "Ana")
    assert "rolled back later" in load_stories(workspace)[0].outcome


def test_a_failed_run_and_a_plan_that_waits_ask_for_a_person(workspace: Workspace) -> None:
    asked = changed_snapshot("librarian")
    asked.write(workspace.snapshots)
    plan_record(workspace, asked.key, waits=True, usd=(30.0, 90.0))
    [waiting] = load_stories(workspace)
    assert (waiting.next_step, waiting.facts["Dagster run"]) == ("podium retrain", "none yet")
    update_record(
        workspace,
        asked.key,
        run="5f00ba11",
        began_at=1e9,
        waits=False,
        failure="the disk is full. Clean up",
        remedy="podium retrain",
    )
    [failed] = load_stories(workspace)
    assert (failed.outcome, failed.next_step) == ("The run failed: the disk is full.", "podium retrain")
    assert failed.facts["Why it failed"] == "the disk is full. Clean up"


@pytest.mark.parametrize(
    ("tested_on", "standing", "says"),
    [
        (None, None, "`podium rollback --reason WHY` makes version 1 champion again"),
        (ANOTHER_POOL, None, "it was not evaluated with the present pool"),
        (ANOTHER_POOL, BELOW, "with the present pool it fails the gate (format compliance 0.58, bound 0.95)"),
        (ANOTHER_POOL, GateDecision(True, ()), "`podium rollback --reason WHY` makes version 1 champion again"),
    ],
    ids=["same pool", "another pool", "fails with this pool", "passes with this pool"],
)
def test_a_rollback_is_offered_only_to_a_version_that_holds(
    workspace: Workspace, tested_on: str | None, standing: GateDecision | None, says: str
) -> None:
    present = changed_snapshot("librarian").pool
    version(workspace, content="first", pool_answers_key=tested_on or present.answers_key)
    promote_manually(workspace, "1", "Ana", "the first")
    assert describe_way_back(workspace) == "", "the first champion replaced no version"
    if standing is not None:
        record_standing(workspace, "1", present, standing)
    version(workspace, 9, content="second", pool_answers_key=present.answers_key)
    promote_manually(workspace, "2", "Ana", "it is better")
    newest = load_notices(workspace, 1)[0].notice
    assert describe_way_back(workspace).endswith(says)
    assert says.replace("`", "") in newest.text
    assert ("podium rollback" in newest.text) == says.startswith("`podium rollback")
    assert not newest.command, "nobody has to do anything"


def test_a_promotion_closes_what_it_solves_and_says_so(workspace: Workspace) -> None:
    version(workspace, content="first")
    promote_manually(workspace, "1", "Ana", "the first")
    below = CHAMPION_STAYS_BELOW.make_notice("version 1 does not hold", recipe="quickstart", another_seed="2")
    notify(workspace, below)
    notify(workspace, KEPT_BACK.make_notice("version 2 was not promoted", subject="2", version="2"))
    assert len(load_open_alerts(workspace)) == 2
    version(workspace, 9, content="second")
    promote_manually(workspace, "2", "Ana", "it is better")
    assert not load_open_alerts(workspace)
    closed = [entry for entry in load_notices(workspace, 9) if entry.closed is not None]
    assert [entry.closed.because for entry in closed if entry.closed] == ["version 2 is champion"] * 2
    assert "This closes the alert: version 1 does not hold" in load_notices(workspace, 1)[0].notice.text
    notify(workspace, below)
    assert load_open_alerts(workspace), "what happens again after it was solved is another alert"
