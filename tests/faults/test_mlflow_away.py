"""MLflow's server is killed during a training, and restarted: the training continues, and its curve is complete."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from ops.config import load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.training.run.tracking import EXPERIMENT, MlflowTracking
from ops.training.run.training_run import RunPlan
from tests.team.servers import Mlflow

CONFIG = Workspace.find().config
pytestmark = [
    pytest.mark.long,  # `make test` trains beside a server that is not there (tests/unit/training/test_tracking.py)
    pytest.mark.timeout(300),
]


def plan(uri: str) -> RunPlan:
    recipe = load_recipe(CONFIG, "quickstart")
    return RunPlan(
        root=CONFIG.parent, recipe=recipe, pool=load_pool(CONFIG, recipe.pool), offered=("algebraist",),
        base_policy=Path("base"), problems=Path("mix"), few_shots=Path("data"), mlflow_uri=uri,
    )  # fmt: skip


def row(step: int) -> dict[str, Any]:
    return {"step": step, "reward": step / 10, "calls": 8, "seconds": 4.0, "use": {}, "top_patterns": {}, "sample": ""}


def test_mlflow_is_down_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    now = [0.0]
    server = Mlflow(tmp_path, f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    try:
        with (
            caplog.at_level(logging.WARNING),
            MlflowTracking(plan(server.url), tmp_path, {}, lambda: now[0]) as attempt,
        ):
            attempt.log_step({}, row(1))
            server.stop(signal.SIGKILL)
            for step in (2, 3):
                attempt.log_step({}, row(step))
            now[0] = 400.0  # it retries every five minutes, and MLflow is still down
            attempt.log_step({}, row(4))
            server.start()
            attempt.log_step({}, row(5))
            now[0] = 800.0
            attempt.log_step({}, row(6))
        client = MlflowClient(tracking_uri=server.url)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        assert experiment is not None
        [run] = client.search_runs([experiment.experiment_id])
        history = client.get_metric_history(run.info.run_id, "0 main/reward")
        assert {(point.step, point.value) for point in history} == {(step, step / 10) for step in range(1, 7)}
        assert run.info.status == "FINISHED"
    finally:
        server.stop(signal.SIGKILL)
    shown = [record for record in caplog.records if "does not take the training's curve" in record.getMessage()]
    assert len(shown) == 1
