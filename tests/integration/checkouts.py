"""Recipes of seconds, and what a test does with its checkout: files of `config`, first stages, commands, a champion."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.events import DagsterEvent, DagsterEventType

from assets.resources import SNAPSHOT_TAG, RunResource
from ops.config import Setup
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.release import mlflow_store
from ops.results.table import save_rows
from ops.stages.curation import materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from pipelines.definitions import make_definitions
from tests.command import podium

TRAINED = ("math500", "mmlu", "rlpr", "livecodebench")
LENIENT = {"min_format_compliance": 0.0, "min_gain_over_best_worker": -1.0}
"""A gate that only asks that there is something to judge: a policy of seconds does not beat anything."""
UNTRAINED: dict[str, Any] = {
    "pool": "quickstart",
    "grading": {"isolation": "resource_limits"},  # programs of our own: see the quickstart
    "policy": {"kind": "scratch", "max_tokens": 4096},
    "cold_start": {},
    "grpo": {"steps": 1, "questions_per_step": 1, "rollouts_per_question": 4, "micro_batch": 4},
}
"""A recipe of which the stages of data alone are made."""
SHORT: dict[str, Any] = UNTRAINED | {
    "seed": 3,
    "curation": {"per_domain": 6, "shortlist_factor": 1.25, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
    "policy": {"kind": "scratch", "vocabulary": 800, "hidden": 96, "layers": 2, "heads": 4, "max_tokens": 384},
    "cold_start": {"steps": 60, "batch": 16, "learning_rate": 3e-3, "least_valid": 0},
    "grpo": {
        "steps": 2, "questions_per_step": 2, "rollouts_per_question": 8, "max_completion_tokens": 64,
        "learning_rate": 1e-4, "schedule": "constant", "micro_batch": 16, "checkpoint_every": 1,
    },
    "evaluation": {"batch": 32},
}  # fmt: skip
"""A recipe that is trained in seconds."""


def changed(recipe: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Return the recipe with these values, and with these keys of a section instead of its own."""
    return dict(recipe) | {
        name: {**recipe[name], **value} if isinstance(value, dict) and isinstance(recipe.get(name), dict) else value
        for name, value in sections.items()
    }


def sizes(train: int, test: int, names: Iterable[str] = TRAINED) -> dict[str, dict[str, int]]:
    """Return the benchmarks of a recipe with their numbers of problems."""
    return {name: {"train": train, "test": test} for name in names}


def configure(workspace: Workspace, files: Mapping[str, object]) -> None:
    """Write files of `config`, by their names without `.yaml`."""
    for name, values in files.items():
        (workspace.config / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")


def shortlisted(setup: Setup) -> list[Problem]:
    """Write the problems of every benchmark and the shortlist, without Dagster; return the shortlist."""
    load_raw(setup)
    return list(materialize_shortlist(setup).problems)


def load_raw(setup: Setup) -> None:
    """Write `data/raw` like the asset."""
    for name in setup.recipe.benchmarks:
        materialize_raw(setup, name)


def materialize(
    podium: RunResource, instance: dg.DagsterInstance, *names: str, partition: str | None = None, **options: Any
) -> dg.ExecuteInProcessResult:
    """Run these assets with their checks, as the UI would."""
    job = make_definitions(podium).resolve_implicit_global_asset_job_def()
    keys = [dg.AssetKey(name) for name in names]
    return job.execute_in_process(instance=instance, asset_selection=keys, partition_key=partition, **options)


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return why the run's first failed step failed."""
    failed = next(event for event in result.all_node_events if event.is_step_failure)
    return str(failed.step_failure_data.error_display_string)


def metadata(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """Return the values of the asset's latest metadata."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None and event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


class _Seen(io.StringIO):
    """A text to which `see` is shown in parts as it is written."""

    def __init__(self, see: Callable[[str], object]) -> None:
        super().__init__()
        self.see = see

    def write(self, text: str, /) -> int:
        self.see(text)
        return super().write(text)


def command(
    root: Path, *words: str, see: Callable[[str], object] = lambda _: None, columns: int = 120
) -> tuple[int, str]:
    """Run `podium` of a checkout in this process; return its exit status and what it prints, which `see` is shown."""
    printed = _Seen(see)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        patch.setenv("PODIUM_ROOT", str(root))
        patch.setenv("COLUMNS", str(columns))
        return podium(*words), printed.getvalue()


def crown(workspace: Workspace, podium: RunResource, policy: str = "small-0123456789ab") -> str:
    """Register a version of that policy key, with a snapshot of the present files, as champion without training or
    scores."""
    tags = {"policy": policy, "snapshot": podium.make_launch_tags()[SNAPSHOT_TAG], "recipe": str(podium.recipe)}
    with mlflow_store.connect(workspace) as client:
        home = mlflow_store.get_or_create_experiment(client, workspace)
        run = client.create_run(home)
        save_rows([], workspace.root / "no-scores" / "scores.parquet")
        client.log_artifact(run.info.run_id, str(workspace.root / "no-scores" / "scores.parquet"))
        model = client.create_logged_model(home, name=mlflow_store.MODEL_NAME, source_run_id=run.info.run_id)
        if not client.search_registered_models(f"name = '{mlflow_store.MODEL_NAME}'"):
            client.create_registered_model(mlflow_store.MODEL_NAME)
        source = f"models:/{model.model_id}"
        made = client.create_model_version(
            mlflow_store.MODEL_NAME, source, run.info.run_id, tags=tags, model_id=model.model_id
        )
        client.set_registered_model_alias(mlflow_store.MODEL_NAME, mlflow_store.CHAMPION, made.version)
    return str(made.version)


def launch(instance: dg.DagsterInstance, job: dg.JobDefinition, request: dg.RunRequest) -> dg.DagsterRun:
    """The run that the daemon would launch, which stays unfinished."""
    return instance.create_run_for_job(job, run_config=request.run_config, tags={**job.run_tags, **request.tags})


def succeed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Mark the run as successful."""
    event = DagsterEvent(event_type_value=DagsterEventType.RUN_SUCCESS.value, job_name=run.job_name)
    instance.report_dagster_event(event, run.run_id)
