"""An experiment that trains anew as an asset: trained once, scored once, beside the recipe as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from assets.conductor import run_folder
from assets.retrained import setups
from ops.config.ablations import EXPERIMENTS
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.evaluation.ablations import AS_IT_IS
from ops.stages.ablations import outcome
from ops.stages.making import trained
from ops.stages.problems import materialize_raw
from ops.training.run.plan import CURVE, LOG, RunPlan
from tests.integration.test_adaptive_asset import materialized, podium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAMES = ("math500", "aime25")


def test_a_change_is_trained_and_scored_once(project: Workspace, tmp_path: Path) -> None:
    sources = dict.fromkeys(("mmlu", "rlpr", "livecodebench", "gpqa_diamond", "bigcodebench"))
    sources |= {name: {"source": "embedded", "test": 4} for name in NAMES}  # type: ignore[dict-item]
    said = {"recipe": "small", "changes": {"warmer": {"grpo": {"temperature": 0.9}}}}
    (project.config / EXPERIMENTS).write_text(yaml.safe_dump(said), encoding="utf-8")
    chosen = podium(project, tmp_path, benchmarks=sources)
    for name in NAMES:
        materialize_raw(chosen.load(), name)
    materialized(chosen, "conductor")
    _, other = setups(chosen, "warmer")
    with pytest.raises(DataError, match="was not trained"):
        outcome(other, None)  # nobody may make it

    [event] = materialized(chosen, "retrained/warmer").asset_materializations_for_node("retrained__warmer")
    table = [record.data for record in event.metadata["table"].records]  # type: ignore[attr-defined]
    assert [row["change"] for row in table] == [AS_IT_IS, "warmer"]
    assert table[0]["cold start, %"] == table[1]["cold start, %"]  # the change leaves the lessons as they are
    assert event.metadata["calls_live"].value > 0
    assert {"picture", "reward_curve"} <= event.metadata.keys()
    run = Path(str(event.metadata["run"].value))
    assert run == trained(other, None, None) != run_folder(chosen)
    assert RunPlan.read(run).recipe.grpo.temperature == 0.9
    stored = outcome(other, None)
    assert {row.benchmark for row in stored.conductor} == {*NAMES} and len(stored.cold_start) == 8

    files = [run / CURVE, run / LOG, *project.scores.rglob("*.parquet")]
    written = {file: file.stat().st_mtime_ns for file in files}
    [again] = materialized(chosen, "retrained/warmer").asset_materializations_for_node("retrained__warmer")
    assert again.metadata["table"] == event.metadata["table"]
    assert again.metadata["calls_live"].value == again.metadata["calls_cached"].value == 0  # nobody was asked
    assert {*project.scores.rglob("*.parquet")} <= {*files}
    assert written == {file: file.stat().st_mtime_ns for file in files}
