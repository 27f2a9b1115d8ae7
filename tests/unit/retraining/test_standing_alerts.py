"""A champion that does not hold, and a new worker that it cannot use, are one alert a change with a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.alerts.notify import kept
from ops.config import PoolChange, Snapshot
from ops.core.workspace import Workspace
from ops.release.promotion import Check, GateDecision
from ops.retraining.decision import ORACLE, Decision
from ops.retraining.standing import alert_on_standing

WORSE = Check("difference to the champion", -0.09, -0.02, False, "mean -0.05")
COSTLIER = Check("cost ratio to the champion", 2.1, 1.5, False, "0.2 against 0.1 USD")
PAYS = Check(ORACLE, 0.07, 0.02, True, "mean +0.08")
HOLDS = GateDecision(True, ())


def standing(*failed: Check) -> GateDecision:
    return GateDecision(False, failed) if failed else HOLDS


@pytest.mark.parametrize(
    ("made", "commands"),
    [
        (Decision(False, "the champion holds", HOLDS), []),
        (Decision(True, "below the gate", standing(WORSE)), ["podium retrain"]),
        (Decision(False, "costlier", standing(COSTLIER)), ["podium run quickstart --seed 2"]),
        (Decision(False, "pays", HOLDS, (PAYS,), train_anew=True), ["podium run quickstart --seed 1"]),
        (Decision(False, "both", standing(COSTLIER), (PAYS,), train_anew=True), ["podium run quickstart --seed 1"]),
        (
            Decision(True, "below; pays", standing(WORSE), (PAYS,), train_anew=True),
            ["podium retrain", "podium run quickstart --seed 1"],
        ),
    ],
    ids=["holds", "below", "costlier", "pays", "costlier and pays", "below and pays"],
)
def test_each_state_is_an_alert_once(tmp_path: Path, made: Decision, commands: list[str]) -> None:
    asked = Snapshot.take(Workspace.find().config, "quickstart", None, "")
    asked = asked.model_copy(update={"change": PoolChange(version="3", policy="p", before=asked.pool)})
    workspace = Workspace(tmp_path)
    for _ in range(3):
        alert_on_standing(workspace, asked, made)
    notices = [entry.notice for entry in reversed(kept(workspace, 9))]
    assert [notice.command for notice in notices] == commands
    assert {notice.kind for notice in notices} <= {"decision"}
    if made.standing.failed:
        [failed] = made.standing.failed
        assert made.train_anew or ("version 3" in notices[0].title and failed.name in notices[0].title)
        assert f"bound {failed.bound:.4g}" in notices[0].text
    other = asked.model_copy(update={"change": PoolChange(version="4", policy="q", before=asked.pool)})
    alert_on_standing(workspace, other, made)
    assert len(kept(workspace, 9)) == 2 * len(commands), "another change is another occasion"
