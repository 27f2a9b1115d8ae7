"""Track a training run in MLflow: all numbers of each step, the resolved recipe, sample workflows and checkpoints.

Training does not depend on MLflow. Records that could not be sent are sent later, and a server that never answers only
causes a warning. TRL's own reporting is turned off, because it ends a training if the server is unreachable; the values
that TRL logs are sent from here.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ops.config import dump_settings, hyperparameters
from ops.core.artifact_paths import repair_artifact_paths
from ops.core.atomic import sha256_of
from ops.core.digests import DamagedFile, check_digest, replace_with_digest, set_aside
from ops.core.installation import git_commit, require_mlflow
from ops.core.mlflow_runs import PURPOSE_TAG, Purpose, name_run
from ops.core.workspace import Workspace
from ops.training.run.checkpoints import CHECKPOINTS
from ops.training.run.training_run import RunPlan
from ops.workflow.grammar import parse_workflow
from ops.workflow.rendering import render_workflow

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

EXPERIMENT = "podium-training"
"""The name of the MLflow experiment, unless the environment variable MLFLOW_EXPERIMENT_NAME has another."""
ABOUT_EXPERIMENT = (
    "GRPO training of Conductors, one run for each stage of a recipe. The tag `podium.purpose` says whether a run was "
    "an ordinary training, the fine-tuning of a champion, or part of a study. The tag `model_version` names the "
    "version that was released of it, `release_run` the run of the experiment podium that has its scores."
)
"""The description of the experiment in MLflow."""
RUN_FILE = "mlflow.json"
"""The file in a run's folder that names its MLflow run, which all attempts share."""
_SQLITE = "sqlite:///"
_RETRY_S = 300.0
"""Seconds between two attempts to reach a server that did not answer. Each attempt delays a step by at most 20 s."""
_RETRY_SETTINGS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Limits on MLflow's own retries, which are 7 attempts of 120 s each by default."""
_PARAMETERS, _PARAMETER_LENGTH = 100, 500
"""The number of parameters that MLflow accepts in one call, and the longest value that every version of it accepts."""
_MAIN = "0 main"
"""The name of the most important group of charts. It begins with 0 because MLflow's UI sorts groups by name."""
_MLFLOW_NAMES = {
    **{name: f"{_MAIN}/{name}" for name in ("reward", "zero_variance_groups", "cost_usd")},
    **{f"share/{name}": f"{_MAIN}/{name}" for name in ("right", "invalid")},
    "calls": "calls/all",
    "seconds": "seconds/all",
}
"""The names of numbers that are called otherwise in MLflow than in the curve, because a store of files cannot hold a
name that is also a folder."""
_STEP_TAG = "step"
"""The tag of a checkpoint's logged model with the step after which the checkpoint was saved."""
MIX_DATASET = "training_mix"
"""The name of the training mix as a dataset in MLflow, and the tag of a checkpoint with the mix's hash."""
_log = logging.getLogger(__name__)


class _Step(NamedTuple):
    """A record that is to be sent to MLflow: the numbers of a step, or its saved checkpoint."""

    number: int
    """The number of the step, from 1."""
    timestamp_ms: int
    """The time at which the step ended, in milliseconds since 1970."""
    metrics: dict[str, float]
    """The finite numbers of the step by name."""
    workflow: str
    """The text of a sample workflow. It is empty if none is logged for this step."""
    saved: bool = False
    """True if the record is about the step's saved checkpoint."""


class MlflowTracking:
    """A context manager that tracks one attempt at a training run in MLflow.

    The recipe's hyperparameters become the parameters of the MLflow run. `arguments` holds the arguments of TRL, which
    become an artifact. `clock` returns seconds. No error is raised if MLflow fails.
    """

    def __init__(
        self, plan: RunPlan, folder: Path, arguments: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._plan, self._folder, self._arguments, self._clock = plan, folder, arguments, clock
        self._client: MlflowClient | None = None
        self._run_id = ""
        self._pending: list[_Step] = []
        self._last: _Step | None = None
        self._next_attempt = -math.inf
        self._warned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send_pending(lambda client: client.set_terminated(self._run_id, "FAILED" if kind else "FINISHED"))

    def log_step(self, logs: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Send the values that TRL logs, the curve's line of one step, and earlier records that could not be sent."""
        number, grpo = int(row["step"]), self._plan.recipe.grpo
        shown = number % grpo.checkpoint_every == 0 or number == grpo.steps
        metrics = select_metrics(row) | select_numbers(
            {f"trl/{name}": value for name, value in logs.items() if name not in row}
        )
        self._pending.append(_Step(number, time.time_ns() // 1_000_000, metrics, row["sample"] if shown else ""))
        self._last = self._pending[-1]
        self._send_if_due()

    def log_checkpoint(self, number: int) -> None:
        """Record the checkpoint that was saved after the last step as a logged model with that step's metrics."""
        if self._last is not None and self._last.number == number:
            self._pending.append(self._last._replace(workflow="", saved=True))
            self._send_if_due()

    def _send_if_due(self) -> None:
        if self._clock() >= self._next_attempt:
            self._send_pending(lambda _: None)

    def _send_pending(self, then: Callable[[MlflowClient], None]) -> None:
        """Send all records that are waiting and then call `then`; after an error, the next attempt comes `_RETRY_S`
        later."""
        try:
            client = self._connect()
            while self._pending:
                self._send(client, self._pending[0])
                self._pending.pop(0)
            then(client)
        except Exception as error:  # noqa: BLE001  (no error of a store may end a training)
            self._next_attempt = self._clock() + _RETRY_S
            if not self._warned:
                self._warned = True
                where = f"MLflow ({self._plan.mlflow_uri}) does not take the training's curve"
                _log.warning("%s, tried again every %.0f s; %s has it: %s", where, _RETRY_S, self._folder, error)

    def _connect(self) -> MlflowClient:
        """Return the client of the store, where the run's MLflow run exists and is marked as running."""
        if self._client is not None:
            return self._client
        require_mlflow()
        for name, value in _RETRY_SETTINGS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        uri = str(self._plan.mlflow_uri)
        if uri.startswith(_SQLITE):
            Path(uri.removeprefix(_SQLITE)).parent.mkdir(parents=True, exist_ok=True)
            repair_artifact_paths(Workspace(self._plan.root, rehearsal=self._plan.recipe.replay is not None))
        client = MlflowClient(tracking_uri=uri)
        if (known := find_tracked_run(self._folder, uri)) is not None:
            self._run_id = known
            client.update_run(self._run_id, status="RUNNING")
        else:
            self._run_id = self._create_run(client, uri)
            with replace_with_digest(self._folder / RUN_FILE) as temporary:
                temporary.write_text(json.dumps({"uri": uri, "run_id": self._run_id}), encoding="utf-8")
        self._client = client
        return client

    def _create_run(self, client: MlflowClient, uri: str) -> str:
        """Create an MLflow run with the recipe, the pool and the training mix, and return its id."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param

        plan, home = self._plan, _find_experiment(client, uri)
        name, tags = name_run(_purpose(plan), self._folder.name), _run_tags(plan, self._folder)
        run_id = str(client.create_run(home, run_name=name, tags=tags).info.run_id)
        parameters = [Param(name, value[:_PARAMETER_LENGTH]) for name, value in hyperparameters(plan.recipe).items()]
        for start in range(0, len(parameters), _PARAMETERS):
            client.log_batch(run_id, params=parameters[start : start + _PARAMETERS])
        client.log_text(run_id, dump_settings(plan.recipe), "recipe.yaml")
        client.log_text(run_id, dump_settings(plan.pool), "pool.yaml")
        client.log_dict(run_id, {name: str(value) for name, value in self._arguments.items()}, "trl_arguments.json")
        if (key := self._hash_mix()) is not None:
            mix = Dataset(MIX_DATASET, key, "code", json.dumps({"tags": {"mlflow.source.name": "podium"}}))
            client.log_inputs(run_id, datasets=[DatasetInput(mix, [InputTag("mlflow.data.context", "training")])])
        return run_id

    def _hash_mix(self) -> str | None:
        """Return the hash by which `ops.release` names the training mix, or None if the file is absent."""
        file = self._plan.problems
        return sha256_of(file)[:12] if file.is_file() else None

    def _send(self, client: MlflowClient, step: _Step) -> None:
        from mlflow.entities import Metric

        if step.saved:
            self._send_checkpoint(client, step)
            return
        metrics = [Metric(name, value, step.timestamp_ms, step.number) for name, value in step.metrics.items()]
        client.log_batch(self._run_id, metrics=metrics)
        if step.workflow:
            client.log_text(self._run_id, self._render_workflow(step.workflow), f"workflows/step-{step.number:05d}.md")

    def _send_checkpoint(self, client: MlflowClient, step: _Step) -> None:
        """Log the checkpoint as a model without files. The weights stay in the run's folder, which a tag names."""
        from mlflow.entities import LoggedModelOutput, Metric

        home, run, mix = str(client.get_run(self._run_id).info.experiment_id), self._run_id, self._hash_mix()
        model = _find_checkpoints(client, run).get(step.number)
        if model is None:  # it may exist, because an interrupted run repeats the steps after its last checkpoint
            tags = {"policy": self._folder.name, "run_id": run, _STEP_TAG: str(step.number)} | (
                {MIX_DATASET: mix} if mix else {}
            )
            tags |= {"folder": f"{self._folder.name}/{CHECKPOINTS}/checkpoint-{step.number}"}
            name = f"{self._plan.stage}-step-{step.number:05d}"
            model = client.create_logged_model(home, name, run, tags, hyperparameters(self._plan.recipe))
            client.finalize_logged_model(model.model_id, "READY")
            client.log_outputs(run, [LoggedModelOutput(model.model_id, step.number)])
        data = MIX_DATASET if mix else None
        metrics = [
            Metric(name, value, step.timestamp_ms, step.number, model.model_id, data, mix, run)
            for name, value in step.metrics.items()
        ]
        client.log_batch(run, metrics=metrics)

    def _render_workflow(self, text: str) -> str:
        """Return a workflow as Markdown: its drawing, if it is valid, and its text."""
        offered, prompting = self._plan.offered, self._plan.recipe.prompting
        read = parse_workflow(text, offered=len(offered), max_steps=prompting.max_steps, access=prompting.access)
        drawn = render_workflow(read.workflow, "markdown", offered) if read.workflow is not None else ""
        return f"{drawn}\n\n```\n{text}\n```\n"


def find_tracked_run(folder: Path, uri: str) -> str | None:
    """Return the id of the MLflow run of a training run's folder, or None if the store at `uri` has none."""
    file = folder / RUN_FILE
    try:
        check_digest(file, "", missing="accepted")
        known = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (DamagedFile, ValueError, IsADirectoryError) as error:
        set_aside(file, error, "The training has no curve in MLflow until it is tracked again.")
        return None
    return str(known["run_id"]) if known.get("uri") == uri else None


def find_tracked_checkpoint(folder: Path, uri: str) -> str | None:
    """Return the id of the logged model of a training run's last checkpoint, or None if the store at `uri` has none."""
    from mlflow import MlflowClient

    run = find_tracked_run(folder, uri)
    made = _find_checkpoints(MlflowClient(tracking_uri=uri), run) if run else {}
    return made[max(made)].model_id if made else None


def _find_checkpoints(client: MlflowClient, run: str) -> dict[int, LoggedModel]:
    """Return the logged models of a training run's checkpoints by the step after which each was saved."""
    home = str(client.get_run(run).info.experiment_id)
    made = client.search_logged_models([home], f"source_run_id = '{run}'", max_results=1000)
    return {int(each.tags[_STEP_TAG]): each for each in made if _STEP_TAG in each.tags}


def _purpose(plan: RunPlan) -> Purpose:
    return "fine-tuning" if plan.from_champion else "study" if plan.account else "training"


def _run_tags(plan: RunPlan, folder: Path) -> dict[str, str]:
    stage, recipe, pool, purpose = plan.stage, plan.recipe, plan.pool, _purpose(plan)
    workers = sum(name in pool.names for name in plan.offered)
    about = (
        f"{purpose.capitalize()}, GRPO of `{stage}`: recipe `{recipe.name}`, seed {recipe.seed}, pool `{pool.name}` "
        f"({workers} workers), {recipe.grpo.steps} steps from `{plan.base_policy.name}`. The charts that "
        f"matter most are in `{_MAIN}`; `share` has outcomes, `use` workers by domain, `trl` what TRL itself logs."
    )
    return {
        "mlflow.note.content": about,
        "mlflow.source.name": "podium",
        "mlflow.source.type": "PROJECT",
        "mlflow.source.git.commit": git_commit(plan.setup.workspace),
        PURPOSE_TAG: purpose,
        "stage": stage,
        "policy": folder.name,
        "base_policy": plan.base_policy.name,
        **({"account": plan.account} if plan.account else {}),
        "recipe": recipe.name,
        "seed": str(recipe.seed),
        "pool": pool.name,
        "pool_answers_key": pool.answers_key,
        **({"fine_tuned_from_version": plan.champion} if plan.champion else {}),
    }


def select_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in a line of `curve.jsonl` under their names in MLflow (`_MLFLOW_NAMES`).

    `use/DOMAIN/WORKER` is the share (0-1) of the domain's steps that the worker was given.
    """
    metrics = {_MLFLOW_NAMES.get(name, name): value for name, value in select_numbers(row).items() if name != "step"}
    for domain, used in row["use"].items():
        total = sum(used.values())
        metrics |= {_mlflow_name(f"use/{domain}/{worker}"): steps / total for worker, steps in used.items() if total}
    return metrics


def select_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among `values`, under names that MLflow accepts."""
    return {
        _mlflow_name(name): float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _mlflow_name(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_\-. :/]", "_", name)


def _find_experiment(client: MlflowClient, uri: str) -> str:
    """Return the id of the experiment, which is created if needed. Artifacts of a SQLite store are stored beside its
    file."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    if (existing := client.get_experiment_by_name(name)) is not None:
        return str(existing.experiment_id)
    artifacts = Path(uri.removeprefix(_SQLITE)).resolve().parent / "artifacts" if uri.startswith(_SQLITE) else None
    about = {"mlflow.note.content": ABOUT_EXPERIMENT}
    return str(client.create_experiment(name, artifacts.as_uri() if artifacts else None, about))
