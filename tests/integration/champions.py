"""Register a champion without training: a version with the facts that retraining reads."""

from __future__ import annotations

import dagster as dg
from dagster._core.events import DagsterEvent, DagsterEventType

from assets.resources import Podium
from ops.core.workspace import Workspace
from ops.release import store


def crown(workspace: Workspace, podium: Podium, policy: str = "small-0123456789ab") -> str:
    """Register a version of that policy key, with a snapshot of the present files, as champion; return the version."""
    tags = {"policy": policy, "snapshot": podium.launch_tags()["podium/snapshot"], "recipe": str(podium.recipe)}
    with store.connected(workspace) as client:
        home = store.experiment(client, workspace)
        run = client.create_run(home)
        model = client.create_logged_model(home, name=store.MODEL, source_run_id=run.info.run_id)
        if not client.search_registered_models(f"name = '{store.MODEL}'"):
            client.create_registered_model(store.MODEL)
        source = f"models:/{model.model_id}"
        made = client.create_model_version(store.MODEL, source, run.info.run_id, tags=tags, model_id=model.model_id)
        client.set_registered_model_alias(store.MODEL, store.CHAMPION, made.version)
    return str(made.version)


def launch(instance: dg.DagsterInstance, job: dg.JobDefinition, request: dg.RunRequest) -> dg.DagsterRun:
    """The run that the daemon would launch, which stays unfinished."""
    return instance.create_run_for_job(job, run_config=request.run_config, tags={**job.run_tags, **request.tags})


def succeed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Mark the run as successful."""
    event = DagsterEvent(event_type_value=DagsterEventType.RUN_SUCCESS.value, job_name=run.job_name)
    instance.report_dagster_event(event, run.run_id)
