"""A training run in a real MLflow store: every number of every step,
one MLflow run for all attempts, and no failures.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from ops.config import hyperparameters
from ops.training.run.tracking import (
    EXPERIMENT,
    RUN_FILE,
    MlflowTracking,
    find_tracked_checkpoint,
    find_tracked_run,
    select_metrics,
)
from ops.training.run.training_run import RESULT_FILE, RunPlan, read_curve
from ops.workflow.grammar import Workflow
from tests.unit.training.plans import quick_plan
from tests.unit.training.tiny import tiny_plan, train

RIGHT = Workflow.single(0).render()
LOGS = {"reward": 0.75, "completions/max_length": 31.0, "kl": None, "reward_std": float("nan")}


def plan(uri: str) -> RunPlan:
    made = quick_plan(checkpoint_every=2, steps=3)
    return made.model_copy(update={"offered": ("solver", "scholar"), "mlflow_uri": uri})


def row(step: int) -> dict[str, Any]:
    use = {"math": {"solver": 3, "scholar (old)": 1}}
    return {
        "step": step, "reward": 0.75, "share/right": 0.5 + step / 100, "invalid/no_assignment": 0.1, "calls": 8,
        "calls/cached": 2, "seconds": 4.0, "seconds/workers": 1.0, "zero_variance_groups": None, "use": use,
        "top_patterns": {"0": 4}, "sample": RIGHT,
    }  # fmt: skip


def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}"


def only_run(uri: str) -> tuple[MlflowClient, Run]:
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    return client, run


def history(uri: str, name: str) -> list[tuple[int, float]]:
    """Return (step, value) of a metric of the only run."""
    client, run = only_run(uri)
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]


@contextmanager
def warnings_of(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    seen: list[str] = []
    with caplog.at_level(logging.WARNING, "ops.training.run.tracking"):
        yield seen
    seen += [record.getMessage() for record in caplog.records if record.name == "ops.training.run.tracking"]


def test_a_line_of_the_curve_becomes_metrics_of_stable_names() -> None:
    assert select_metrics(row(1)) == {
        "0 main/reward": 0.75, "0 main/right": 0.51, "invalid/no_assignment": 0.1, "calls/all": 8, "calls/cached": 2,
        "seconds/all": 4.0, "seconds/workers": 1.0, "use/math/solver": 0.75, "use/math/scholar _old_": 0.25,
    }  # fmt: skip


def test_two_attempts_are_one_run_with_recipe_parameters_and_workflows(tmp_path: Path) -> None:
    uri = store(tmp_path)
    with pytest.raises(KeyboardInterrupt), MlflowTracking(plan(uri), tmp_path, {"learning_rate": 1e-6}) as attempt:
        attempt.log_step(LOGS, row(1))
        raise KeyboardInterrupt
    assert only_run(uri)[1].info.status == "FAILED"
    with MlflowTracking(plan(uri), tmp_path, {"learning_rate": 2e-6}) as attempt:
        attempt.log_step(LOGS, row(2))
        assert only_run(uri)[1].info.status == "RUNNING"
        attempt.log_step(LOGS, row(3))
    client, run = only_run(uri)
    assert (run.info.status, run.info.run_name) == ("FINISHED", f"training {tmp_path.name}")
    recipe = plan(uri).recipe
    assert run.data.params == hyperparameters(recipe)
    assert (run.data.params["grpo.learning_rate"], run.data.params["seed"]) == (str(recipe.grpo.learning_rate), "1")
    tags = run.data.tags
    assert tags["mlflow.source.name"] == "podium" and tags["mlflow.source.git.commit"]
    assert (tags["pool"], tags["seed"], tags["recipe"], tags["stage"]) == ("quickstart", "1", "quickstart", "conductor")
    assert "recipe `quickstart`, seed 1" in tags["mlflow.note.content"]
    assert "GRPO" in client.get_experiment(run.info.experiment_id).tags["mlflow.note.content"]
    assert find_tracked_run(tmp_path, uri) == run.info.run_id and find_tracked_run(tmp_path, "sqlite:///other") is None
    assert history(uri, "0 main/right") == [(1, 0.51), (2, 0.52), (3, 0.53)]
    assert "trl/reward" not in run.data.metrics, "it is in the curve"
    assert {"trl/completions/max_length", "calls/all", "use/math/solver"} <= set(run.data.metrics)
    assert not {"trl/kl", "trl/reward_std", "0 main/zero_variance_groups"} & set(run.data.metrics)
    artifacts = tmp_path / "mlflow" / "artifacts" / run.info.run_id / "artifacts"
    assert "name: quickstart" in (artifacts / "recipe.yaml").read_text(encoding="utf-8")
    assert json.loads((artifacts / "trl_arguments.json").read_text(encoding="utf-8")) == {"learning_rate": "1e-06"}
    shown = sorted(path.name for path in (artifacts / "workflows").iterdir())
    assert shown == ["step-00002.md", "step-00003.md"]
    text = (artifacts / "workflows" / shown[0]).read_text(encoding="utf-8")
    assert "solver" in text and RIGHT in text


def test_a_checkpoint_is_a_logged_model_with_its_steps_metrics_and_data(tmp_path: Path) -> None:
    mix = tmp_path / "mix.jsonl"
    mix.write_text("{}\n", encoding="utf-8")
    uri = store(tmp_path)
    made = plan(uri).model_copy(update={"problems": mix})
    for steps in ((1, 2), (2, 3)):  # the second attempt repeats a step that was saved
        with MlflowTracking(made, tmp_path, {}) as attempt:
            for number in steps:
                attempt.log_step(LOGS, row(number))
                if number > 1:
                    attempt.log_checkpoint(number)
    client, run = only_run(uri)
    found = client.search_logged_models([run.info.experiment_id])
    assert sorted(model.name for model in found) == ["conductor-step-00002", "conductor-step-00003"]
    last = next(model for model in found if model.name == "conductor-step-00003")
    assert last.model_id == find_tracked_checkpoint(tmp_path, uri)
    assert (last.source_run_id, last.tags["run_id"]) == (run.info.run_id, run.info.run_id)
    assert last.tags["folder"] == f"{tmp_path.name}/checkpoints/checkpoint-3"
    key = hashlib.sha256(mix.read_bytes()).hexdigest()[:12]
    assert last.tags["training_mix"] == key
    right = [metric for metric in last.metrics or [] if metric.key == "0 main/right"]
    assert [(metric.step, metric.value, metric.dataset_digest) for metric in right] == [(3, 0.53, key)]
    assert [(each.dataset.name, each.dataset.digest) for each in run.inputs.dataset_inputs] == [("training_mix", key)]
    assert {(each.model_id, each.step) for each in run.outputs.model_outputs} == {
        (model.model_id, int(model.tags["step"])) for model in found
    }


def test_records_that_a_store_refused_are_sent_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri, now = store(tmp_path), [0.0]
    in_the_way = tmp_path / "mlflow"
    in_the_way.write_text("", encoding="utf-8")
    with warnings_of(caplog) as warnings, MlflowTracking(plan(uri), tmp_path, {}, lambda: now[0]) as attempt:
        attempt.log_step(LOGS, row(1))
        now[0] = 299.0
        in_the_way.unlink()
        attempt.log_step(LOGS, row(2))
        assert not in_the_way.exists(), "left alone for a while"
        now[0] = 300.0
        attempt.log_step(LOGS, row(3))
    assert [step for step, _ in history(uri, "0 main/reward")] == [1, 2, 3]
    [warning] = warnings
    assert "does not take the training's curve" in warning


def closed_port() -> str:
    """Return the address of a server that does not exist."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_server_that_never_answers_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter(range(0, 9000, 400)).__next__
    with warnings_of(caplog) as warnings, MlflowTracking(plan(closed_port()), tmp_path, {}, clock) as attempt:
        for step in (1, 2, 3):
            attempt.log_step(LOGS, row(step))
    assert len(warnings) == 1
    assert not (tmp_path / RUN_FILE).exists()


@pytest.mark.slow
def test_a_training_is_tracked_and_does_not_end_with_its_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny, folder = tiny_plan(tmp_path, steps=2)
    uri = store(tmp_path)
    train(tiny.model_copy(update={"mlflow_uri": uri}), folder)
    _, tracked = only_run(uri)
    curve = read_curve(folder)
    names = {name: f"0 main/{name}" for name in ("reward", "zero_variance_groups", "cost_usd")}
    names |= {"share/invalid": "0 main/invalid", "tokens": "tokens", "diversity": "diversity"}
    tracked_curve = {name: history(uri, shown) for name, shown in names.items()}
    assert tracked_curve == {name: [(line["step"], line[name]) for line in curve] for name in names}
    assert tracked.data.params["grpo.steps"] == "2"
    assert not (folder / "policy" / "training_args.bin").exists(), "a pickle"
    assert tracked.info.status == "FINISHED"
    assert find_tracked_checkpoint(folder, uri), "its last step was saved"
    away = tmp_path / "away"
    away.mkdir()
    with warnings_of(caplog) as warnings:
        train(tiny.model_copy(update={"mlflow_uri": closed_port()}), away)
    assert (away / RESULT_FILE).is_file()
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("change", "purpose"),
    [({}, "training"), ({"from_champion": True}, "fine-tuning"), ({"account": "quickstart-1-steps"}, "study")],
)
def test_name_and_tag_of_a_run_say_what_it_was_for(tmp_path: Path, change: dict[str, Any], purpose: str) -> None:
    uri = store(tmp_path)
    with MlflowTracking(plan(uri).model_copy(update=change), tmp_path, {}) as attempt:
        attempt.log_step(LOGS, row(1))
    _, run = only_run(uri)
    assert (run.data.tags["podium.purpose"], run.info.run_name) == (purpose, f"{purpose} {tmp_path.name}")
